"""The kinds of connections under way at a reload, and which of them each change ends.
If `cut` asks for that, a tunnel ends, a request that becomes one, and all inside an
opened tunnel. A plain request goes on, and the next one is judged by the new policy."""

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import with_policy
from tests.support.certificates import TlsSocket, client_context, localhost
from tests.support.client import CREDENTIALS, Client, build_request
from tests.support.http2 import Peer
from tests.support.inside import certificate, config, enter, over_tls, send
from tests.support.origin import Connection, Origin
from tests.support.proxy import Proxy
from tests.support.socks import SocksClient
from tests.support.socks_udp import Association, Echo
from tests.support.stream import Closed
from tests.support.tls_listener import table
from tests.support.users import hash_of

pytestmark = pytest.mark.any_loop

GATES = """
import asyncio, pathlib

class Hold:
    async def on_connect(self, flow):
        while not pathlib.Path(__file__).with_name("open").exists():
            await asyncio.sleep(0.01)

class Look:
    async def on_websocket_message(self, flow, message):
        pass
"""
LISTENERS = ('[[listeners]]\naddress = "127.0.0.1:0"\nudp = true\n'
             'protocols = ["http", "socks5"]\n')
OFFER = ("Connection: Upgrade", "Upgrade: websocket")
FRAME, ANSWER = b"\x82\x82\0\0\0\0hi", b"\x82\x02hi"
MQTT = b"\x10\x0c\0\4MQTT\4\2\0\x3c\0\0"
LOGIN = ("proxy-authorization", CREDENTIALS)
HASH, OTHER_HASH = hash_of("pass:word"), hash_of("another")
CUT = "cut = true\n"
ENDS = (Closed, ConnectionError, ssl.SSLError)


class World:
    """A proxy, its origins, and a policy of texts that a change replaces."""

    def __init__(self, folder: Path, loop: str, stack: contextlib.ExitStack,
                 cut: str) -> None:
        self.more = threading.Event()       # what has waited for the change goes on
        self.stack, self.folder = stack, folder
        self.texts = {"user": f'users.user.password = "{HASH}"\n', "first": "",
                      "hosts": 'hosts = ["a.example"]\n', "cut": cut,
                      "tls": "intercept"}
        self.options = 'address_floor = "off"\nuser = ""\npassword = ""\n'
        scripts = dict.fromkeys(("plain", "held", "looked", "peeked"), self.script)
        scripts |= {name: over_tls(self.script, certificate("DNS:a.example"), alpn)
                    for name, alpn in (("tls", ("http/1.1",)), ("bytes", ()))}
        self.ports = {name: stack.enter_context(Origin(script)).port
                      for name, script in scripts.items()}
        self.listeners = LISTENERS + table(localhost(), protocols='["http", "http2"]')
        self.proxy: Proxy = stack.enter_context(with_policy(
            folder, loop, self.policy(), config(self.options) + self.listeners,
            modules={"gates": GATES}))
        stack.callback(self.more.set)

    def policy(self) -> str:
        texts = self.texts
        rules = {"held": 'filters = ["hold"]\n', "looked": 'filters = ["look"]\n',
                 "peeked": 'protocol = ["ssh"]\n', "tls": f'tls = "{texts["tls"]}"\n',
                 "bytes": f'tls = "{texts["tls"]}"\n'}
        return "".join((
            'filters.hold = { code = "gates:Hold", budget = "30s" }\n'
            'filters.look = { code = "gates:Look" }\n', texts["user"], texts["first"],
            *(f'[[rules]]\naction = "allow"\nports = [{self.ports[name]}]\n'
              + texts["hosts"] + texts["cut"] + more for name, more in rules.items()),
            '[[rules]]\naction = "allow"\n', texts["hosts"], texts["cut"]))

    def change(self, **texts: str) -> None:
        self.texts |= texts
        self.proxy.policy.write_text(self.policy())
        assert "refused" not in self.proxy.hup()

    def reload(self, old: str, new: str) -> None:
        """Replaces this in the configuration."""
        text = self.proxy.config_file.read_text()
        assert old in text
        self.proxy.config_file.write_text(text.replace(old, new))
        assert "refused" not in self.proxy.hup()

    def script(self, conn: Connection) -> None:
        while conn.fill():
            if not conn.pending.startswith((b"GET", b"PUT")):
                conn.send(conn.take(len(conn.pending)))
                continue
            path = conn.read_request().target.rpartition("/")[2]
            if path in ("late", "silent"):
                self.more.wait(30)
            if path in ("late", "socket"):
                conn.send(b"HTTP/1.1 101 Switching Protocols\r\n"
                          b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                while conn.read_exact(len(FRAME)):
                    conn.send(ANSWER)
            elif path == "events":
                conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                          b"1\r\na\r\n")
                self.more.wait(30)
                conn.send(b"1\r\nb\r\n0\r\n\r\n")
            else:
                conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def at(self, name: str = "plain") -> str:
        return f"a.example:{self.ports[name]}"

    def dial(self) -> SocksClient:
        return self.stack.enter_context(SocksClient(self.proxy.ports[0]))

    def dial_http2(self) -> Peer:
        sock = self.stack.enter_context(
            socket.create_connection(("127.0.0.1", self.proxy.ports[1]), 10))
        return shaken(TlsSocket(sock, http2_context(), "localhost"))

    def begin(self, path: str, *fields: str, name: str = "plain", method: str = "GET",
              body: bytes = b"") -> Client:
        """A client that has sent this much of a plain request."""
        client = self.dial()
        client.send(build_request(
            method, f"http://{self.at(name)}/{path}", *fields, body=body))
        return client

    def inside(self, name: str = "tls") -> Client:
        return enter(self.proxy, self.dial(), self.ports[name])

    def begin_inside(self, path: str, *fields: str) -> Client:
        client = self.inside()
        send(client, "GET", f"/{path}", *fields)
        return client


