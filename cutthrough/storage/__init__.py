"""The writer of exchanges, and its stores: SQLite and PostgreSQL."""
