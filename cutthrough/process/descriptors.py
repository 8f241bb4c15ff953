"""How many descriptors this process may open, and what that allows."""

import resource

# Descriptors that are not connections: the interpreter's, logs, the set, free pipes
RESERVED_FDS = 256


def raise_nofile() -> None:
    """Raises the limit of open files as far as we may: a tunnel needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """Client connections that the descriptor limit allows: each may need two."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max((soft - RESERVED_FDS) // 2, 16)
