"""Records of a worker, and the rows that are made of them."""

import struct

from cutthrough.outcome import NAMES
from cutthrough.session.model.counters import METHODS
from cutthrough.tape.assembly import COLUMNS, Assembly
from cutthrough.wire.openings import PROTOCOLS
from tests.support.redaction import redactor

HEAD = b"POST /a HTTP/1.1\r\nHost: a.test\r\nCookie: s3cret\r\n\r\n"
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
NOT_COUNTED = (1 << 64) - 1
TEXTS = ("user", "host", "rule", "parent", "client", "peer", "sni", "alpn", "ja4",
         "client_cipher", "peer_cipher", "head", "client_ja4", "client_ja3",
         "client_ja4_r", "client_ja4_o", "client_ja4_ro", "http2_fingerprint", "detail",
         "added", "trace")


def end(*, at=2_000_000, total=15_000, first_byte=12_000, receive=500, up=60, down=100,
        body_up=NOT_COUNTED, body_down=NOT_COUNTED, phases=(100, 10, 0, 0, 300, 20),
        tls_us=(0, 0), held=0, http=(11, 0), status=200, port=80, tls=0,
        sides=(0, 0), flags=0, outcome="ok", method="POST", protocol="", **texts):
    """An END as end_record.pxd has it."""
    usual = {"user": b"ann", "host": b"a.test", "rule": b"here", "client": b"127.0.0.1",
             "peer": b"192.0.2.1", "head": HEAD}
    said = [(usual | texts).get(name, b"") for name in TEXTS]
    return struct.pack(
        "=4q4Q6I3I21I8H6B2x", at, total, first_byte, receive, up, down, body_up,
        body_down, *phases, *tls_us, held, *map(len, said), status, port, 5000, 80, tls,
        *sides, flags, NAMES[outcome], METHODS.index(method), 0,
        PROTOCOLS.index(protocol), *http) + b"".join(said)


def heads(down=REPLY, up=b""):
    return struct.pack("=I", len(up)) + up + down


def rows(*found, **settings):
    made = Assembly(redactor(**settings)).rows(found)
    return [dict(zip(COLUMNS, row, strict=True)) for row in made]
