"""The pump over records, and over TLS: tests of tests/net/test_relay.py.

Not those of splice, of urgent bytes and of looking before reading, which are the
kernel's, nor those that count the bytes of one read or one send of the kernel.
"""

from collections.abc import Callable, Iterator

import pytest

from cutthrough.net import buffers
from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.certificates import Pair
from cutthrough.net.tls.context import TlsServer
from tests.doors.net import OneWay
from tests.net.test_relay import (  # noqa: F401 - collected here
    test_an_end_waits_for_its_turn_behind_the_allowance,
    test_no_more_is_read_than_the_allowance,
    test_no_readiness_no_system_call,
    test_nothing_is_pushed_to_a_sink_that_has_gone,
    test_what_is_pushed_stands_before_what_is_read,
    test_what_was_read_arrives_and_a_direction_at_rest_holds_nothing,
    test_without_splice_bulk_is_copied_and_every_byte_arrives,
)
from tests.support.certificates import localhost
from tests.support.framing import FramedSocket
from tests.support.relays import TlsWay, Way, tcp_pair
from tests.support.relays import way as way


class FramedWay(Way):
    def __init__(self, transport: int, left: int = -1, splice: bool = True) -> None:
        client, self.inlet = tcp_pair()
        self.outlet, origin = tcp_pair()
        self.client, self.origin = FramedSocket(client), FramedSocket(origin)
        self.inlet.setblocking(False)
        self.outlet.setblocking(False)
        self.pump = OneWay(self.inlet.fileno(), self.outlet.fileno(), left, splice,
                           transport=transport)


@pytest.fixture(params=["framed", "tls"])
def make_way(framed, request) -> Iterator[Callable[..., Way]]:
    made: list[Way] = []
    is_tls = request.param == "tls"
    number = tls.put(TlsServer([Pair(*localhost().pem)])) if is_tls else 0

    def make(left: int = -1, splice: bool = True) -> Way:
        made.append(TlsWay(number, left, splice) if is_tls
                    else FramedWay(framed.KIND, left, splice))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert buffers.stats()["copy_blocks"] == buffers.stats()["head_blocks"] == 0
    if is_tls:
        tls.remove(number)
        assert tls.stats()["open"] == tls.stats()["under_way"] == 0
    assert framed.count_open() == 0
