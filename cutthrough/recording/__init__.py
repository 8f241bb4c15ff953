"""Answers that were recorded, and how a request finds its own again."""
