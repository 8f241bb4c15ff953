"""The writer's side of traces: sampled exchanges go from the rings to a process.

    rows ──sampled──> messages on a socket pair ──> span_process.py ──OTLP──> collector

A message is one exchange: the numbers of its span, and the columns of SHOWN, redacted
as captures are. Nothing waits: if the socket is full, the exchange is lost, and
counted. The process reports exported and lost exchanges; if it dies, all of its
exchanges are lost, and another process begins RESTART_S later. It gets no variable
such as HTTPS_PROXY, because that could name this very proxy.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from random import SystemRandom

import msgspec

from cutthrough.exchange.columns import COLUMNS
from cutthrough.storage.settings import Traces
from cutthrough.tape.batch import Batch
from cutthrough.tape.ring import Ring

COMMAND = (sys.executable, "-P", "-m", "cutthrough.storage.span_process")
# Columns that spans show
SHOWN = ("request", "begun_us", "ended_us", "kind", "method", "host", "port", "url",
         "status", "reason", "rule", "user", "client", "client_port", "peer",
         "peer_port", "parent", "reused", "retried", "intercepted", "client_http",
         "origin_http", "request_content_bytes", "response_content_bytes", "head_us",
         "auth_us", "hook_us", "dns_us", "connect_us", "origin_tls_us", "send_us",
         "wait_us", "receive_us")
PICKED = tuple(map(COLUMNS.index, SHOWN))
HEAD = COLUMNS.index("request_head")         # for its traceparent alone
USER = SHOWN.index("user")
# Between two processes
RESTART_S = 10.0
# For the last exports of the process, when the writer ends
END_S = 6.0

_FIELD = re.compile(r"^traceparent:[ \t]*([^\r\n]*?)[ \t]*\r?$", re.I | re.M)
_VALUE = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
                    r"(?:-.{0,200})?")
# The last field of a head is Via; behind it is a trace of this proxy's own
_BEGUN = re.compile(r"\r\nvia:[^\r\n]*(\r\ntraceparent: [0-9a-f-]{55}\r\n)\r\n\Z", re.I)
_random = SystemRandom()


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to the process."""

    url: str
    program: str                             # this one's name among others
    form: str                                # of its messages


class Traced(msgspec.Struct, frozen=True, array_like=True):
    """One exchange."""

    trace: bytes                             # 16 bytes
    span: bytes                              # 8 bytes
    parent: bytes                            # likewise; b"": it begins the trace
    columns: tuple[str | int | None, ...]    # SHOWN


class Done(msgspec.Struct, frozen=True, array_like=True):
    """Exchanges that the process has no longer."""

    exported: int
    lost: int


def find_trace(head: str) -> tuple[str, str, bool] | None:
    """Returns trace, parent and the sampled flag of a head's valid traceparent."""
    values = _FIELD.findall(head)
    match = _VALUE.fullmatch(values[0]) if len(values) == 1 else None
    if match is None or not (match[1].strip("0") and match[2].strip("0")) or (
            values[0].startswith("00") and len(values[0]) > 55):
        return None
    return match[1], match[2], int(match[3], 16) & 1 == 1


def sample(head: str, ratio: float) -> tuple[bytes, bytes, bytes] | None:
    """Returns trace, span and parent of an exchange; None: it is not traced.

    A traceparent decides by its flag. Without one, the last 64 bits of a new trace do,
    as in the SDK's TraceIdRatioBased.
    """
    begun = _BEGUN.search(head)
    trace = find_trace(begun[1] if begun is not None else head)
    if trace is None:
        number = _random.getrandbits(128) or 1
        if number & 0xffff_ffff_ffff_ffff >= round(ratio * (1 << 64)):
            return None
        return number.to_bytes(16), _new_span(), b""
    if not trace[2]:
        return None
    sender = bytes.fromhex(trace[1])
    if begun is not None:
        return bytes.fromhex(trace[0]), sender, b""
    return bytes.fromhex(trace[0]), _new_span(), sender


def _new_span() -> bytes:
    return (_random.getrandbits(64) or 1).to_bytes(8)


class Sender:
    """From the first exchange to `close`. Counts in a ring."""

    def __init__(self, settings: Traces, program: str, form: str) -> None:
        self._settings = settings
        self._start = Start(url=settings.url, program=program, form=form)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._at_process = 0                 # exchanges without a report
        self._next_start = 0.0

    def put(self, rows: Batch, ring: Ring) -> None:
        self.collect(ring)
        for row, head in enumerate(rows.column(HEAD)):
            numbers = sample(head or "", self._settings.ratio)
            if numbers is None:
                continue
            columns = rows.pick(row, PICKED)
            if not self._settings.users:
                columns[USER] = None
            if self._send(Traced(*numbers, tuple(columns))):
                self._at_process += 1
            else:
                ring.trace(lost=1)

    def _send(self, exchange: Traced) -> bool:
        if self._channel is None and not self._begin():
            return False
        assert self._channel is not None
        try:
            self._channel.send(msgspec.msgpack.encode(exchange), socket.MSG_DONTWAIT)
        except OSError:                      # it is behind, or has died; or too long
            return False
        return True

    def _begin(self) -> bool:
        if time.monotonic() < self._next_start:
            return False
        self._next_start = time.monotonic() + RESTART_S
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*COMMAND, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),), env={
                        name: value for name, value in os.environ.items()
                        if not name.lower().endswith("_proxy")})
                ours.send(msgspec.msgpack.encode(self._start))
            except OSError:                  # no memory, no process: it may pass
                ours.close()
                return False
        self._channel = ours
        return True

    def collect(self, ring: Ring) -> None:
        """Counts the reports of the process since the last call."""
        while self._channel is not None:
            try:
                message = self._channel.recv(1 << 12, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if message:
                self._count(message, ring)
            else:
                self._end(ring)

    def _count(self, message: bytes, ring: Ring) -> None:
        done = msgspec.msgpack.decode(message, type=Done)
        ring.trace(done.exported, done.lost)
        self._at_process -= done.exported + done.lost

    def _end(self, ring: Ring) -> None:
        """Counts the exchanges of a process that has ended as lost."""
        ring.trace(lost=self._at_process)
        self._at_process = 0
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self, ring: Ring) -> None:
        """Gives the process time to export its exchanges."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)
            until = time.monotonic() + END_S
            while (left := until - time.monotonic()) > 0:
                self._channel.settimeout(left)
                try:
                    message = self._channel.recv(1 << 12)
                except OSError:
                    break
                if not message:
                    break
                self._count(message, ring)
        self._end(ring)
