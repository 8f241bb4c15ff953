"""Fixtures of TLS: a couple of ends for each test, and none is left."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cutthrough.net.tls.context import TlsContext
    from tests.support.couple import Couple

Meet = Callable[..., "Couple"]


@pytest.fixture
def known() -> Iterator[Callable[["TlsContext"], int]]:
    """Makes contexts known, until the test ends."""
    from cutthrough.net.tls import transport as tls

    numbers: list[int] = []

    def know(context: "TlsContext") -> int:
        numbers.append(tls.put(context))
        return numbers[-1]

    yield know
    for number in numbers:
        tls.remove(number)


@pytest.fixture(params=["own", "libssl"])
def behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """The code that seals the bytes behind the handshake."""
    from cutthrough.net.tls import transport as tls

    tls.set_own_records(request.param == "own")
    yield
    tls.set_own_records(True)


@pytest.fixture
def meet(known: Callable[["TlsContext"], int]) -> Iterator[Meet]:
    from cutthrough.net.tls import transport as tls
    from cutthrough.net.tls.context import TlsServer
    from tests.support.certificates import client_context, localhost
    from tests.support.couple import Couple, pair_of

    made: list[Couple] = []

    def make(server: TlsServer | None = None, peer: object = None,
             **more: object) -> Couple:
        server = server or TlsServer([pair_of(localhost())])
        made.append(Couple(known(server), peer or client_context(), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert tls.stats()["open"] == tls.stats()["under_way"] == 0
