PROTOCOLS: tuple[str, ...]
