"""A recording, and what is made of its parts: heads, bodies, templates, secrets."""
