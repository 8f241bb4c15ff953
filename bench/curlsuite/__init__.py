"""curl's own test suites, through this proxy and squid. See docs/peers-curl.md."""
