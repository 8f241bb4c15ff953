"""A connection at a socket pair: a carrier, and a client or an origin by h2."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.http2 import Peer, pair
from tests.support.http2_origin import Origin

transport = pytest.importorskip("cutthrough.http2.transport")


class Couple:
    def __init__(self, **bounds: int) -> None:
        from tests.doors.http2 import Carrier

        self.ours, self.theirs = pair()
        self.carrier = Carrier(self.ours.fileno(), **bounds)
        self.peer = Peer(self.theirs)
        self.theirs.settimeout(0.0)
        self.ended = False

    def flush(self) -> None:
        self.peer.flush()

    def hear(self) -> list[Any]:
        """Everything that the client has sent; returns the streams with something to
        do, each once."""
        self.peer.flush()
        found: list[Any] = []
        heard = "some"
        while heard == "some":
            heard, due = self.carrier.hear()
            found += [one for one in due if one not in found]
        assert heard == "all", heard
        self.look()
        return found

    def heard(self) -> str:
        """The same, and returns the last word."""
        heard = "some"
        while heard == "some":
            heard, _ = self.carrier.hear()
        return heard

    def look(self) -> None:
        """The client reads all bytes that have come."""
        while True:
            try:
                if not self.peer.read():
                    return
            except BlockingIOError:
                return

    def begin(self, *fields: tuple[str, str], ends: bool = True) -> tuple[int, Any]:
        number = self.peer.request(fields, ends)
        return number, self.hear()[-1]

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            for stream in self.carrier.lose():
                stream.close()
            for stream in self.carrier.streams:
                stream.close()
            self.carrier.end()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def couple() -> Iterator[Callable[..., Couple]]:
    made: list[Couple] = []

    def make(**bounds: int) -> Couple:
        made.append(Couple(**bounds))
        return made[-1]
    yield make
    for one in made:
        one.close()
    assert transport.count_open() == 0


class Way:
    """To an origin."""

    def __init__(self, *, credit: bool = True, most: int = 100, **bounds: int) -> None:
        from tests.doors.http2 import Carrier

        self.ours, self.theirs = pair()
        self.carrier = Carrier(self.ours.fileno(), asks=True, **bounds)
        self.theirs.settimeout(0.0)
        self.origin = Origin(self.theirs, credit=credit, streams=most)
        self.look()
        self.hear()

    def hear(self) -> list[Any]:
        """Everything that the origin has sent; returns the streams with something to
        do, each once."""
        self.origin.flush()
        found: list[Any] = []
        heard = "some"
        while heard == "some":
            heard, due = self.carrier.hear()
            found += [one for one in due if one not in found]
        assert heard == "all", heard
        self.look()
        return found

    def look(self) -> None:
        """The origin reads all bytes that have come."""
        with contextlib.suppress(BlockingIOError):
            while self.origin.read():
                pass

    def ask(self, *pieces: bytes) -> tuple[int, Any]:
        """A stream, and its number at the origin."""
        stream = self.carrier.ask()
        assert stream is not None
        for piece in pieces:
            assert stream.send(piece) == len(piece)
        self.look()
        return max(self.origin.questions), stream

    def close(self) -> None:
        self.carrier.lose()
        for stream in self.carrier.streams:
            stream.close()
        self.carrier.end()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def way() -> Iterator[Callable[..., Way]]:
    made: list[Way] = []

    def make(**bounds: Any) -> Way:
        made.append(Way(**bounds))
        return made[-1]
    yield make
    for one in made:
        one.close()
    assert transport.count_open() == 0
