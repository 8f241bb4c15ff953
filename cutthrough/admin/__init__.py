"""The admin listener: server, metrics, pages."""
