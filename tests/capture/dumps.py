"""Typed netstrings as mitmproxy writes them, and the states of its flows."""

from typing import Any


def dump(value: Any) -> bytes:
    match value:
        case None:
            data, tag = b"", b"~"
        case bool():
            data, tag = str(value).lower().encode(), b"!"
        case int():
            data, tag = str(value).encode(), b"#"
        case float():
            data, tag = repr(value).encode(), b"^"
        case bytes():
            data, tag = value, b","
        case str():
            data, tag = value.encode(), b";"
        case list() | tuple():
            data, tag = b"".join(map(dump, value)), b"]"
        case dict():
            data, tag = b"".join(
                dump(key) + dump(one) for key, one in value.items()), b"}"
    return b"%d:%b%b" % (len(data), data, tag)


def state(**fields: Any) -> dict[str, Any]:
    """A GET with an answer of five bytes, as version 21 of the format has it."""
    return {
        "backup": None, "comment": "", "error": None, "type": "http", "version": 21,
        "id": "0b9b2a0e-2d8c-4a6f-9a51-02d9c1f5b7aa", "marked": "", "metadata": {},
        "intercepted": False, "is_replay": None, "websocket": None,
        "timestamp_created": 1700000000.0,
        "client_conn": {"peername": ["127.0.0.1", 50000], "sni": None, "tls": False},
        "server_conn": {
            "address": ["a.test", 8080], "peername": ["192.0.2.1", 8080],
            "timestamp_start": 1700000000.001, "timestamp_tcp_setup": 1700000000.003,
            "timestamp_tls_setup": None},
        "request": request(), "response": response()} | fields


def request(**fields: Any) -> dict[str, Any]:
    return {
        "host": "a.test", "port": 8080, "method": b"GET", "scheme": b"http",
        "authority": b"", "path": b"/a?b=c", "http_version": b"HTTP/1.1",
        "headers": [[b"Host", b"a.test:8080"], [b"Cookie", b"id=s3cret"]],
        "content": b"", "trailers": None, "timestamp_start": 1700000000.0,
        "timestamp_end": 1700000000.0005} | fields


def response(**fields: Any) -> dict[str, Any]:
    return {
        "http_version": b"HTTP/1.1", "status_code": 200, "reason": b"OK",
        "headers": [[b"Content-Type", b"text/plain"], [b"Content-Length", b"5"]],
        "content": b"hello", "trailers": None, "timestamp_start": 1700000000.0135,
        "timestamp_end": 1700000000.014} | fields
