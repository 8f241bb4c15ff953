"""The admin listener answers any request, on every route (R91).

Until then a few methods and targets, and some values, were 500 and a traceback.
"""

import contextlib
import itertools
import random
import re
import socket
from collections import Counter
from types import SimpleNamespace

import pytest

from cutthrough.admin.server import AdminServer
from tests.capture.flows import row
from tests.support.admin import TOKEN, administered
from tests.support.flows import POLICY, fill
from tests.support.recordings import fill as record
from tests.support.recordings import made
from tests.support.wait import PATIENCE, wait_until

pytestmark = pytest.mark.any_loop

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT",
           "TRACE", "FOO")
# Of the parts of a path that vary; and the values that each route may get instead
NAMES = {"name": "some", "number": "1", "id": "1", "side": "request", "form": "curl",
         "other": "2", "verb": "messages", "summary": "hosts"}
OF_OPEN = {**NAMES, "id": "0-1"}
ODD_NAMES = ("%00", "%ff%fe", "%2e%2e%2fx", "%f0%9f%98%80", "a" * 300, "-1",
             "9" * 18, "%0d%0aX:1", "%ed%a0%80", "..", "%", "%zz", "a%2fb")


def on(path: bytes) -> bytes:
    return path


# The forms that a path is made to
FORMS = (
    on, on, on,
    lambda path: b"http://localhost" + path,
    lambda path: b"http://127.0.0.1:99999" + path,
    lambda path: b"HTTPS://user:pass@[::1]" + path,
    lambda path: b"http://[" + path,
    lambda path: b"ws:" + path,
    lambda path: b"/" + path,
    lambda path: b"/x/.." + path,
    lambda path: b"/%2e%2e" + path,
    lambda path: path + b"/",
    lambda path: path + b"//..//.",
    lambda path: path + b"%",
    lambda path: path + b"%00",
    lambda path: path + b"%ff%c0%80",
    lambda path: path + b"\xff\xfe",
    lambda path: path + "\N{SNOWMAN}".encode(),
    lambda path: path + b"#part",
    lambda path: path + b"?",
    lambda path: path + b";a=b",
    lambda path: path + b"/" + b"a" * 7000,
    lambda path: path + b"?" + b"a=&" * 2500,
    lambda path: path + b"x" * 70_000,
    lambda path: path.upper(),
    lambda path: b"*", lambda path: b"*" + path,
    lambda path: b"localhost:80", lambda path: b"x", lambda path: b":",
    lambda path: b"?", lambda path: b"[::1]:80", lambda path: path[1:],
)
VALUES = ("", "-1", "0", "1", "1e400", "-1e400", "NaN", "nan", "inf", "9" * 18,
          "9" * 19, "9" * 5000, "%00", "a%00b", "%ff", "%ed%a0%80", "%F0%9F%98%80",
          "true", "a&{0}=b", "%0d%0aX:1", "+", "%2b1", "1_0", "%D9%A1", "[", "(",
          "%28" * 300, "status==200", "url~%5B", "./../x", "a" * 300, "replay",
          "record", "json")
PARAMETERS = ("filter", "search", "limit", "before", "after", "view", "id", "open",
              "all", "name", "mode", "session", "answers", "user", "host", "client",
              "older", "bytes", "state", "kind", "unknown", "", "%00", "%ff")
DEEP = b"[" * 100_000


def sized(body: bytes, kind: str = "application/json") -> bytes:
    return (f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body)


def document(text: str) -> bytes:
    return sized(text.encode())


