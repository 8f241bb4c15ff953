"""Shared by captures and recordings: content of messages, its bounds, its secrets."""
