"""Capture by rule: exchanges on their way into a database, and out of it again."""
