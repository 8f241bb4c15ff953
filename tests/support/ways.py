"""The ways into a proxy, for the matrix of R41: a door, and its protocol."""

import base64
import contextlib
import functools
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cutthrough.outcome import NAMES, TABLE
from tests.support.certificates import TlsSocket, authority, client_context, localhost
from tests.support.client import Client
from tests.support.http2_stream import StreamSocket
from tests.support.network import OWN_IPV6
from tests.support.proxy import Proxy
from tests.support.socks import (
    ASSOCIATE,
    GRANTED,
    NONE,
    SocksClient,
    command,
    datagram,
)
from tests.support.stream import Closed
from tests.support.wait import wait_until
from tests.wire.twin_proxy import build_binary, build_line, build_tlv

PASSWORD = "secret"

#: A listener each, in this order.
DOORS = ("plain", "tls", "certificate", "shared", "balanced", "http2", "redirect",
         "redirect6", "tproxy", "tproxy6", "unix")
#: Those that nftables brings connections to, of clients that know of no proxy.
INTERCEPTING = ("redirect", "redirect6", "tproxy", "tproxy6")

#: Two destinations in each form of address.
FORMS = {"name": ("yes.test", "no.test"), "IPv4": ("127.0.0.1", "127.0.0.2"),
         "IPv6": ("::1", OWN_IPV6)}
#: What the names resolve to.
ADDRESSES = {"yes.test": "127.0.0.1", "no.test": "127.0.0.3"}
OVERRIDES = "dns_overrides = {}\n".format(
    [f"{name}={address}" for name, address in ADDRESSES.items()])

UPGRADE = ("Connection: upgrade", "Upgrade: websocket")

#: The tunnel is granted, and ends when its first bytes are known.
BY_FIRST_BYTES = ("protocol_denied", "sni_denied", "ja4_denied", "tls_refused")
CUT = -1

#: Whose datagrams are lost, instead of an answer.
BY_DATAGRAM = ("destination_denied", "address_denied", "port_denied")


class Ask(NamedTuple):
    """One request. `host` and `port` are numbers of destinations, `network` is the
    client's."""

    host: int = 0
    port: int = 0
    user: str | None = "ann"
    password: str = PASSWORD
    network: int = 1
    #: A ClientHello that is sent in the tunnel, instead of a request: of TLS to the
    #: destination ("match"), to another server ("other"), or by a client without
    #: TLS 1.3 ("old")
    hello: str = ""
    #: The VPC endpoint in a PROXY header with TLVs
    vpce: str = ""
    #: Of a request that is no tunnel's
    path: str = "/"
    #: Of a request in a tunnel that is opened. The answer is its status if it is
    #: refused
    inside: str = ""
    #: The server's name there, if it is not the destination's host
    server: str = ""


