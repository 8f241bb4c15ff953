"""The options of the one user that the configuration itself names."""

from collections.abc import Iterator, Sequence

from cutthrough.config.listeners import Listener, origin_of
from cutthrough.config.option import ConfigError
from cutthrough.config.values import is_placeholder


def contradictions_of_credentials(
        user: str, password: str, is_demonstration: bool,
        listeners: Sequence[Listener], listen: tuple[tuple[str, int], ...]
) -> Iterator[ConfigError]:
    """`listeners`: all of them; `listen`: the option, whose addresses come first."""
    outside = [n for n, listener in enumerate(listeners) if not listener.is_local]
    if user and not password:
        yield ConfigError("", "user", "a user without a password: give "
                          "--password-file, or CUTTHROUGH_PASSWORD")
    elif password and not user:
        yield ConfigError("", "password", "a password without a user: give --user")
    if is_demonstration and outside:
        first = listeners[outside[0]]
        key, path = origin_of(outside[0], listen)
        why = "is for load balancers" if first.proxy_protocol else "is not loopback"
        yield ConfigError("", key, f"{first.shown} {why}, and the demonstration "
                          "credentials username:password are for loopback only: "
                          "give --user and --password-file", path=path)
    if outside and is_placeholder(password):
        yield ConfigError("", "password", "is a well-known placeholder, and not "
                          "all addresses of listen are loopback")
