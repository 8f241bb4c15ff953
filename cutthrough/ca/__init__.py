"""A certificate authority of one's own: its files, its leaves, and its trust stores."""