class Way(NamedTuple):
    door: str
    dialect: str        # CONNECT, GET, UPGRADE, SOCKS5, SOCKS4, UDP, TUNNEL
    form: str

    @property
    def is_tunnel(self) -> bool:
        """Whether a rule compares it as a CONNECT."""
        return self.dialect not in ("GET", "UPGRADE")

    @property
    def has_tls(self) -> bool:
        """On a port that both share, HTTP comes in TLS and SOCKS without."""
        return self.door in ("tls", "certificate", "http2") or (
            self.door == "shared" and self.dialect in ("CONNECT", "GET", "UPGRADE"))

    @property
    def logs_in(self) -> bool:
        """Whether a password names the user."""
        return self.dialect != "SOCKS4" and self.door != "certificate" and (
            not self.is_intercepted)

    @property
    def is_intercepted(self) -> bool:
        return self.door in INTERCEPTING

    @property
    def stays(self) -> bool:
        """Whether its connection stays the user's behind the answer; a stream ends."""
        return self.door != "http2" or self.is_tunnel

    @property
    def greets(self) -> bool:
        """Whether a ClientHello is the request itself."""
        return self.dialect == "TUNNEL" and self.form == "name"

    def can(self, ask: Ask) -> bool:
        if self.is_intercepted and ask.hello:
            return self.greets and ask.hello == "old"
        return self.door != "certificate" or ask.user is not None

    def user(self, ask: Ask) -> str | None:
        """A certificate counts with any protocol."""
        return ask.user if self.logs_in or self.door == "certificate" else None

    def client(self, ask: Ask) -> str:
        if self.door == "unix":
            return f"unix:{os.getuid()}"
        number = DOORS.index(self.door) + 1
        if self.door.endswith("6"):
            return f"2001:db8:77:{ask.network}::{number:x}"
        return f"127.{ask.network}.0.{number}"

    def host(self, ask: Ask) -> str:
        return FORMS[self.form][ask.host]

    def first_reason(self, reason: str) -> str:
        """The reason of this way, if no rule is consulted: there are no datagrams."""
        is_served = self.dialect != "UDP" or self.door != "unix" or (
            reason.startswith("auth_"))
        return reason if is_served else "unsupported_command"

    def owed(self, reason: str) -> int | None:
        """The client's answer: a status, a code of SOCKS, or None for silence."""
        row = TABLE[NAMES[reason]]
        if reason in BY_FIRST_BYTES and self.dialect != "TUNNEL":
            return CUT
        if self.dialect == "SOCKS4":
            return 90 if reason == "ok" else 91
        if self.dialect == "UDP" and reason in BY_DATAGRAM:
            return None
        if self.dialect == "TUNNEL":
            return 0 if reason == "ok" else None
        if self.dialect in ("SOCKS5", "UDP"):
            return row.socks
        return row.status or 200

    def logged(self, ask: Ask, reason: str, port: int) -> list[tuple]:
        """The lines in the access log; see `columns_of`."""
        row = TABLE[NAMES[reason]]
        client = self.client(ask)
        is_unknown = row.label in ("auth_failed", "auth_expired")
        user = None if is_unknown else self.user(ask)
        if is_unknown and self.dialect in ("SOCKS5", "UDP"):
            # The request comes after the login
            return [(client, user, "SOCKS5", None, 0, row.status, reason)]
        if self.dialect != "UDP":
            method = "GET" if self.dialect == "UPGRADE" else self.dialect
            status = 0 if method == "TUNNEL" else row.status or 200
            return [(client, user, method, self.host(ask), port, status, reason)]
        if reason == "ok" or reason in BY_DATAGRAM:
            lines = [(client, user, "UDP", None, 0, 200, "ok")]
            if reason != "ok":
                lines.append((client, user, "UDP", self.host(ask), port, 0, reason))
            return lines
        return [(client, user, "UDP", None, 0, row.status, reason)]


COLUMNS = ("client", "user", "method", "host", "port", "status", "reason")


def columns_of(record: dict) -> tuple:
    return tuple(record[name] for name in COLUMNS)


def all_ways() -> Iterator[Way]:
    """Each form of address at the first door, one form at the others."""
    for dialect in ("GET", "UPGRADE", "TUNNEL"):
        for form in ("name", "IPv4"):
            yield Way("redirect", dialect, form)
    for dialect in ("GET", "TUNNEL"):
        yield Way("redirect6", dialect, "IPv6")
        yield Way("tproxy", dialect, "name")
        yield Way("tproxy6", dialect, "IPv6")
    for door in DOORS:
        if door in INTERCEPTING:
            continue
        if door == "http2":                 # a stream each
            yield from (Way(door, dialect, "name") for dialect in ("CONNECT", "GET"))
            continue
        for dialect in ("CONNECT", "GET", "UPGRADE", "SOCKS5", "UDP"):
            for form in FORMS if door == "plain" else ("name",):
                yield Way(door, dialect, form)
        yield Way(door, "SOCKS4", "IPv4")
        yield Way(door, "SOCKS4", "name")


WAYS = tuple(all_ways())


