"""Which recording answers a request, and why none does."""
