"""The process that exports spans: `python -m cutthrough.storage.span_process FD`.

FD is its end of a socket pair with the writer (traced.py). One thread reads exchanges,
and keeps at most MOST_WAITING; the other has OpenTelemetry's exporter send them, some
at a time, and again if the collector does not take them now. Of every exchange it
reports whether it was exported or lost. When the writer ends, the rest has END_S.

Fields, time-out, compression, certificates and the resource are those of the variables
`OTEL_…` of OpenTelemetry.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections import deque

import msgspec
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

import cutthrough
from cutthrough.log.errorlog import ErrorLog
from cutthrough.storage.spans import spans_of
from cutthrough.storage.traced import Done, Start, Traced

log = logging.getLogger("cutthrough")

# Exchanges that wait, and those of one request to the collector
MOST_WAITING, MOST_SENT = 4096, 256
# How long exchanges gather
GATHER_S = 1.0
END_S = 5.0
# Of an exchange: a URL and a head are bounded by 256 KiB
MOST_MESSAGE = 1 << 20

_QUERY = re.compile(r"\?[^\s()<>'\"]+")


class Exporter:
    """Exchanges that wait, and the thread that exports them."""

    def __init__(self, channel: socket.socket, start: Start) -> None:
        self._channel = channel
        os.environ.setdefault("OTEL_SERVICE_NAME", "cutthrough")
        self._resource = Resource({
            "service.version": cutthrough.__version__,
            "service.instance.id": start.program, "host.name": socket.gethostname(),
        }).merge(Resource.create())
        self._exporter = OTLPSpanExporter(endpoint=start.url)
        self._waiting: deque[Traced] = deque()
        self._changed = threading.Condition()
        self._lost = 0
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, exchange: Traced) -> None:
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._lost += 1
                return
            self._waiting.append(exchange)
            if len(self._waiting) in (1, MOST_SENT):
                self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(END_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ending)
                self._changed.wait_for(
                    lambda: len(self._waiting) >= MOST_SENT or self._ending, GATHER_S)
                count = min(len(self._waiting), MOST_SENT)
                exchanges = [self._waiting.popleft() for _ in range(count)]
                lost, self._lost = self._lost, 0
            if exchanges or lost:
                exported = len(exchanges) if self._export(exchanges) else 0
                self._say(Done(exported, lost + len(exchanges) - exported))
            elif self._ending:
                return

    def _export(self, exchanges: list[Traced]) -> bool:
        if not exchanges:
            return True
        try:
            return self._exporter.export([
                span for exchange in exchanges
                for span in spans_of(exchange, self._resource)
            ]) is SpanExportResult.SUCCESS
        except Exception as error:           # of these alone
            log.error("traces: %d exchanges could not be exported: %s", len(exchanges),
                      type(error).__name__)
            return False

    def _say(self, done: Done) -> None:
        with contextlib.suppress(OSError):   # the writer is gone
            self._channel.send(msgspec.msgpack.encode(done))


def hide_queries(record: logging.LogRecord) -> bool:
    """The exporter's lines quote the collector's URL, and its query may be a key. A
    traceback would quote it too."""
    record.msg, record.args = _QUERY.sub("?[redacted]", record.getMessage()), ()
    record.exc_info = None
    return True


def main(fd: int) -> int:
    # It ends when the writer has: not by a signal to the whole service
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP,
                   signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=fd)
    packet = channel.recv(MOST_MESSAGE)
    if not packet:
        return 0
    start = msgspec.msgpack.decode(packet, type=Start)
    errors = ErrorLog(start.form, "traces")
    errors.addFilter(hide_queries)
    logging.basicConfig(level=logging.WARNING, handlers=[errors])
    exporter = Exporter(channel, start)
    while True:
        try:
            packet = channel.recv(MOST_MESSAGE)
        except ConnectionError:
            packet = b""
        if not packet:
            break
        exporter.put(msgspec.msgpack.decode(packet, type=Traced))
    exporter.end()
    errors.report_suppressed(everything=True)
    # A thread that waits for the collector would keep the process
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