def http2_context() -> ssl.SSLContext:
    context = client_context()
    context.set_alpn_protocols(["h2"])
    return context


def shaken(sock: TlsSocket) -> Peer:
    sock.shake()
    peer = Peer(sock)
    peer.flush()
    return peer


# What a client says when everything has gone on: "on", "cut", or a refusal's status.

def of_echo(client: Client, sent: bytes = b"zz", back: bytes = b"") -> str:
    client.send(sent)
    return "on" if client.read_exact(len(back or sent)) == (back or sent) else "other"


def of_answer(client: Client) -> str:
    status = client.read_response().status
    return "on" if status in (101, 200) else str(status)


def of_events(client: Client) -> str:
    client.read_until(b"0\r\n\r\n")
    return "on"


def of_stream(peer: Peer, stream: int) -> str:
    return "on" if peer.wait(stream).ended else "cut"


# Each begins one of its kind, and returns what asks it later.

def tunnel(w: World, client: Client | None = None) -> Callable[[], str]:
    client = client or w.dial().tunnel(w.at())
    assert of_echo(client) == "on"
    return lambda: of_echo(client)


def tunnel_by_socks(w: World) -> Callable[[], str]:
    return tunnel(w, w.dial().socks_tunnel(w.at()))


def bytes_inside(w: World) -> Callable[[], str]:
    client = w.inside("bytes")
    assert of_echo(client, MQTT) == "on"
    return lambda: of_echo(client)


def tunnel_by_http2(w: World) -> Callable[[], str]:
    peer = w.dial_http2()
    stream = peer.connect(w.at(), LOGIN)
    assert peer.wait_head(stream).status == 200

    def ask() -> str:
        peer.send(stream, b"zz")
        peer.wait_body(stream, 2)
        return "cut" if peer.answers[stream].is_over else "on"
    return ask


def websocket(w: World, client: Client | None = None,
              name: str = "plain") -> Callable[[], str]:
    client = client or w.begin("socket", *OFFER, name=name)
    assert client.read_response().status == 101
    assert of_echo(client, FRAME, ANSWER) == "on"
    return lambda: of_echo(client, FRAME, ANSWER)


def websocket_of_messages(w: World) -> Callable[[], str]:
    return websocket(w, name="looked")