BODIES = (
    b"\r\n", sized(b""), *map(document, (
        "{}", "[]", "null", "1", '"a"', "{", '{"a":1}', '{"action":"pass"}',
        '{"action":"edit","fields":[["\\u0000","a"]],"body":"!"}',
        '{"action":"edit","path":"\\ud800","method":"a b","status":-1}',
        '{"seconds":1e400}', '{"seconds":NaN}', '{"seconds":-1}', '{"seconds":null}',
        '{"tag":"\\u0000","comment":"\\ud800"}', '{"tag":"a","comment":"b"}',
        '{"count":-1}', '{"count":1e30}', '{"age_s":1e308}', '{"count":1,"age_s":0}',
        '{"comment":"\\u0000","redaction":{"fields":[""],"json":["$["],"query":["\\u0000"]}}',
        '{"redaction":{"body":["("]}}', '{"redaction":null}',
        '{"request":{"url":"http://a/"},"response":{"status":200}}',
        '{"request":null}', '{"request":{"url":"http://[/"},"response":{"status":1e9}}',
        '{"url":"http://127.0.0.1:1/","method":"GET"}',
        '{"url":"http://[/","method":"GET"}', '{"url":"","method":"\\u0000"}',
        '{"url":"http://a:99999/","method":"GET","fields":[["a\\n","b"]]}',
        '{"url":"http://\\ud800/","method":"GET"}')),
    sized(DEEP), sized(b'{"a":' * 50_000), sized(b"a" * (1 << 20)),
    sized(b'{"a":' * 900 + b"1" + b"}" * 900),
    sized(b'{"tag":"' + b"a" * (1 << 20) + b'"}'), sized(b"\xff\xfe{}"),
    sized(b"{}", "text/plain"), sized(b"{}", "multipart/form-data"),
    sized(b"{}", "application/json; charset=nonsense"), sized(b"{}", "\xe9"),
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"Content-Encoding: gzip\r\n" + document("{}"),
    b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n", b"Content-Length: " + b"9" * 50 + b"\r\n\r\n",
)
FIELDS = (
    b"", b"", b"", b"Host: localhost\r\n", b"Host: \xff\r\n", b"Host: [\r\n",
    b"Host: \r\n", b"Origin: null\r\n", b"Origin: http://[\r\n", b"Origin: \xff\r\n",
    b"Sec-Fetch-Site: cross-site\r\n", b"Expect: 100-continue\r\n", b"Expect: x\r\n",
    b"Authorization: \xff\r\n", b"Authorization: Bearer \xff\xfe\r\n",
    b"Authorization: Bearer\r\n", b"Authorization: Basic !\r\n",
    b"Cookie: \xff=\"\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"Range: bytes=x\r\n", b"If-Modified-Since: \xff\r\n", b"X: %s\r\n" % (b"a" * 9000),
)


def path_of(route: str, odd: str = "") -> str:
    names = OF_OPEN if route.startswith("/flows/open/") else NAMES
    return re.sub(r"\{(\w+)(?::(?:[^{}]|\{[^{}]*\})*)?\}",
                  lambda match: odd or names[match[1]], route)


def routes() -> list[tuple[str, str]]:
    """Methods and patterns of paths, as the listener has them."""
    some = SimpleNamespace
    nothing = some(ca_certificate=0, flows=0, describe=0, read_counters=0,
                   recording_directory=0, recording_url=0, recording_session=0,
                   recordings=0)
    server = AdminServer(nothing, some(
        breakpoints=0, replays=0, open_flows=some(), capture_switch=0,
        log_level=0), "")
    return [(one.method, one.path) for one in server.routes()]


def requests() -> list[bytes]:
    token = f"Authorization: Bearer {TOKEN}\r\n".encode()
    paths = sorted({path for _, path in routes()})
    made: list[bytes] = []
    turn = itertools.count()

    def add(method: str, target: bytes, fields: bytes, body: bytes) -> None:
        if method == "POST" and b"drain" in target.lower():
            fields = fields.replace(token, b"")     # it would end
        if b"Host:" not in fields:
            fields += b"Host: localhost\r\n"
        made.append(method.encode() + b" " + target + b" HTTP/1.1\r\n" + (
            b"Connection: close\r\n" if next(turn) % 2 else b"") + fields + body)

    forms, bodies, fields = map(itertools.cycle, (FORMS, BODIES, FIELDS))
    pairs = list(itertools.product(PARAMETERS, VALUES))
    random.Random(91).shuffle(pairs)         # the same order each time
    queries = itertools.cycle(pairs)
    for path, method in itertools.product(paths, METHODS):
        plain = path_of(path).encode()
        add(method, next(forms)(plain), token + next(fields), next(bodies))
        name, value = next(queries)
        add(method, plain + f"?{name}={value.format(name)}".encode(), next(fields),
            next(bodies))
    for method, path in routes():
        method = "GET" if method == "*" else method
        if path == "/reload":
            continue
        if "{" in path:
            for odd in ODD_NAMES:
                add(method, path_of(path, odd).encode(), token, b"\r\n")
        if method in ("GET", "DELETE"):
            for name, value in itertools.islice(queries, 20):
                add(method, f"{path_of(path)}?{name}={value.format(name)}".encode(),
                    token, b"\r\n")
        else:
            for body in BODIES:
                add(method, path_of(path).encode(), token, body)
    return made


