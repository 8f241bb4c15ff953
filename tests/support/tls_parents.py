"""Scripted parents behind TLS, with an authority of their own."""

import ssl

from tests.support.certificates import Authority, Made, TlsSocket, authority, localhost
from tests.support.origin import Connection, Script


def server_context(made: Made | None = None, clients: Authority | None = None,
                   ) -> ssl.SSLContext:
    """A parent's side; `clients`: certificates of this authority are required."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(made or localhost()))
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.own.certificate)
    return context


def over_tls(script: Script, context: ssl.SSLContext | None = None) -> Script:
    context = context or server_context()

    def shake_first(conn: Connection) -> None:
        read = conn.take(len(conn.pending))
        conn.sock = TlsSocket(conn.sock, context, server_side=True, read=read)
        conn.sock.shake()
        script(conn)
    return shake_first


def ca() -> str:
    return str(authority().own.certificate)
