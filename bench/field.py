"""The verdicts of a proxy on odd messages: the cases of tests/e2e/test_field.py.

    python -m bench.field 127.0.0.1:3128 [user:password]

Plain requests go through the proxy at this address, to an origin on loopback. A printed
line for each case has the received statuses and the verdict. docs/field.md has the
verdicts of four proxies.
"""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading
from base64 import b64encode

from tests.e2e.test_field import (
    ANSWERS,
    BODY,
    CHUNKED,
    OFFER,
    OK,
    PASSED,
    SWITCH,
    TARGETS,
    WITHOUT_CONTENT,
)

SECONDS = 2.0
# The key and its answer, of RFC 6455 section 1.3
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
FRAME = b"\x81\x05first"
CONTROLS = {"0x01": b"\x01", "0x7f": b"\x7f", "NUL": b"\0", "bare CR": b"\r"}
INTERIM = {"100 with a length of zero": b"100 Continue\r\nContent-Length: 0\r\n",
           "103 with chunks": b"103 Early Hints\r\n" + CHUNKED}


class Case:
    """An origin's answer, and the client's request and expectation."""

    def __init__(self, raw: bytes, target: str = "/", fields: tuple[str, ...] = (),
                 expected: bytes = b"ok") -> None:
        self.raw, self.target, self.fields = raw, target, fields
        self.expected = expected


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name, (status, fields, behind, _) in WITHOUT_CONTENT.items():
        head = f"HTTP/1.1 {status}\r\n".encode()
        found[f"{status[:3]}, {name}"] = Case(head + fields + b"\r\n" + behind,
                                              expected=b"")
    for name, head in INTERIM.items():
        found[name] = Case(b"HTTP/1.1 " + head + b"\r\n" + OK + BODY)
    for name, fields in ANSWERS.items():
        found[f"101, {name}"] = Case(SWITCH + ACCEPT + fields + b"\r\n" + FRAME,
                                     "/chat", (*OFFER, KEY), FRAME)
    for name, raw in PASSED.items():
        found[name] = Case(raw)
    for name, octet in CONTROLS.items():
        found[f"{name} in a value"] = Case(OK + b"X: a" + octet + b"b\r\n" + BODY)
    for name, (typed, _) in TARGETS.items():
        found[f"{name} in a target"] = Case(OK + BODY, typed)
    return found


def serve(listener: socket.socket, raw: bytes, seen: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while True:
            conn, _ = listener.accept()
            with conn, contextlib.suppress(OSError):
                conn.settimeout(SECONDS)
                if head := read_head(conn):
                    seen.append(head.split(b"\r\n")[0])
                    conn.sendall(raw)
                    conn.recv(1)                # until the proxy ends it


def read_head(conn: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (more := conn.recv(65536)):
        data += more
    return data


def ask(proxy: tuple[str, int], login: str, case: Case) -> str:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=serve, args=(listener, case.raw, seen),
                         daemon=True).start()
        lines = [f"GET http://127.0.0.1:{port}{case.target} HTTP/1.1",
                 f"Host: 127.0.0.1:{port}", *case.fields]
        if login:
            token = b64encode(login.encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {token}")
        got = b""
        with socket.create_connection(proxy, SECONDS) as client, (
                contextlib.suppress(OSError)):
            client.sendall("\r\n".join((*lines, "", "")).encode("latin-1"))
            while not is_whole(got, case) and (more := client.recv(65536)):
                got += more
        listener.shutdown(socket.SHUT_RDWR)
    statuses = re.findall(rb"HTTP/\d[.\d]* (\d{3})", got)
    text = " ".join(status.decode() for status in statuses) or "no answer"
    if not is_whole(got, case) and statuses and statuses[-1] < b"400":
        text += ", without its content"
    if case.target not in ("/", "/chat") and seen:
        text += f" {seen[0].decode('latin-1')[4:-9]}"
    return text


def is_whole(got: bytes, case: Case) -> bool:
    """Up to an answer's content; an error's need not come."""
    heads = re.findall(rb"HTTP/\d[.\d]* (\d{3}).*?\r\n\r\n", got, re.DOTALL)
    if not heads or (heads[-1] < b"200" and heads[-1] != b"101"):
        return False
    return heads[-1] >= b"400" or case.expected in got.rpartition(b"\r\n\r\n")[2] or (
        case.expected in got.partition(b"\r\n\r\n")[2])


def main() -> int:
    host, _, port = sys.argv[1].rpartition(":")
    login = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, case in cases().items():
        print(f"{name:40} {ask((host, int(port)), login, case)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
