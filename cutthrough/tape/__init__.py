"""Exchanges on their way from a worker to a store.

    a session ─> observer ─ HEADS, UP, DOWN, END ─> ring     in the worker
    ring ─> records ─┬─> rows of captures, redacted ─> storage    in the writer
                     └─> RingExchange, as it came ─> recording
"""
