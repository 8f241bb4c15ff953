"""The truth table of docs/endings.md, row by row, on the real program (R34-R36)."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.client import Client, build_request
from tests.support.origin import Connection, Origin
from tests.support.proxy import Proxy
from tests.support.sockets import unsent
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def most_of(name: str) -> int:
    """The size that the kernel lets a socket's buffer grow to."""
    return int(Path(f"/proc/sys/net/ipv4/{name}").read_text().split()[2])


# More than all sockets, a block and a pipe can hold: the client is stuck
BIG = most_of("tcp_rmem") + 2 * most_of("tcp_wmem") + (4 << 20)


class Row(NamedTuple):
    state: str
    buffered: str
    side: str
    event: str
    reason: str
    client: str
    origin: str


def table() -> list[Row]:
    text = (Path(__file__).parents[2] / "docs" / "endings.md").read_text()
    text = text.partition("\n## ")[0]        # behind it stands every reason
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|")))
            for line in lines if not line.startswith("| state")]


class Case:
    """A client and an origin brought into a state, the rest of the answer ready."""

    def __init__(self, row: Row, client: Client, origin: Origin) -> None:
        self.row, self.client, self.origin = row, client, origin
        self.big = row.buffered == "yes"
        self.refused = False
        if row.state == "DELIVER":
            self.big = False        # a part of it waits in the kernel, for the client
        size = BIG if self.big else 1 << 20 if row.state == "DELIVER" else 10
        # an origin's bytes in this state, and the rest that it would still send
        self.said, self.rest = {
            "REQUEST, 100 given": (b"HTTP/1.1 100 Continue\r\n\r\n", b""),
            "RESPONSE": (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            "RESPONSE, half a head": (
                b"HTTP/1.1 200 OK\r\nConte", b"nt-Length: 2\r\n\r\nok"),
            "RELAY, by length": (
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size + 7)
                + b"x" * size, b"the end"),
            "RELAY, by chunks": (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                b"3\r\nend\r\n0\r\n\r\n"),
            "RELAY, until close": (
                b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * size, b"the end"),
            "TUNNEL": (b"x" * size, b"the end"),
            "HALF_CLOSED": (b"x" * size, b"the end"),
            "DELIVER": (b"x" * size, b""),
        }.get(row.state, (b"", b""))

    def bring_about(self) -> None:
        state, client, url = self.row.state, self.client, self.origin.url()
        if state == "IDLE":
            return
        if state == "HEAD":
            client.send(build_request("GET", url)[:-3])
        elif state == "LINGER":
            head = build_request("POST", url, "Content-Length: 9", auth=None)
            client.send(head)
            assert client.read_response().status == 407
        elif state in ("TUNNEL", "HALF_CLOSED", "DELIVER"):
            client.tunnel(self.origin.authority)
        elif state == "REQUEST":
            client.send(build_request("POST", url, "Content-Length: 10") + b"abc")
        elif state in ("REQUEST, 100 awaited", "REQUEST, 100 given"):
            client.send(build_request(
                "POST", url, "Content-Length: 10", "Expect: 100-continue"))
        elif state == "RELAY, until close":     # else it would come in chunks
            client.send(build_request(
                "POST", url, "Content-Length: 0", "Connection: close"))
        else:
            client.send(build_request("POST", url, "Content-Length: 0"))
        if state in ("HEAD", "LINGER"):
            return
        self.origin.wait_connections(1)
        self.reach_peer()
        if state == "DELIVER":
            wait_until(lambda: unsent(self.origin.port) == 0, "all of it at the proxy")
            self.peer.reset()
            # A caller behind the reset has been answered: so the reset has been met
            with Client(self.client.sock.getpeername()[1]) as late:
                late.half_close()
                assert late.at_eof()
        elif self.said and not self.big:
            wait_until(lambda: self.seen_by_client(), "the beginning of the answer")
        if state == "HALF_CLOSED":
            client.half_close()
            assert self.peer.at_eof()

    def reach_peer(self) -> None:
        peer = self.peer
        if self.row.state == "REQUEST":
            peer.read_until(b"abc")
        elif self.row.state not in ("TUNNEL", "HALF_CLOSED", "DELIVER"):
            peer.read_head()
        if self.big:
            self.speaker = threading.Thread(target=self.speak)
            self.speaker.start()
        else:
            peer.send(self.said)

    def speak(self) -> None:
        try:
            self.peer.send(self.said)
            if self.row.client == "whole":
                self.peer.send(self.rest)
                self.peer.half_close()
        except (ConnectionResetError, BrokenPipeError):
            self.refused = True     # the kernel reports it once, so it is kept here
        except OSError:
            pass                    # closed by the test, on its own side

    def seen_by_client(self) -> bool:
        if "half a head" in self.row.state:
            return True             # nothing of half a head can have been passed on
        if self.row.state == "REQUEST, 100 given":
            return self.client.received.endswith(b"\r\n\r\n") or not self.client.fill()
        want = 10 if "chunks" not in self.row.state else 3
        body = bytes(self.client.received).partition(b"\r\n\r\n")[2]
        if self.row.state in ("TUNNEL", "HALF_CLOSED"):
            body = bytes(self.client.received).rpartition(b"\r\n")[2]
        return len(body) >= want or not self.client.fill()

    @property
    def peer(self) -> Connection:
        return self.origin.connections[-1]

    def happen(self) -> None:
        one = self.client if self.row.side == "client" else self.peer
        if self.big and self.row.event == "RST" and one is self.peer:
            self.wait_stuck()
        if self.row.event == "RST":
            one.reset()
        elif self.row.event == "FIN" and not (self.big and one is self.peer):
            one.half_close()
        elif self.row.event == "FIN" and self.row.client == "short":
            self.wait_stuck()
            self.peer.half_close()

    def wait_stuck(self) -> None:
        """Until the origin cannot send any more: every buffer on the way is full."""
        sent = -1

        def is_still() -> bool:
            nonlocal sent
            before, sent = sent, unsent(self.origin.port)
            return sent > 0 and sent == before

        wait_until(is_still, "every buffer on the way full")

    def go_on(self) -> None:
        """The side that lives sends the rest, if the row has it answered whole."""
        if self.row.client == "whole":
            if self.row.state == "TUNNEL":
                assert self.peer.at_eof()
            self.peer.send(self.rest)
            if "close" in self.row.state or self.row.state == "TUNNEL":
                self.peer.half_close()


