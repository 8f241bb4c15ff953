"""Apps that pin an origin's certificate, and refuse ours."""

import ssl

import pytest

from tests.support.certificates import client_context
from tests.support.inside import ALL, ask, enter, origins

PINNED = ALL + 'pinned = "pass"\n'
BOTH = ("DNS:a.example", "DNS:b.example", "IP:127.0.0.1")


def app(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """Trusts the origins' own authority alone."""
    context = client_context(trusted=origins())
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def reject(proxy, client, port: int, host: str = "a.example", **more) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        enter(proxy, client, port, host, context=app(**more))


def passes(proxy, client, port: int, host: str = "a.example") -> None:
    client = enter(proxy, client, port, host, context=app())
    assert ask(client, host=host).body == b"ok"
    client.close()
