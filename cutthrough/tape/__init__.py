"""Exchanges on their way from a worker to the writer: tap, ring, rows."""
