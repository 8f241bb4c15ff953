"""Sessions of recordings, in files, directories and PostgreSQL."""
