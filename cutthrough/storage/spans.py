"""Exchanges -> spans of OpenTelemetry, by its semantic conventions for HTTP clients.

An exchange is a span of the kind CLIENT: its attributes are those of the request that
the proxy makes: `url.full`, `server.address`. Its phases are children, one behind
the other.
"""

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

import cutthrough
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.storage.traced import SHOWN, Traced

SCOPE = InstrumentationScope("cutthrough", cutthrough.__version__)
#: Columns, and the names of their spans.
PHASES = {"head_us": "head", "auth_us": "auth", "hook_us": "hook", "dns_us": "dns",
          "connect_us": "connect", "origin_tls_us": "tls", "send_us": "send",
          "wait_us": "wait", "receive_us": "receive"}
#: Columns of which attributes are made as they are, if they are neither null nor 0.
ATTRIBUTES = {
    "host": "server.address", "port": "server.port",
    "peer": "network.peer.address", "peer_port": "network.peer.port",
    "client": "client.address", "client_port": "client.port", "user": "user.name",
    "status": "http.response.status_code",
    "request_content_bytes": "http.request.body.size",
    "response_content_bytes": "http.response.body.size",
    "request": "cutthrough.request.id", "rule": "cutthrough.rule",
    "parent": "cutthrough.parent"}
FLAGS = {"reused": "cutthrough.connection.reused",
         "retried": "cutthrough.request.retried",
         "intercepted": "cutthrough.intercepted"}
#: The others are `_OTHER`, so that a client cannot make names without end.
METHODS = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT",
           "QUERY", "TRACE"}
_FAULTS = {row.label for row in OUTCOMES if row.fault}


def spans_of(exchange: Traced, resource: Resource) -> Iterator[ReadableSpan]:
    """The span of an exchange, and those of its phases."""
    row: dict[str, Any] = dict(zip(SHOWN, exchange.columns, strict=True))
    trace = int.from_bytes(exchange.trace)
    number = int.from_bytes(exchange.span)
    context = _context(trace, number)
    parent = (_context(trace, int.from_bytes(exchange.parent), is_remote=True)
              if exchange.parent else None)
    attributes = attributes_of(row)
    error = attributes.get("error.type")
    method = str(attributes["http.request.method"])
    yield ReadableSpan(
        "HTTP" if method == "_OTHER" else method, context=context, parent=parent,
        resource=resource, attributes=attributes, kind=SpanKind.CLIENT,
        status=Status(StatusCode.ERROR) if error else Status(),
        start_time=row["begun_us"] * 1000, end_time=row["ended_us"] * 1000,
        instrumentation_scope=SCOPE)
    at = row["begun_us"]
    for place, (column, name) in enumerate(PHASES.items(), 1):
        if row[column] is None:
            continue
        end = min(at + row[column], row["ended_us"])
        yield ReadableSpan(
            name, context=_context(trace, number + place & 0xffff_ffff_ffff_ffff or 1),
            parent=context, resource=resource, kind=SpanKind.INTERNAL,
            start_time=at * 1000, end_time=end * 1000, instrumentation_scope=SCOPE)
        at = end


def _context(trace: int, span: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace, span, is_remote, TraceFlags(TraceFlags.SAMPLED))


def attributes_of(row: dict[str, Any]) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool] = {
        name: row[column] for column, name in ATTRIBUTES.items() if row[column]}
    attributes |= {name: True for column, name in FLAGS.items() if row[column]}
    method = row["method"] or "CONNECT"
    if method not in METHODS:
        attributes["http.request.method_original"] = method
        method = "_OTHER"
    attributes["http.request.method"] = method
    if "://" in (row["url"] or ""):          # a tunnel's has no path
        attributes["url.full"] = row["url"]
    version = row["origin_http"] or row["client_http"]
    if version:
        attributes |= {"network.protocol.name": "http",
                       "network.protocol.version": version}
    attributes["cutthrough.reason"] = row["reason"]
    if row["reason"] in _FAULTS:
        attributes["error.type"] = row["reason"]
    elif (row["status"] or 0) >= 400:
        attributes["error.type"] = str(row["status"])
    return attributes