def listeners(path: Path) -> str:
    """The tables of a configuration with every door; `path` is the unix socket's.

    Without CAP_NET_ADMIN there is no tproxy. The unix socket has no port, so the ports
    have the numbers of DOORS either way."""
    made = localhost()
    port = '"127.0.0.1:0"'
    tls = {"certificates": f'["{made.certificate}"]',
           "certificate_keys": f'["{made.key}"]'}
    own: dict[str, dict[str, str]] = {
        "plain": {"address": port},
        "tls": {"address": port, **tls},
        "certificate": {
            "address": port, **tls, "client_certificate": '"required"',
            "client_ca": f'"{authority().own.certificate}"'},
        "shared": {"address": port, **tls,
                   "protocols": '["http", "socks5", "socks4", "tls"]'},
        "http2": {"address": port, **tls, "protocols": '["http", "http2"]',
                  "udp": "false"},
        "balanced": {"address": port, "proxy_protocol": "true",
                     "auth_none_from": '["127.0.0.0/8"]'},
        "unix": {"address": f'"unix:{path}"'}}
    for door in INTERCEPTING:
        is_ipv6 = door.endswith("6")
        own[door] = {
            "address": '"[::1]:0"' if is_ipv6 else port,
            "transparent": '"{}"'.format(door.removesuffix("6")),
            "auth_none_from":
                '["2001:db8:77::/48"]' if is_ipv6 else '["127.0.0.0/8"]',
            "protocols": '["http"]', "udp": "false"}
    doors = [door for door in DOORS
             if may_be_transparent() or not door.startswith("tproxy")]
    usual = {"protocols": '["http", "socks5", "socks4"]', "udp": "true",
             "auth": '"none"'}
    return "".join(
        "[[listeners]]\n" + "".join(f"{key} = {value}\n"
                                    for key, value in {**usual, **own[door]}.items())
        for door in doors)


@functools.cache
def may_be_transparent() -> bool:
    with socket.socket() as sock, contextlib.suppress(PermissionError):
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TRANSPARENT, 1)
        return True
    return False


@functools.cache
def context_of(user: str | None, *alpn: str) -> ssl.SSLContext:
    context = client_context(authority().sign(subject=f"/CN={user}") if user else None)
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


@contextlib.contextmanager
def intercepting(proxy: Proxy) -> Iterator[set[str]]:
    """Brings connections of these doors' clients to them; yields the doors for which
    this can be done."""
    with contextlib.ExitStack() as stack:
        yield {door for door in INTERCEPTING if intercept(proxy, door, stack)}


def intercept(proxy: Proxy, door: str, stack: contextlib.ExitStack) -> bool:
    if door.startswith("tproxy") and not may_be_transparent():
        return False
    way, port = Way(door, "GET", "name"), proxy.ports[DOORS.index(door)]
    clients = [way.client(Ask(network=n)) for n in (1, 2)]
    family, host = ("ip6", "[::1]") if door.endswith("6") else ("ip", "127.0.0.1")
    hook, verdict = (
        ("type filter hook prerouting priority mangle", f"tproxy to {host}:{port}")
        if door.startswith("tproxy") else
        ("type nat hook output priority -100", f"redirect to :{port}"))
    table = f"table {family} cutthrough_{door}"
    if not run("nft", f"{table} {{ chain c {{ {hook}; {family} saddr "
               f"{{ {', '.join(clients)} }} tcp dport != {port} {verdict}; }}; }}"):
        return False
    stack.callback(run, "nft", f"delete {table}")
    for client in clients if family == "ip6" else ():
        if not run("ip", "addr", "add", f"{client}/128", "dev", "lo"):
            return False
        stack.callback(run, "ip", "addr", "del", f"{client}/128", "dev", "lo")
    return True


def run(name: str, *words: str) -> bool:
    """Whether the program is installed, and does it."""
    program = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    return program is not None and subprocess.run(
        [program, *words], capture_output=True, timeout=30).returncode == 0


def reach(proxy: Proxy, path: Path, way: Way, ask: Ask, port: int) -> SocksClient:
    """A connection that has passed the door; `port`: the destination's."""
    if way.is_intercepted:
        address = ADDRESSES.get(way.host(ask), way.host(ask))
        return SocksClient(port, address, source=way.client(ask))
    if way.door == "unix":
        return SocksClient(0, str(path))
    port = proxy.ports[DOORS.index(way.door)]
    if way.door == "balanced":
        client = SocksClient(port)
        client.send(build_line(way.client(ask)) if not ask.vpce else build_binary(
            way.client(ask), tlvs=build_tlv(0xEA, b"\1" + ask.vpce.encode())))
        return client
    client = SocksClient(port, source=way.client(ask))
    if way.has_tls:
        context = context_of(ask.user if way.door == "certificate" else None,
                             *(("h2",) if way.door == "http2" else ()))
        try:
            client.sock = TlsSocket(client.sock, context)
            if way.door == "http2":
                client.sock = StreamSocket(client.sock)
        except BaseException:
            client.close()
            raise
    return client


