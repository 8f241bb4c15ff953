"""The options: their definition, the parsers of their values, and their sources."""
