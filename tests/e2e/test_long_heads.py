"""Request heads of up to 256 KiB, if `max_head` permits them."""

import sqlite3

import pytest
from h2.connection import H2Connection

from tests.support.certificates import localhost
from tests.support.client import build_request
from tests.support.http2_listener import LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import ALL, ask, config, enter
from tests.support.origin import answer, echo
from tests.support.parents import parent
from tests.support.scripted_http2 import speak
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

LONG = 'max_head = "256KiB"\n'
OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEADS = "SELECT request_head FROM flows"
HERE = '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
FILTER = """
class Mark:
    async def on_request_head(self, flow):
        headers = flow.request.headers
        headers["X-Mark"] = str(sum(len(headers[f"x-{n:02}"]) for n in range(90)))
"""


def fields_of(octets: int, parts: int = 90) -> list[tuple[str, str]]:
    """So many octets of fields' lines, with the line ends and separators."""
    size = octets // parts - len("x-00: \r\n")
    sizes = [size] * (parts - 1) + [octets - (parts - 1) * (size + 8) - 8]
    return [(f"x-{n:02}", f"{n:02}" + "a" * (size - 2)) for n, size in enumerate(sizes)]


def lines_of(octets: int, parts: int = 90) -> list[str]:
    return [f"{name}: {value}" for name, value in fields_of(octets, parts)]


def intact(request, octets: int, parts: int = 90) -> bool:
    return all(request.get(name) == value for name, value in fields_of(octets, parts))


@pytest.fixture
def start(start_policy, keep_policy):
    def run(more: str = "", policy: str = HERE, **kinds):
        if not more and not kinds:
            return keep_policy(policy, LONG)
        return start_policy(policy, LONG + more, **kinds)
    return run


@pytest.mark.parametrize("parts", [1, 3, 90])
@pytest.mark.parametrize("octets", [60_000, 70_000, 100_000, 200_000, 261_600])
def test_a_long_head_passes(start, make_origin, dial, octets, parts):
    proxy, origin = start(), make_origin(answer(OKAY))
    client = dial(proxy)
    raw = build_request("POST", origin.url("/"), "Content-Length: 90000",
                        *lines_of(octets, parts), body=b"b" * 90_000)
    client.send(raw)
    assert client.read_response("POST").body == b"ok"
    # The next one of the client, in pieces, with its body close behind
    for at in range(0, len(raw), 30_011):
        client.send(raw[at:at + 30_011])
    assert client.read_response("POST").body == b"ok"
    assert len(origin.requests) == 2
    for request in origin.requests:
        assert intact(request, octets, parts) and request.body == b"b" * 90_000


def test_a_longer_one_is_refused(start, make_origin, dial):
    proxy, origin = start(), make_origin(answer(OKAY))
    short = len(build_request("GET", origin.url("/")))
    assert dial(proxy).get(origin.url("/"), *lines_of(262_144 - short)).status == 200
    assert dial(proxy).get(origin.url("/"), *lines_of(262_145 - short)).status == 431
    assert proxy.wait_log(2)[1]["reason"] == "head_too_large"
    assert len(origin.requests) == 1


def test_a_tunnel_with_a_long_head(start, make_origin, dial):
    proxy, origin = start(), make_origin(echo)
    client = dial(proxy)
    head = build_request("CONNECT", origin.authority, *lines_of(250_000))
    client.send(head + b"early")
    assert client.read_response("CONNECT").status == 200
    assert client.read_exact(5) == b"early"


def test_a_stranger_has_room_for_one(start, make_origin, dial):
    proxy, origin = start(), make_origin(answer(OKAY))
    client = dial(proxy)
    raw = build_request("GET", origin.url("/"), *lines_of(250_000), auth=None)
    client.send(raw)
    assert client.read_response("GET").status == 407


def test_it_is_captured_whole(start, make_origin, dial, tmp_path):
    database = tmp_path / "flows.db"
    policy = HERE + 'capture = "full"\n'
    proxy = start(f'capture_file = "{database}"\n', policy)
    origin = make_origin(answer(OKAY))
    assert dial(proxy).get(origin.url("/"), *lines_of(261_000)).status == 200

    def heads():
        if not database.exists():
            return []
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as base:
            try:
                return [row[0] for row in base.execute(HEADS)]
            except sqlite3.OperationalError:
                return []

    head = wait_until(heads, "a row")[0]
    assert all(line in head for line in lines_of(261_000))


def test_it_is_recorded_and_replayed(start, make_origin, dial, directory):
    folder = directory("sessions")
    keys = f'recording_directory = "{folder}"\n'
    origin, lines = make_origin(answer(OKAY)), lines_of(200_000)
    proxy = start(keys, HERE + 'recording = "record"\n')
    assert dial(proxy).get(origin.url("/"), *lines).body == b"ok"
    proxy.stop()
    proxy = start(keys, HERE + 'recording = "replay"\n')
    assert dial(proxy).get(origin.url("/"), *lines).body == b"ok"
    assert len(origin.requests) == 1


def test_by_a_parent(start_proxy, make_origin, dial):
    origin = make_origin(answer(OKAY))
    proxy = start_proxy(config=f'route = "corp"\n{LONG}' + parent(
        origin, plain="absolute", resolve="parent"))
    for octets in (100_000, 261_000):
        reply = dial(proxy).get("http://127.0.0.1:4711/", *lines_of(octets))
        assert reply.body == b"ok"
        assert intact(origin.requests[-1], octets)


def test_a_filter_reads_and_changes_it(start, make_origin, dial):
    policy = HERE + 'filters = ["mark"]\n[filters.mark]\ncode = "marking:Mark"\n'
    proxy = start(policy=policy, modules={"marking": FILTER})
    origin = make_origin(answer(OKAY))
    assert dial(proxy).get(origin.url("/"), *lines_of(200_000)).status == 200
    assert intact(origin.requests[0], 200_000)
    assert int(origin.requests[0].get("X-Mark")) > 199_000


def test_by_http2_to_the_proxy(start, make_origin, reach):
    proxy = start(table(localhost(), protocols='["http", "http2"]'))
    origin = make_origin(answer(OKAY))
    peer = reach(proxy)
    # HTTP/2 counts 32 octets more for each field
    for octets in (100_000, 200_000, 255_000):
        got = peer.wait(peer.get(origin.url("/"), LOGIN, *fields_of(octets)))
        assert (got.status, bytes(got.body)) == (200, b"ok")
        assert intact(origin.requests[-1], octets)
    got = peer.wait(peer.get(origin.url("/"), LOGIN, *fields_of(270_000)))
    assert got.status == 431
    # A field of 65 536 octets, the longest that the library reads
    got = peer.wait(peer.get(origin.url("/"), LOGIN, ("x", "a" * 65_536)))
    assert got.status == 431
    got = peer.wait(peer.get(origin.url("/"), LOGIN, ("x", "a" * 65_000)))
    assert got.status == 200


def test_by_http2_to_an_origin(start, make_origin, dial, monkeypatch):
    monkeypatch.setattr(H2Connection, "DEFAULT_MAX_HEADER_LIST_SIZE", 1 << 20)

    def say(speaker: Speaker, stream: int) -> None:
        fields = dict(speaker.questions[stream].fields)
        same = all(fields.get(name) == value for name, value in fields_of(200_000))
        speaker.answer(stream, [(":status", "200")], str(same).encode())

    proxy = start(config('origin_http2 = "auto"\n'), ALL)
    origin = make_origin(speak(say))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/", *lines_of(200_000)).body == b"True"
