"""Before the first request: PROXY headers, TLS, SOCKS, HTTP/2, the first bytes."""
