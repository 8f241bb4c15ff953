"""The first bytes of clients, of many protocols."""

from tests.wire.twin_hello import build_hello, named

HELLO = build_hello(named(b"example.com"))
CLIENTS = {
    b"SSH-2.0-OpenSSH_9.2p1\r\n": "ssh", b"GET / HTTP/1.1\r\n": "http",
    b"POST /x HTTP/1.1\r\n": "http", b"PUT /": "http", b"PATCH /": "http",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "http2", b"OPTIONS * HTTP/1.1": "http",
    b"EHLO relay.example\r\n": "smtp", b"HELO relay\r\n": "smtp",
    b"<?xml version='1.0'?><stream:stream ": "xmpp", b"<stream:stream to='x'": "xmpp",
    b"\x13BitTorrent protocol" + bytes(8): "bittorrent",
    b"\0\0\0\x08\x04\xd2\x16\x2f": "postgresql",
    b"\0\0\0\x29\0\3\0\0user\0": "postgresql",
    b"\3\0\0\x13\x0e\xe0\0\0\0\0\0\1\0\x08\0\3\0\0\0": "rdp",
    b"RFB 003.008\n": "vnc", HELLO: "tls", HELLO[:5] + b"\2" + HELLO[6:]: "unknown",
    b"get / http/1.1\r\n": "unknown", b"GETS": "unknown", b"\xff": "unknown",
    b"\x16\x03\x01\0\x05hello": "unknown", b"PROPOSE": "unknown"}
