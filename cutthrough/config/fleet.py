"""The options of limits that several programs share."""

from collections.abc import Iterator

from cutthrough.config.option import ConfigError


def contradictions_of_fleet(url: str, prefix: str, interval: float, expiry: float
                            ) -> Iterator[ConfigError]:
    """`interval`, `expiry`: seconds."""
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        yield ConfigError("", "fleet_url", "must be redis://host:port/db, the same "
                          "with rediss:// for TLS, or unix:///path")
    if not prefix:
        yield ConfigError("", "fleet_prefix", "is empty")
    if expiry < 5 * interval:
        yield ConfigError("", "fleet_expiry", "is less than five times "
                          "fleet_interval: one slow answer would drop the counts")