def read_status(sock: socket.socket, method: bytes = b"GET") -> int:
    """Of the final answer; 0: the connection ended without one. A body is read to its
    end: if the client has gone, its reader of flows is killed, and another one starts.
    """
    reply = b""
    while True:
        while interim := re.match(rb"HTTP/1\.1 1\d\d [^\r]*\r\n(?:[^\r]+\r\n)*\r\n",
                                  reply):
            reply = reply[interim.end():]
        match = re.match(rb"HTTP/1\.[01] ([2-5]\d\d) ", reply)
        if match and is_whole(reply, method):
            return int(match[1])
        try:
            piece = sock.recv(65536)
        except ConnectionError:
            piece = b""
        if not piece:
            return int(match[1]) if match else 0
        reply += piece


def is_whole(reply: bytes, method: bytes) -> bool:
    """Has it been read? Of a stream, which does not end, the head is enough."""
    head, end, body = reply.partition(b"\r\n\r\n")
    fields = head.lower()
    if method == b"HEAD" or b"text/event-stream" in fields:
        return bool(end)
    if length := re.search(rb"content-length: (\d+)", fields):
        return bool(end) and len(body) >= int(length[1])
    return bool(end) and (b"chunked" not in fields or body.endswith(b"0\r\n\r\n"))


def status_of(port: int, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        with contextlib.suppress(ConnectionError):      # it is answered before its end
            sock.sendall(request)
        return read_status(sock, request.partition(b" ")[0])


@pytest.fixture
def listener(loop_name, opened, directory, tmp_path):
    """A proxy with something to show on its routes, and the port."""
    policy, database = tmp_path / "policy.toml", tmp_path / "flows.db"
    policy.write_text(POLICY)
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'policy = "{policy}"\ncapture_file = "{database}"\ncapture_age = "0"\n'
        f'recording_directory = "{tmp_path}"\n')
    wait_until(database.exists, "the writer's file")
    fill(database, [row(n) for n in range(1, 4)])
    record(tmp_path, made(9), name="some")
    return proxy, operator.where


def test_every_route_answers_every_request_with_a_status(listener):
    """14 of these were 500: a body with a coding, and a deep one."""
    proxy, port = listener
    sent = sorted(requests(), key=lambda request: request.startswith(b"DELETE"))
    found = Counter((status_of(port, request), request) for request in sent)
    assert len(sent) > 2000
    assert {status for status, _ in found} >= {200, 400, 401, 403, 404, 405, 415, 421}
    assert not [one for one in found if one[0] in (0, 500)]
    assert "Traceback" not in proxy.stderr()


def test_a_body_that_breaks_while_it_is_read_leaves_no_traceback(listener):
    """A client that left was a traceback, and a malformed chunk was waited for."""
    proxy, port = listener
    for path, body in itertools.product(
            ("/flows/send", "/breakpoints/armed", "/reload"),
            (b"zz\r\n", b"2\r\n{}xx0\r\n\r\n", b"", b"5\r\n{}")):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
            sock.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                         f"Authorization: Bearer {TOKEN}\r\nExpect: 100-continue\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n".encode())
            assert sock.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
            sock.sendall(body)
            if body == b"zz\r\n":
                assert 200 <= read_status(sock) <= 408
    assert status_of(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
    assert "Traceback" not in proxy.stderr()
