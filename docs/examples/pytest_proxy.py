"""A pytest fixture: a proxy for a test, and the destinations that the test requested.

Copy this file to conftest.py beside your tests. The hook is a closure: it records each
destination for the test, and refuses those that the test has closed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from cutthrough import Decision, Request, serve


@dataclass
class Seen:
    """What a test can check and change."""

    url: str = ""                            # the proxy's, for a client
    asked: list[tuple[str, int]] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)


@pytest.fixture
def proxy() -> Iterator[Seen]:
    """Runs a proxy beside the test, for clients that block."""
    seen = Seen()

    async def decide(request: Request) -> Decision:
        seen.asked.append((request.host, request.port))
        return Decision(request.host not in seen.closed)

    with serve(user="test", password="test", policy_hook=decide) as running:
        seen.url = running.url
        yield seen
