"""A recording comes before any way to the origin, also a connection that is there."""

import pytest

from cutthrough.recording.sessions.modes import State, write_state
from tests.support.inside import NAMES
from tests.support.origin import answer
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_pooled_connection_is_no_way_around_a_recording(
        start, folder, dial, make_origin):
    """The rule is known by the address, which the pooled connection has."""
    origin = make_origin(answer(OK))
    proxy = start("record", config=f"workers = 1\n{NAMES}")
    client = dial(proxy)
    url = f"http://a.example:{origin.port}/a"
    assert client.get(url).body == b"ok"
    wait_until(lambda: recorded(folder) == 1, "a recording")
    assert client.get(f"{url}?other").body == b"ok"
    write_state(folder, State("replay"))
    wait_until(lambda: "mode replay, " in proxy.stderr(), "replay")
    for _ in range(3):
        assert client.get(url).body == b"ok"
    assert len(origin.requests) == 2
    assert [one["reason"] for one in proxy.wait_log(5)][2:] == ["replayed"] * 3