def see_client(case: Case) -> str:
    """The client's view, in the table's words."""
    want = case.row.client
    if want == "-":
        return "-"
    if want.isdigit():
        return str(case.client.read_response().status)
    got = bytearray(case.client.received)
    end = "eof"
    try:
        if want == "whole" and "close" not in case.row.state and (
                case.row.state != "TUNNEL"):
            body = case.said.partition(b"\r\n\r\n")[2] + case.rest
            if "head" in case.row.state or case.row.state == "RESPONSE":
                body = b"ok"
            received = case.client.received
            while not received.endswith(body[-30:]) and case.client.fill():
                pass
            return "whole" if len(received) >= len(body) else "short"
        before = len(got)
        while case.client.fill():
            case.client.pending.clear()
    except ConnectionResetError:
        end = "reset"
    got = bytearray(case.client.received)
    if want == "whole":
        body = case.said.partition(b"\r\n\r\n")[2] or case.said
        return "whole" if end == "eof" and got.endswith(b"the end") and (
            len(got) >= len(body)) else f"{len(got)} bytes, {end}"
    if want == "cut":
        return "cut" if end == "reset" and len(got) <= len(case.said) + 64 else end
    if want == "short":
        return "short" if end == "eof" and before < len(got) < len(case.said) else end
    return end if len(got) == before else f"{len(got) - before} bytes, {end}"


def see_origin(case: Case) -> str:
    if case.row.origin == "-":
        return "-"
    if case.row.state == "TUNNEL" and case.row.event == "FIN":
        return "eof"                # go_on has seen it, before the rest was sent
    if case.big:
        case.speaker.join(10)
        if case.refused:
            return "reset"
    try:
        while case.peer.fill():
            pass
        if case.row.state == "HALF_CLOSED":     # behind an end only a write shows it
            wait_until(lambda: case.peer.send(b"x"), "a reset")
        return "eof"
    except (ConnectionResetError, BrokenPipeError):
        return "reset"


NOT_ITS_REASON = {"IDLE": "head", "LINGER": "linger", "DELIVER": "half-closed",
                  "write_timeout": "idle"}


@pytest.fixture(scope="session")
def impatient(
    loop_name: str, directory: Callable[[str], Path]
) -> Iterator[Callable[[Row], Proxy]]:
    """A proxy with a short deadline for this row alone: a stall of the host elsewhere
    on the way to it meets no deadline."""
    begun: dict[str, Proxy] = {}

    def begin(row: Row) -> Proxy:
        usual = row.reason.removesuffix("_timeout").replace("_", "-")
        name = NOT_ITS_REASON.get(row.state, NOT_ITS_REASON.get(row.reason, usual))
        if name not in begun:
            own = directory(f"impatient-{name}")
            begun[name] = Proxy(own, f"--{name}-timeout=700ms", loop=loop_name)
        begun[name].mark()
        return begun[name]

    yield begin
    for proxy in begun.values():
        proxy.stop()


def rows(silent: bool) -> pytest.MarkDecorator:
    found = [row for row in table() if (row.event == "silence") == silent]
    return pytest.mark.parametrize("row", found, ids=lambda row: "-".join(row[:4]))


@rows(silent=False)
def test_an_event_ends_it_as_the_table_says(
    proxy, make_origin, dial, row
) -> None:
    check(row, proxy, make_origin, dial)


@rows(silent=True)
def test_silence_ends_it_as_the_table_says(impatient, make_origin, dial, row) -> None:
    check(row, impatient(row), make_origin, dial)


def check(row: Row, proxy: Proxy, make_origin, dial) -> None:
    origin = make_origin(lambda conn: conn.origin.closing.wait(30))
    client = dial(proxy, receive_buffer=4096 if row.buffered == "yes" else 0)
    case = Case(row, client, origin)
    case.bring_about()
    case.happen()
    if row.buffered == "yes" and row.event == "silence":
        proxy.wait_log(1)               # reading meanwhile would be no silence
    if not case.big:
        case.go_on()
    assert see_client(case) == row.client
    if row.state == "TUNNEL" and row.side == "origin":
        client.close()                  # a tunnel ends when both sides have
    assert see_origin(case) == row.origin
    if case.big:
        case.speaker.join(10)
    if row.reason == "-":
        assert proxy.log() == []
    else:
        assert proxy.wait_log(1)[0]["reason"] == row.reason
