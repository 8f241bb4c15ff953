"""tlsfuzzer's scripts against our TLS and nginx's. See docs/peers-tls.md."""
