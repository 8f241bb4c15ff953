"""Names: c-ares, the cache and the policy of questions."""
