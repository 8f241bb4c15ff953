"""The limit of open descriptors, and the connections that it allows."""

import resource

from cutthrough.config.config import ConfigError

# Descriptors that are not connections: interpreter, logs, epoll set, free pipes
RESERVED_FDS = 256
# … and the fewest with which a process starts, beside sockets and workers: its modules,
# pages of memory and channels take 40
LEAST_FDS = 64


def raise_nofile(sockets: int, workers: int) -> None:
    """Raises the limit of open files to the hard limit: a tunnel needs two. Raises
    ConfigError if that is too low to start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A worker costs a channel, and another one while it is replaced
    least = LEAST_FDS + sockets + 4 * workers
    if hard != resource.RLIM_INFINITY and hard < least:
        raise ConfigError("", "", f"this process may have {hard} open files, and needs "
                          f"at least {least}: raise the limit (ulimit -n, "
                          "LimitNOFILE=); a connection takes two")


def last_descriptor() -> int:
    """The number above which descriptors are not for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft - RESERVED_FDS, 32)


def most_connections() -> int:
    """The number of client connections that the descriptor limit allows: each may need
    two descriptors."""
    return last_descriptor() // 2
