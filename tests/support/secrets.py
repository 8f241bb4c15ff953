"""A proxy through which secrets pass, in every place of its traffic."""

from pathlib import Path

from tests.support.admin import Operator, administered
from tests.support.captures import wait_rows
from tests.support.client import PASSWORD
from tests.support.origin import Connection, Origin
from tests.support.proxy import Proxy

SECRET = "s3cr3t"
POLICY = """
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
capture = "full"
recording = "%s"
"""
OPTIONS = """
redact_fields = ["x-own"]
redact_query = ["token"]
redact_json = ["$..password"]
"""
JSON = '{"password": "%s", "to": "https://u.example/?a=1\\u0026token=%s"}'
FORM = "application/x-www-form-urlencoded"
# Media type, request's body, response's body
BODIES = [
    ("application/json", JSON, JSON),
    (FORM, "a=1&token=%s", "to=https%%3A%%2F%%2Fh%%2F%%3Ftoken%%3D%s"),
    ("text/html; charset=utf-16", "<a href='/?token=%s'>", "<a href='/?token=%s'>"),
    ("text/event-stream", "data: x\n\n", 'data: {"password":\rdata: "%s"}\r\r'),
    ("multipart/form-data; boundary=b",
     '--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n%s\r\n--b--\r\n',
     '--b\r\nContent-Type: application/json\r\n\r\n{"password": "%s"}\r\n--b--\r\n'),
    ("application/octet-stream", "\x00\x01 token=%s", '[{"password": "%s"}]'),
    ("application/json; charset=punycode", JSON, JSON),
    ("application/x-ndjson", '{"a": 1}\n{"password": "%s"}\n', '{"password": "%s'),
    # An origin that repeats the request's text
    ("text/plain", "a", "Your token is $."),
    ("text/html; charset=utf-16", "a", "<p>Your token is $."),
]


def fill(text: str, kind: str) -> bytes:
    return text.replace("%s", SECRET).replace("%%", "%").encode(
        "utf-16" if "utf-16" in kind else "utf-8")


def serve(conn: Connection) -> None:
    """Answers with the body of the requested type, and repeats the token."""
    while True:
        request = conn.read_request()
        kind, _, text = BODIES[int(request.target.rpartition("/")[2][:1])]
        token = (request.get("authorization") or "Bearer none").partition(" ")[2]
        body = fill(text.replace("$", token), kind)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nX-Own: %s\r\nX-Got: %s\r\n"
                  b"Set-Cookie: a=%s\r\nLocation: http://u:%s@h/?token=%s#token=%s\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (
                      kind.encode(), SECRET.encode(), token.encode(),
                      *[SECRET.encode()] * 4, len(body), body))


class Secretive:
    """The proxy that writes into `folder`, and its traffic."""

    def __init__(self, opened, directory: Path, loop: str, folder: Path,
                 mode: str = "record") -> None:
        folder.mkdir()
        policy = folder.parent / "policy.toml"
        policy.write_text(POLICY % mode)
        self.folder, self.database = folder, folder / "flows.db"
        self.proxy: Proxy
        self.operator: Operator
        self.proxy, self.operator = administered(
            opened, directory, loop,
            f'policy = "{policy}"\ncapture_file = "{self.database}"\n'
            f'recording_directory = "{folder}/sessions"\n{OPTIONS}'
            f'access_log = "{folder}/access"\naccess_log_format = "json"\n')

    def fill(self, dial, origin: Origin) -> None:
        """Returns when all is captured."""
        with dial(self.proxy) as client:
            for number, (kind, text, _) in enumerate(BODIES):
                body = fill(text, kind)
                client.ask(
                    "POST", origin.url(f"/{number}?a=1&to%6ben={SECRET}&b=2"),
                    f"Content-Type: {kind}", f"Content-Length: {len(body)}",
                    f"Authorization: Bearer {SECRET}", f"Cookie: a={SECRET}",
                    f"X-Own: {SECRET}", f"Referer: http://u:{SECRET}@h/#token={SECRET}",
                    body=body)
        wait_rows(self.database, len(BODIES))


def leaks(places: dict[str, bytes]) -> set[str]:
    """The names of places that have a secret."""
    return {name for name, octets in places.items()
            for secret in (SECRET, PASSWORD) for charset in ("utf-8", "utf-16-le")
            if secret.encode(charset) in octets}
