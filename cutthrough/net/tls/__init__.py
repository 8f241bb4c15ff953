"""TLS: libssl's handshake, records of our own, keys and certificates."""
