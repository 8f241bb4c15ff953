"""Requests that are answered by recordings."""
