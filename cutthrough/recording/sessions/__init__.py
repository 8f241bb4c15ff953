"""Where recordings are: sessions in files, directories and PostgreSQL."""
