"""Recordings in other programs' files: read, and written."""
