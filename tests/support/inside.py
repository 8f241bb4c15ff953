"""Intercepted connections: origins over TLS, and clients that trust our authority."""

import functools
import ssl
from collections.abc import Sequence

from tests.support.certificates import (
    Authority,
    Made,
    TlsSocket,
    authority,
    client_context,
)
from tests.support.client import Client
from tests.support.origin import Connection, Script, answer
from tests.support.proxy import Proxy

NAMES = ('dns_overrides = ["a.example=127.0.0.1", "b.example=127.0.0.1"]\n'
         'connect_ports = "any"\n')
HERE = 'addresses = ["127.0.0.0/8"]\n'
ALL = f'[[rules]]\nname = "inside"\naction = "allow"\n{HERE}tls = "intercept"\n'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@functools.cache
def origins() -> Authority:
    """An authority that the proxy trusts, and the client does not."""
    return Authority("origins")


@functools.cache
def certificate(*names: str, days: int = 30) -> Made:
    return origins().sign(*(names or ("DNS:a.example", "IP:127.0.0.1")), days=days)


def keys() -> str:
    return (f'intercept_ca = "{authority().folder}"\n'
            f'origin_ca = "{origins().own.certificate}"\n')


def config(more: str = "") -> str:
    return f"{NAMES}{keys()}{more}"


def over_tls(script: Script, made: Made | None = None,
             alpn: Sequence[str] = ("http/1.1",), wants: Authority | None = None,
             mode: ssl.VerifyMode = ssl.CERT_REQUIRED,
             version: ssl.TLSVersion | None = None) -> Script:
    """An origin's script, behind its side of a handshake. `wants`: certificates of this
    authority's clients, by `mode`; `version`: the only one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(made or certificate()))
    if wants is not None:
        context.verify_mode = mode
        context.load_verify_locations(wants.own.certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(alpn)

    def shake_first(conn: Connection) -> None:
        conn.sock = TlsSocket(conn.sock, context, server_side=True)
        try:
            conn.sock.shake()
        except ssl.SSLError:
            return
        script(conn)
    return shake_first


okay = answer(OK)


def shake(client: Client, name: str = "a.example",
          context: ssl.SSLContext | None = None) -> Client:
    """The client's side of the handshake inside its tunnel."""
    assert not client.pending
    client.sock = TlsSocket(client.sock, context or client_context(), name)
    return client


def enter(proxy: Proxy, client: Client, port: int, host: str = "a.example",
          **more) -> Client:
    """A client behind CONNECT and handshake."""
    return shake(client.tunnel(f"{host}:{port}"), host, **more)


def send(client: Client, method: str, path: str, *fields: str, body: bytes = b"",
         host: str = "a.example") -> None:
    head = "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {host}", *fields, "", ""))
    client.send(head.encode() + body)


def ask(client: Client, method: str = "GET", path: str = "/", *fields: str, **more):
    """A request in origin form; returns the whole response."""
    send(client, method, path, *fields, **more)
    return client.read_response(method)
