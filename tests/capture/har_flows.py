"""Flows of every kind that an archive of HTTP holds."""

import json

from tests.capture.flows import flow

GZIPPED = flow(
    4, response_head="HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
    response_body="hello " * 100, response_body_bytes=40, response_content_bytes=600)
BINARY = flow(
    5, method="POST", request_head="POST / HTTP/1.1\r\nContent-Type: image/png\r\n"
    "Content-Length: 4\r\n\r\n", request_body=b"\x89PNG", request_body_bytes=4,
    response_body=b"\xff\xfe", response_body_bytes=2, response_content_bytes=2)
FORM = flow(
    6, method="POST", request_head="POST / HTTP/1.1\r\nContent-Type: "
    "application/x-www-form-urlencoded\r\nCookie: a=1; b=2\r\n\r\n",
    request_body="x=1&y=a%20b", request_body_bytes=11, request_content_bytes=11)
HEADS = flow(
    7, request_body=None, response_body=None, request_body_bytes=None,
    response_body_bytes=None, request_content_bytes=None, response_content_bytes=None)
FAILED = flow(
    8, status=502, reason="connection_refused", response_head=None, response_body=None,
    response_body_bytes=None, response_content_bytes=None, response_head_bytes=None,
    send_us=None, wait_us=None, receive_us=None, peer=None)
CUT = flow(
    9, reason="origin_reset", response_body="hel", response_body_bytes=5 << 20,
    response_content_bytes=None, response_body_state="truncated")
HTTP2 = flow(
    13, client_http="2", origin_http="2", origin_tls_us=700, client_tls_us=900,
    held_us=50, detail="it said so",
    client_ja4="t13d1516h2_8daaf6152771_b186095e22b6",
    http2_fingerprint="1:65536;4:6291456|15663105|0|m,a,s,p",
    request_head="POST / HTTP/2\r\nHost: a.test\r\n\r\n",
    response_head="HTTP/2 200\r\ncontent-type: application/grpc\r\n\r\n",
    request_head_bytes=None, response_head_bytes=None,
    request_trailers="X-Sum: 7\r\n",
    response_trailers="grpc-status: 0\r\ngrpc-message: fine\r\n")
POOLED = flow(10, dns_us=None, connect_us=None, reused=1)
ODD = flow(11, response_head="HTTP/1.0 200\r\nSet-Cookie: a=1; Path=/; Secure; "
           "HttpOnly; Expires=Wed, 09-Jun-2027 10:18:14 GMT; SameSite=Lax\r\n"
           "Set-Cookie: b=[x]; Expires=never\r\n\r\n")
UPGRADED = ("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\n\r\n")
MESSAGES = [
    {"at_us": 1_700_000_000_000_007, "side": "request", "kind": "text", "bytes": 5,
     "text": "hello"},
    {"at_us": 1_700_000_000_000_009, "side": "response", "kind": "binary", "bytes": 2,
     "base64": "/wA="},
    {"at_us": 1_700_000_000_000_009, "side": "response", "kind": "binary", "bytes": 2,
     "text": "hi"},
    {"at_us": 1_700_000_000_000_010, "side": "request", "kind": "text", "bytes": 3,
     "base64": "//8A"},
    {"at_us": 1_700_000_000_000_011, "side": "request", "kind": "text", "bytes": 900,
     "text": "cut", "state": "truncated"},
    {"at_us": 1_700_000_000_000_012, "side": "request", "kind": "text", "bytes": 9,
     "state": "redacted"},
    {"at_us": 1_700_000_000_000_013, "side": "response", "kind": "ping", "bytes": 1,
     "text": "?"},
    {"at_us": 1_700_000_000_000_014, "side": "request", "kind": "close", "bytes": 5,
     "code": 1000, "text": "bye"},
    {"at_us": 1_700_000_000_000_015, "side": "response", "kind": "close", "bytes": 0,
     "text": ""}]
WEBSOCKET = flow(
    12, kind="tunnel", status=101, response_head=UPGRADED, request_body=None,
    response_body=None, request_body_bytes=None, response_body_bytes=None,
    request_content_bytes=None, response_content_bytes=None,
    messages=json.dumps(MESSAGES), messages_state="malformed")
ALL = [flow(), GZIPPED, BINARY, FORM, HEADS, FAILED, CUT, POOLED, ODD, WEBSOCKET, HTTP2]
