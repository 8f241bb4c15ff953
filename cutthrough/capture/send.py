"""Sends a request through the proxy, as a client of its own listener.

So the request is authenticated, judged, limited and logged as any other: there is no
second way to an origin. The user is one of the proxy's, with its own password; the
admin token is none. https goes through a CONNECT, and the certificate is verified: it
is the origin's, or one of the proxy's authority, because the proxy may intercept its
own tunnel.
"""

import http.client
import re
import ssl
import time
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import quote, urlsplit

from cutthrough.capture.query import QueryError, Request
from cutthrough.exchange.bodies import Transferred, make_body
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.redaction.redactor import REDACTED, Redactor

TIMEOUT_S = 30.0
# Bytes read of a response's body
MOST_BODY = 4 << 20
MOST_FIELDS = 200
# Fields of the connection and of the message's framing: made here
OURS = {"connection", "content-length", "expect", "keep-alive", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "via"}

_IN_PART = "(a part of it was redacted)"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def send(request: Request, proxy: tuple[str, int], authorities: str = ""
         ) -> dict[str, Any]:
    """The response, whoever made it: `body` in base64, at most MOST_BODY of it.
    `authorities`: certificates in PEM that are trusted beside the system's. Raises
    QueryError."""
    parts = check(request)
    begun = time.monotonic()
    context = make_context(authorities) if parts.scheme == "https" else None
    connection = connect(request, proxy, context, parts.hostname or "",
                         parts.port or 443)
    try:
        target = request.url if parts.scheme == "http" else (
            (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        connection.putrequest(request.method, target, skip_host=True,
                              skip_accept_encoding=True)
        for name, value in fields_of(request, parts.scheme, parts.netloc):
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders(request.body or None)
        response = connection.getresponse()
        body = response.read(MOST_BODY + 1)
    except ssl.SSLCertVerificationError as error:
        raise QueryError(
            f"no answer: {error}: it is signed neither by an authority of the system, "
            "nor by those of --cacert, intercept_ca and origin_ca", 502) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise QueryError(f"no answer: {error or type(error).__name__}", 502) from None
    finally:
        connection.close()
    version = {10: "HTTP/1.0", 11: "HTTP/1.1"}.get(response.version, "HTTP")
    lines = [f"{version} {response.status} {response.reason}",
             *(f"{name}: {value}" for name, value in response.getheaders())]
    return {"status": response.status, "head": "\r\n".join(lines),
            "body": b64encode(body[:MOST_BODY]).decode(),
            "truncated": len(body) > MOST_BODY,
            "ms": round((time.monotonic() - begun) * 1000, 3)}


def redact_answer(answer: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """As captures would have it (R79), with a body without codings if it is read."""
    head = f"{answer['head']}\r\n\r\n"
    redacted_head = redactor.head(head).removesuffix("\r\n\r\n")
    if not redactor.reads_bodies:
        return {**answer, "head": redacted_head}
    data = b64decode(answer["body"])
    body = make_body(
        Transferred(data, len(data), cut=answer["truncated"]), head, redactor)
    lines = [line for line in redacted_head.split("\r\n")
             if not line.lower().startswith("content-encoding:")]
    content = Flow({"response_head": head, "response_body": body.content})
    return {**answer, "head": "\r\n".join(lines),
            "body": b64encode(content.octets("response")).decode(),
            "truncated": answer["truncated"] or body.state not in ("", "encoded")}


def replay_of(flow: Flow) -> tuple[Request, list[str]]:
    """The request of a flow once more, and its parts that were not kept: fields are
    left out. A URL and a body stay with their stand-ins; `check_whole` refuses them."""
    authority = urlsplit(flow.url).netloc
    left, fields = [], []
    state = flow.request_body_state
    is_coded = state == "encoded"            # its coding could not be undone
    for name, value in flow.request_fields:
        key = name.lower()
        if key in OURS or (key == "host" and value == authority):
            continue
        if REDACTED in value or (key == "content-encoding" and not is_coded):
            left.append(name)
        else:
            fields.append((name, value))
    body = flow.octets("request")
    if state and not is_coded:
        left.append(f"body ({state})")
    if isinstance(flow.request_body, str) and not flow.charset_of("request"):
        left.append("body (it has characters beyond the charset of its type)")
        body = b""
    if REDACTED in flow.url:
        left.append(f"url {_IN_PART}")
    if has_stand_in(flow.request_body):
        left.append(f"body {_IN_PART}")
    return Request(url=flow.url, method=flow.method, fields=tuple(fields),
                   body=body), left


def has_stand_in(body: str | bytes | None) -> bool:
    text = body.decode("latin-1") if isinstance(body, bytes) else body or ""
    return REDACTED in text or quote(REDACTED) in text


def check_whole(left: list[str]) -> None:
    """Raises QueryError if the URL or the body has a stand-in for what was not kept:
    sent, it might become a password, for one."""
    for part in ("url", "body"):
        if f"{part} {_IN_PART}" in left:
            raise QueryError(f"{part}: a part of it was redacted: give another", 400)


def check(request: Request) -> Any:
    """The parts of the URL. Raises QueryError if the request cannot be sent."""
    try:
        parts = urlsplit(request.url)
        _ = parts.port
    except ValueError as error:
        raise QueryError(f"url: {error}", 400) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise QueryError("url: begins with http:// or https://, and names a host", 400)
    if re.search(r"[^\x21-\x7e]", request.url) or "@" in parts.netloc or parts.fragment:
        raise QueryError("url: has a space, a user or a fragment, or is not ASCII", 400)
    if REDACTED in request.url:
        raise QueryError("url: a part of it was redacted: give another", 400)
    if not _TOKEN.fullmatch(request.method) or request.method == "CONNECT":
        raise QueryError(f"method: {request.method!r} cannot be sent", 400)
    if len(request.fields) > MOST_FIELDS:
        raise QueryError(f"fields: more than {MOST_FIELDS}", 400)
    for name, value in request.fields:
        if not _TOKEN.fullmatch(name) or re.search(r"[\0\r\n]|[^\0-\xff]", value):
            raise QueryError(f"fields: {name!r} cannot be sent", 400)
        if value == REDACTED:
            raise QueryError(f"fields: the value of {name} was not kept: give one, "
                             "or leave the field out", 400)
    return parts


def fields_of(request: Request, scheme: str, authority: str
              ) -> list[tuple[str, str]]:
    fields = [(name, value) for name, value in request.fields
              if name.lower() not in OURS]
    if not any(name.lower() == "host" for name, _ in fields):
        fields.insert(0, ("Host", authority))
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        fields.append(("Content-Length", str(len(request.body))))
    if scheme == "http":
        fields += credentials(request)
    return [*fields, ("Connection", "close")]


def credentials(request: Request) -> list[tuple[str, str]]:
    if not request.user:
        return []
    pair = f"{request.user}:{request.password}".encode()
    return [("Proxy-Authorization", f"Basic {b64encode(pair).decode()}")]


def make_context(authorities: str) -> ssl.SSLContext:
    """Raises QueryError."""
    context = ssl.create_default_context()
    # As the proxy verifies origins: an authority need not be a root, and a name is in
    # subjectAltName or nowhere (R86)
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            raise QueryError(f"the authorities cannot be read: {error}") from None
    return context


def connect(request: Request, proxy: tuple[str, int], context: ssl.SSLContext | None,
            host: str, port: int) -> http.client.HTTPConnection:
    """The connection to the proxy; with a context inside a tunnel. It is made at its
    first use."""
    if context is None:
        return http.client.HTTPConnection(*proxy, timeout=TIMEOUT_S)
    connection = http.client.HTTPSConnection(*proxy, timeout=TIMEOUT_S, context=context)
    connection.set_tunnel(host, port, dict(credentials(request)))
    return connection