def websocket_inside(w: World) -> Callable[[], str]:
    return websocket(w, w.begin_inside("socket", *OFFER))


def late_websocket(w: World) -> Callable[[], str]:
    client = w.begin("late", *OFFER)
    return lambda: of_answer(client)


def late_websocket_inside(w: World) -> Callable[[], str]:
    client = w.begin_inside("late", *OFFER)
    return lambda: of_answer(client)


def held_tunnel(w: World) -> Callable[[], str]:
    client = w.dial()
    client.send(build_request("CONNECT", w.at("held"), host=w.at("held")))

    def ask() -> str:
        status = client.read_response("CONNECT").status
        return "on" if status == 200 else str(status)
    return ask


def peeked_tunnel(w: World) -> Callable[[], str]:
    client = w.dial().tunnel(w.at("peeked"))
    return lambda: of_echo(client, b"SSH-2.0-a\r\n")


def events(w: World, client: Client | None = None) -> Callable[[], str]:
    client = client or w.begin("events")
    client.read_until(b"1\r\na\r\n")
    return lambda: of_events(client)


def events_inside(w: World) -> Callable[[], str]:
    return events(w, w.begin_inside("events"))


def stream(w: World) -> Callable[[], str]:
    return of_peer(w.dial_http2(), f"http://{w.at()}/events", LOGIN)


def stream_inside(w: World) -> Callable[[], str]:
    client = w.dial().tunnel(w.at("tls"))
    return of_peer(shaken(TlsSocket(client.sock, http2_context(), "a.example")),
                   "https://a.example/events")


def of_peer(peer: Peer, url: str, *fields: tuple[str, str]) -> Callable[[], str]:
    number = peer.get(url, *fields)
    assert peer.wait_body(number, 1) == b"a"
    return lambda: of_stream(peer, number)


def silence(w: World) -> Callable[[], str]:
    client = w.begin("silent")
    return lambda: of_answer(client)


def silence_inside(w: World) -> Callable[[], str]:
    client = w.begin_inside("silent")
    return lambda: of_answer(client)


def upload(w: World) -> Callable[[], str]:
    client = w.begin("put", "Content-Length: 4", method="PUT", body=b"ab")

    def ask() -> str:
        client.send(b"cd")
        return of_answer(client)
    return ask


def next_request(w: World) -> Callable[[], str]:
    client = w.begin("now")
    assert of_answer(client) == "on"

    def ask() -> str:
        client.send(build_request("GET", f"http://{w.at()}/now"))
        return of_answer(client)
    return ask


def next_inside(w: World) -> Callable[[], str]:
    client = w.begin_inside("now")
    assert of_answer(client) == "on"

    def ask() -> str:
        send(client, "GET", "/now")
        return of_answer(client)
    return ask


def next_datagram(w: World) -> Callable[[], str]:
    client = w.dial()
    assert client.log_in() == 0
    echo = w.stack.enter_context(Echo())
    one = Association(client)
    w.stack.enter_context(one.sock)
    authority = f"a.example:{echo.port}"
    assert one.ask(authority, b"a") == b"a"

    def ask() -> str:
        one.send(authority, b"b")
        return "cut" if one.is_silent(0.2) else "on"
    return ask


TUNNELS = (tunnel, tunnel_by_socks, tunnel_by_http2, websocket, websocket_of_messages)
LATE = (late_websocket, held_tunnel, peeked_tunnel)
INSIDE = (bytes_inside, websocket_inside, late_websocket_inside, events_inside,
          stream_inside, silence_inside)
PLAIN = (events, stream, silence, upload)
NEXT = (next_request, next_inside, next_datagram)
KINDS = (*TUNNELS, *LATE, *INSIDE, *PLAIN, *NEXT)
#: A refusal has a status as long as the client waits for its answer.
WAITING = (late_websocket, held_tunnel, late_websocket_inside, silence_inside)
ALL = (*TUNNELS, *LATE, *INSIDE)


