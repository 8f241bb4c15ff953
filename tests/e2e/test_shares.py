"""Whose memory a request, a part of one and a stranger's head take (R31, R32)."""

from tests.e2e.test_faults import serve_embedded
from tests.e2e.test_shedding import SMALL_BLOCK, held
from tests.support.client import build_request
from tests.support.origin import Origin
from tests.support.wait import wait_until


def test_a_request_that_is_whole_is_not_closed_for_its_own_head(
        loop_name, call, bounds):
    """R32: room for a head was made by closing the oldest part of a head. That was this
    request's own part: the request went on with memory that had been freed."""
    def journey(proxy) -> None:
        with Origin() as origin:
            head = build_request("GET", origin.url())
            guests = [call(proxy.port) for _ in range(2)]
            for guest in guests:
                assert guest.get(origin.url()).status == 200
            before = held("requests")
            for n, guest in enumerate(guests):
                guest.send(head[:-2])
                wait_until(lambda want=before + (n + 1) * SMALL_BLOCK:
                           held("requests") == want, "its part")
            bounds(before + 2 * SMALL_BLOCK, "requests")
            guests[0].send(head[-2:])
            assert guests[0].read_response().status == 200
            assert guests[1].read_response().status == 503
            guests[0].send(head)
            assert guests[0].read_response().status == 200
            assert proxy.worker.page.read()["faults"] == 0

    serve_embedded(loop_name, journey, access_log="off")
