"""A collector of traces: OTLP over HTTP, decoded by OpenTelemetry's own definitions."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from tests.support.wait import wait_until


class Handler(BaseHTTPRequestHandler):
    server: "Collector"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.go_on.wait()
        self.server.take(self.path, dict(self.headers), body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Collector(ThreadingHTTPServer):
    """Listens from construction until `close`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.go_on = threading.Event()       # not set: it does not answer
        self.go_on.set()
        self.bodies: list[bytes] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.requests.append((path, headers))
        self.bodies.append(body)
        if self.status != 200:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(values(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def exchanges(self) -> list[Any]:
        """The spans of exchanges, without those of phases."""
        return [span for span in self.spans if span.kind == span.SPAN_KIND_CLIENT]

    def wait_exchanges(self, count: int = 1) -> list[Any]:
        return wait_until(lambda: len(self.exchanges()) >= count and self.exchanges(),
                          lambda: f"{count} spans: {self.spans}")

    def phases(self, span: Any) -> list[Any]:
        return [child for child in self.spans if child.parent_span_id == span.span_id]

    def close(self) -> None:
        self.go_on.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


def values(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
            for pair in attributes}
