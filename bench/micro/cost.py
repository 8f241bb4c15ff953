"""Heads, rewriting, chunks, log lines and timers: how many ns does each take?

The heads are what Chromium sends through a proxy and what nginx answers. httptools is
Node's llhttp under a thin Cython binding; it reports every field as a Python object,
so that its figure is its use from Python, not llhttp's loop alone.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from bench.micro import Micro, load_compiled

REQUEST = (
    b"GET http://www.example.com/static/js/app.3f1c.js?v=20260101 HTTP/1.1\r\n"
    b"Host: www.example.com\r\n"
    b"Proxy-Connection: keep-alive\r\n"
    b"Proxy-Authorization: Basic dXNlcm5hbWU6cGFzc3dvcmQ=\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like "
    b"Gecko) Chrome/140.0.0.0 Safari/537.36\r\n"
    b"Accept: */*\r\n"
    b"Referer: http://www.example.com/\r\n"
    b"Accept-Encoding: gzip, deflate\r\n"
    b"Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n"
    b"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes\r\n"
    b"\r\n"
)
RESPONSE = (
    b"HTTP/1.1 200 OK\r\n"
    b"Server: nginx/1.22.1\r\n"
    b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
    b"Content-Type: application/javascript\r\n"
    b"Content-Length: 48231\r\n"
    b"Last-Modified: Wed, 31 Dec 2025 00:00:00 GMT\r\n"
    b"Connection: keep-alive\r\n"
    b'ETag: "69547880-bc67"\r\n'
    b"Cache-Control: public, max-age=31536000\r\n"
    b"Accept-Ranges: bytes\r\n"
    b"\r\n"
)
HELLO = (Path(__file__).parents[2] / "tests/wire/hellos/chromium.bin").read_bytes()
#: 16 chunks of 4 KiB, as nginx cuts what it compresses; and 256 of 32 bytes.
CHUNKS_4K = b"".join([b"1000\r\n" + bytes(4096) + b"\r\n"] * 16) + b"0\r\n\r\n"
CHUNKS_32 = b"".join([b"20\r\n" + bytes(32) + b"\r\n"] * 256) + b"0\r\n\r\n"


@functools.cache
def _loops() -> ModuleType:
    return load_compiled(Path(__file__).with_suffix(".pyx"))


def _loop(name: str, *arguments: object) -> Callable[[int], float]:
    return lambda n: float(getattr(_loops(), name)(*arguments, n))


def _chunks(text: bytes) -> Callable[[int], float]:
    """The scan alone: with its copy, less the copy."""

    def run(n: int) -> float:
        both = float(_loops().scan_bodies(text, n))
        copies = float(_loops().scan_copies(text, n))
        return max(both - copies, both / 100)

    return run


def _httptools(kind: str, text: bytes) -> Callable[[int], float]:
    def run(n: int) -> float:
        import httptools  # of the tests' libraries; only this needs it

        parser = getattr(httptools, kind)(object())
        began = time.perf_counter()
        for _ in range(n):
            parser.feed_data(text)
        return float(time.perf_counter() - began)

    return run


def _log_line(form: str, head: bytes = b"") -> Callable[[int], float]:
    """Returns a loop that makes the log line of a tunnel, or of the request with this
    head."""

    def run(n: int) -> float:
        from cutthrough.log.accesslog import AccessLog

        loop = asyncio.new_event_loop()
        try:
            with tempfile.NamedTemporaryFile() as file:
                journal = AccessLog(loop, file.name, form)
                write = _loops().write_requests if head else _loops().write_lines
                took = float(write(journal, *filter(None, [head]), n))
                journal.close()
                return took
        finally:
            loop.close()

    return run


def _peek(wanted: int) -> Callable[[int], float]:
    def run(n: int) -> float:
        with (socket.create_server(("127.0.0.1", 0)) as server,
              socket.create_connection(server.getsockname()) as client,
              server.accept()[0] as ours):
            client.sendall(HELLO)
            ours.recv(len(HELLO), socket.MSG_PEEK | socket.MSG_WAITALL)
            return float(_loops().peek_hellos(ours.fileno(), wanted, n))

    return run


def _events(size: int) -> Callable[[int], float]:
    def run(n: int) -> float:
        from cutthrough.session.model.flight_recorder import FlightRecorder

        return float(_loops().record_events(FlightRecorder(size), n))

    return run


def _timers(name: str) -> Callable[[int], float]:
    def run(n: int) -> float:
        from cutthrough.net.timers import Wheel

        return float(getattr(_loops(), name)(Wheel(), n))

    return run


def _lacks(module: str) -> str:
    return "" if importlib_find(module) else f"{module}_is_not_installed"


def importlib_find(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


# A GET has no body, so llhttp is at the start of a message again after each head; after
# a response head it would wait for a body, so its response says Content-Length: 0.
_EMPTY = RESPONSE.replace(b"48231", b"0")
# As it goes up to the origin
_UPWARDS = REQUEST.replace(b"http://www.example.com", b"", 1)
BENCHES = [
    Micro("head-request", "a request head parsed", _loop("parse_requests", REQUEST),
          len(REQUEST)),
    Micro("head-request-httptools", "the same by httptools",
          _httptools("HttpRequestParser", REQUEST), len(REQUEST), "httptools",
          _lacks("httptools")),
    Micro("head-response", "a response head parsed", _loop("parse_responses", RESPONSE),
          len(RESPONSE)),
    Micro("head-response-httptools", "the same by httptools, Content-Length: 0",
          _httptools("HttpResponseParser", _EMPTY), len(_EMPTY), "httptools",
          _lacks("httptools")),
    Micro("rewrite-request", "target read, head rewritten",
          _loop("rewrite_requests", REQUEST), len(REQUEST)),
    Micro("rewrite-response", "response head rewritten",
          _loop("rewrite_responses", RESPONSE), len(RESPONSE)),
    Micro("chunks-4k", "64 KiB in chunks of 4 KiB scanned", _chunks(CHUNKS_4K),
          len(CHUNKS_4K)),
    Micro("chunks-32", "8 KiB in chunks of 32 bytes scanned", _chunks(CHUNKS_32),
          len(CHUNKS_32)),
    Micro("log-squid", "a tunnel's line in squid's format, to a file",
          _log_line("squid")),
    Micro("log-common", "the same in the common format", _log_line("common")),
    Micro("log-combined", "the same in the combined format", _log_line("combined")),
    Micro("log-json", "the same as JSON", _log_line("json")),
    Micro("log-squid-get", "a GET's line, of the head above, in squid's format",
          _log_line("squid", _UPWARDS)),
    Micro("log-combined-get", "the same in the combined format",
          _log_line("combined", _UPWARDS)),
    Micro("log-json-get", "the same as JSON", _log_line("json", _UPWARDS)),
    Micro("hello", "Chromium's ClientHello parsed", _loop("parse_hellos", HELLO),
          len(HELLO)),
    Micro("hello-kept", "the same, kept without a fingerprint",
          _loop("keep_hellos", HELLO, 0)),
    Micro("hello-ja4", "the same with its JA4, of a client that came before",
          _loop("keep_hellos", HELLO, 1)),
    Micro("hello-ja4-new", "the same of a client that did not",
          _loop("keep_new_hellos", HELLO, 1)),
    Micro("hello-ja3", "with JA4 and JA3, of a client that came before",
          _loop("keep_hellos", HELLO, 3)),
    Micro("hello-peek", "with JA4, and with the look at the socket", _peek(1)),
    Micro("event", "an event for the flight recorder", _events(65536)),
    Micro("event-off", "the same without one", _events(0)),
    Micro("timer-move", "a deadline moved to a later time", _timers("move_deadlines")),
    Micro("timer-arm", "a deadline armed and disarmed", _timers("arm_and_disarm")),
]  # fmt: skip
