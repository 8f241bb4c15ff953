"""The limit of open descriptors, and the connections that it allows."""

import resource

# Descriptors that are not connections: interpreter, logs, epoll set, free pipes
RESERVED_FDS = 256


def raise_nofile() -> None:
    """Raises the limit of open files to the hard limit: a tunnel needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """The number of client connections that the descriptor limit allows: each may need
    two descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max((soft - RESERVED_FDS) // 2, 16)
