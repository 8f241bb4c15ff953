"""Recorded answers, and how a request finds its own again."""