def speak(proxy: Proxy, client: SocksClient, way: Way, ask: Ask, port: int,
          ) -> int | None:
    """Sends the request; returns the answer, as `Way.owed` has it.

    If the request is granted, the way has been used, once, up to the origin. The origin
    answers GET and echoes datagrams and bytes that are no HTTP.
    """
    host = way.host(ask)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if way.is_intercepted:
        return speak_to_nobody(client, way, ask, target)
    if way.dialect == "SOCKS4":
        code = client.request4(target)
        return use(client, way, ask) or code if code == 90 else code
    if way.dialect in ("SOCKS5", "UDP"):
        if ask.user is None:
            assert client.method(NONE) == NONE
        elif client.log_in(ask.user, ask.password) != GRANTED:
            return TABLE[NAMES["auth_failed"]].socks    # RFC 1929 has no codes
        if way.dialect == "UDP":
            return associate(proxy, client, way, ask, port)
        return client.request(target) or use(client, way, ask)
    auth = ask.user and "Basic " + base64.b64encode(
        f"{ask.user}:{ask.password}".encode()).decode()
    if way.dialect == "CONNECT":
        status = client.connect(target, auth=auth).status
        return use(client, way, ask) or status if status == 200 else status
    fields = UPGRADE if way.dialect == "UPGRADE" else ()
    return client.get(f"http://{target}{ask.path}", *fields, auth=auth).status


def speak_to_nobody(client: Client, way: Way, ask: Ask, target: str) -> int | None:
    """As a program does if it knows of no proxy."""
    if way.dialect != "TUNNEL":
        fields = UPGRADE if way.dialect == "UPGRADE" else ()
        client.send("\r\n".join(
            (f"GET {ask.path} HTTP/1.1", f"Host: {target}", *fields, "", "")).encode())
        return client.read_response().status
    if ask.inside:
        return use(client, way, ask)
    data = b"\0\1 of no protocol"
    if way.greets:
        data = build_hello(way.host(ask), ask.hello == "old")
    client.send(data)
    with contextlib.suppress(Closed, ConnectionResetError):
        assert client.read_exact(len(data)) == data
        return 0
    return None


def use(client: Client, way: Way, ask: Ask) -> int:
    """Returns 0, or CUT if the tunnel has been closed instead."""
    if ask.inside:
        host = ask.server or way.host(ask)
        try:
            client.sock = TlsSocket(client.sock, client_context(), host)
        except OSError:                 # an alert, or no answer to nobody's TLS
            return CUT
        client.send(f"GET {ask.inside} HTTP/1.1\r\n"
                    f"Host: {url_host(host)}\r\n\r\n".encode())
        status = client.read_response().status
        return 0 if status == 200 else status
    data = f"GET / HTTP/1.1\r\nHost: {way.host(ask)}\r\n\r\n".encode()
    if ask.hello:
        own = way.host(ask) if way.form == "name" else None
        data = build_hello("other.test" if ask.hello == "other" else own,
                           ask.hello == "old")
    client.send(data)
    with contextlib.suppress(Closed, ConnectionResetError):
        if ask.hello:
            assert client.read_exact(len(data)) == data
        else:
            assert client.read_response().status == 200
        return 0
    return CUT


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def build_hello(name: str | None, is_old: bool = False) -> bytes:
    context = client_context()
    context.check_hostname = name is not None
    if is_old:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname=name).do_handshake()
    return out.read()


def associate(proxy: Proxy, client: SocksClient, way: Way, ask: Ask, port: int,
              ) -> int | None:
    """Sends one datagram; returns when it has come back, or its refusal is logged."""
    client.send(command("0.0.0.0:0", ASSOCIATE))
    code, *relay = client.read_reply()
    if code != GRANTED:
        return code
    host = way.host(ask)
    line = {"method": "UDP", "client": way.client(ask), "host": host, "port": port}
    before = len(proxy.log(**line))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((way.client(ask), 0))
        sock.setblocking(False)
        sock.sendto(datagram(f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                             b"ping"), tuple(relay))
        got = b""

        def is_over() -> bool:
            nonlocal got
            with contextlib.suppress(BlockingIOError):
                got = sock.recv(100)
            return bool(got) or len(proxy.log(**line)) > before
        wait_until(is_over, "an answer, or a line")
    assert got[-4:] in (b"ping", b"")
    return GRANTED if got else None
