"""Ways to an origin: parents, functions of this process, connections that are open."""