class Change(NamedTuple):
    """`ends`: kinds; `last`: what becomes of the next request, of one inside an open
    interception, and of a datagram; `reasons`: of the log, without ok."""

    make: Callable[[World], Any]
    ends: tuple = ()
    last: tuple[str, str, str] = ("on", "on", "on")
    reasons: frozenset[str] = frozenset()


def expire(w: World) -> None:
    """In the time of a running policy."""
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.3)
    w.change(user=w.texts["user"] + f"users.user.expires = {end.isoformat()}\n")
    w.proxy.wait_reason("destination_denied")


def has_texts(**texts: str) -> Callable[[World], None]:
    return lambda w: w.change(**texts)


def has_option(name: str, old: str, new: str) -> Callable[[World], None]:
    return lambda w: w.reload(f"{name} = {old}", f"{name} = {new}")


def reasons(*labels: str) -> frozenset[str]:
    return frozenset(labels)


DENIED = reasons("destination_denied")
CHANGES = {
    "nothing": Change(has_texts(first='default = "report"\n')),
    "a rule is gone": Change(
        has_texts(hosts='hosts = ["c.example"]\n'), ALL, ("403", "403", "cut"), DENIED),
    "no cut": Change(has_texts(first='[[rules]]\naction = "deny"\n'), (),
                     ("403", "403", "cut"), DENIED),
    "the user is gone": Change(      # no 407 inside: its credentials are the origin's
        has_texts(user=f'users.bob.password = "{HASH}"\n'), ALL, ("407", "cut", "cut"),
        DENIED | {"auth_failed"}),
    "the user's time is over": Change(
        expire, ALL, ("407", "cut", "cut"), DENIED | {"auth_expired"}),
    "another password": Change(
        has_texts(user=f'users.user.password = "{OTHER_HASH}"\n'), (),
        ("407", "on", "on"), reasons("auth_failed")),
    "upgrades are denied": Change(
        has_texts(first='[[rules]]\naction = "deny"\nmethods = ["UPGRADE"]\n'
                        "cut = true\n"),
        (websocket, websocket_of_messages, late_websocket, websocket_inside,
         late_websocket_inside), reasons=DENIED),
    "TLS is refused": Change(
        has_texts(tls="refuse"), INSIDE, ("on", "403", "on"), DENIED),
    "TLS passes": Change(has_texts(tls="pass")),
    "the floor": Change(
        has_option("address_floor", '"off"', '"on"'), ALL, ("403", "403", "cut"),
        DENIED | {"address_denied"}),
    "ports of CONNECT": Change(
        has_option("connect_ports", '"any"', "[443]"),
        (tunnel, tunnel_by_socks, tunnel_by_http2, held_tunnel, peeked_tunnel, *INSIDE),
        ("on", "403", "cut"), DENIED | {"port_denied"}),
    "lower limits": Change(
        has_texts(first="[limits.default]\ntunnels = 1\nconnections = 1\n"),
        (late_websocket, held_tunnel, late_websocket_inside), ("429", "429", "on"),
        reasons("user_limit"))}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_reload_ends(name, loop_name, directory, opened) -> None:
    """Tunnels that `connect_ports` refuses ran on, and so did a WebSocket inside an
    interception whose 101 came after the reload."""
    change = CHANGES[name]
    w = World(directory("proxy"), loop_name, opened, "" if name == "no cut" else CUT)
    asked = {kind: kind(w) for kind in KINDS}
    change.make(w)
    w.more.set()
    (w.folder / "open").touch()
    seen = {}
    for kind, ask in asked.items():
        try:
            seen[kind.__name__] = ask()
        except ENDS:
            seen[kind.__name__] = "cut"
    refused = "429" if "user_limit" in change.reasons else "403"
    expected = {kind.__name__: "on" if kind not in change.ends else
                refused if kind in WAITING else "cut" for kind in KINDS}
    expected |= {kind.__name__: word for kind, word in zip(
        NEXT, change.last, strict=True)}
    assert seen == expected
    for reason in change.reasons:
        w.proxy.wait_reason(reason)
    assert {record["reason"] for record in w.proxy.log()} <= {"ok", *change.reasons}
