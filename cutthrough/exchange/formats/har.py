"""Captured exchanges as an HTTP Archive, HAR 1.2 (the W3C's draft of 2012).

A fact that was not measured or kept is -1 or absent, never invented. `time` is the sum
of the timings that apply; `ssl`, of the handshakes with parents and origin, lies in
`connect`.
Tunnels are not in the archive: exchanges inside have entries of their own, or are not
seen, and other readers refuse CONNECT. WebSockets are, with `_resourceType` and
`_webSocketMessages` as Chromium's DevTools export them; control frames are ours. Keys
of ours begin with an underscore.
"""

import base64
import re
from collections.abc import Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus

import cutthrough
from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.flow import Fields, Flow, find
from cutthrough.exchange.messages import OPCODES

LeftOut = dict[str, str]

REDACTED = "[redacted]"
# States of a body of which a part was kept
CUT = ("truncated", "incomplete")
# Methods whose request has no body, as a rule
WITHOUT_BODY = frozenset(("GET", "HEAD", "DELETE", "OPTIONS", "TRACE"))
# Timings that lie in others
PARTS = ("ssl", "_auth", "_hook", "_held", "_client_tls")


def make_archive(flows: Iterable[Flow]) -> dict[str, Any]:
    """The archive of these flows, in the order of their start."""
    left = list[LeftOut]()
    entries = [entry for flow in sorted(
        flows, key=lambda flow: (flow.begun_us, flow.id)) if has_entry(flow)
        and (entry := try_entry(flow, left))]
    log: dict[str, Any] = {
        "version": "1.2",
        "creator": {"name": "cutthrough", "version": cutthrough.__version__},
        "pages": [],                         # optional, but not to Firefox
        "entries": entries}
    return {"log": log | ({"_leftOut": left} if left else {})}


def has_entry(flow: Flow) -> bool:
    return flow.is_websocket or not flow.is_tunnel


def try_entry(flow: Flow, left: list[LeftOut]) -> dict[str, Any] | None:
    """None: whatever is wrong with it costs this entry alone (R71); `left` has why."""
    try:
        return make_entry(flow)
    except Exception as error:
        left.append({"_id": flow.request, "reason": reason_of(error)})
        return None


def make_entry(flow: Flow) -> dict[str, Any]:
    timings = make_timings(flow)
    entry = {
        "startedDateTime": flow.begun.isoformat(timespec="microseconds"),
        "time": round(sum(ms for name, ms in timings.items()
                          if ms > 0 and name not in PARTS), 3),
        "request": make_request(flow),
        "response": make_response(flow),
        "cache": {},
        "timings": timings,
        "_id": flow.request,
        "_rule": flow.rule,
    }
    if flow.peer:
        entry["serverIPAddress"] = flow.peer
    for key in ("user", "parent"):
        if getattr(flow, key):
            entry[f"_{key}"] = getattr(flow, key)
    if flow.client_http:
        entry["_clientHttpVersion"] = show_version(f"HTTP/{flow.client_http}")
    if flow.reason != "ok":
        entry["_error"] = flow.reason
    if flow.detail:
        entry["_detail"] = flow.detail
    if flow.fingerprints:
        entry["_fingerprints"] = flow.fingerprints
    if flow.is_websocket:
        entry["_resourceType"] = "websocket"
        if flow.messages_state or flow.messages:
            entry["_webSocketMessages"] = list(map(make_message, flow.messages))
        if flow.messages_state:
            entry["_messagesState"] = flow.messages_state
    return entry


def make_message(message: dict[str, Any]) -> dict[str, Any]:
    """`data` is text if the opcode is 1, else base64. Keys of ours if it is not so, or
    if it is not the message as it came."""
    code = OPCODES[message["kind"]]
    text = message.get("text", "")
    entry = {"type": "send" if message["side"] == "request" else "receive",
             "time": message["at_us"] / 1e6, "opcode": code}
    content = base64.b64decode(message["base64"]) if "base64" in message else (
        text.encode())
    if "code" in message:
        content = message["code"].to_bytes(2) + content
    if code == OPCODES["text"] and "base64" not in message:
        entry["data"] = text
    else:
        entry["data"] = base64.b64encode(content).decode()
        if code == OPCODES["text"]:
            entry["_encoding"] = "base64"
    if len(content) != message["bytes"]:
        entry["_bytes"] = message["bytes"]
    if "state" in message:
        entry["_state"] = message["state"]
    return entry


def make_timings(flow: Flow) -> dict[str, float]:
    """Milliseconds. `blocked` is all before the look-up: head, credentials, hook; and
    the time in which filters held the messages later."""
    def ms(*parts: int | None) -> float:
        known = [part for part in parts if part is not None]
        return round(sum(known) / 1000, 3) if known else -1

    timings = {
        "blocked": ms(flow.head_us, flow.auth_us, flow.hook_us, flow.held_us),
        "dns": ms(flow.dns_us),
        "connect": ms(flow.connect_us, flow.origin_tls_us),
        "send": max(0, ms(flow.send_us)),
        "wait": max(0, ms(flow.wait_us)),
        "receive": max(0, ms(flow.receive_us)),
        "ssl": ms(flow.origin_tls_us),
    }
    for name in ("auth", "hook", "held", "client_tls"):
        if getattr(flow, f"{name}_us") is not None:
            timings[f"_{name}"] = ms(getattr(flow, f"{name}_us"))
    return timings


def make_request(flow: Flow) -> dict[str, Any]:
    fields = flow.request_fields
    line = (flow.request_head or "").partition("\r\n")[0]
    request = {
        "method": flow.method,
        "url": flow.url,
        "httpVersion": show_version(line.rpartition(" ")[2] or "HTTP/1.1"),
        "cookies": read_cookies(fields),
        "headers": pairs(fields),
        "queryString": pairs(read_query(flow.url.partition("#")[0].partition("?")[2])),
        "headersSize": known(flow.request_head_bytes),
        "bodySize": body_size(flow, "request"),
    }
    if flow.request_trailers:
        request["_trailers"] = pairs(flow.request_trailer_fields)
    body = flow.request_body
    if body:
        request["postData"] = make_post(body, flow.request_type)
        if flow.request_body_state:
            request["postData"]["_state"] = flow.request_body_state
    return request


def make_post(body: str | bytes, kind: str) -> dict[str, Any]:
    """`text`, which excludes `params`: Chromium's reader and mitmproxy's need it."""
    post: dict[str, Any] = {"mimeType": kind}
    if isinstance(body, bytes):              # HAR has no encoding for a request's body
        post["text"] = base64.b64encode(body).decode()
        post["_encoding"] = "base64"
    else:
        post["text"] = body
    return post


def make_response(flow: Flow) -> dict[str, Any]:
    fields = flow.response_fields
    version, status, text = "", flow.status or 0, ""
    if flow.response_head:
        line = flow.response_head.split("\n", 1)[0].strip()
        version, _, rest = line.partition(" ")
        text = rest.partition(" ")[2]
        status = int(rest[:3]) if re.match("[0-9]{3}", rest) else status
    response = {
        "status": status,
        "statusText": text,
        "httpVersion": show_version(version),
        "cookies": read_set_cookies(fields),
        "headers": pairs(fields),
        "content": make_content(flow),
        "redirectURL": find(fields, "location"),
        "headersSize": known(flow.response_head_bytes),
        "bodySize": body_size(flow, "response"),
    }
    if flow.response_trailers:
        response["_trailers"] = pairs(flow.response_trailer_fields)
    return response


def show_version(text: str) -> str:
    """As browsers write it, with both numbers."""
    return "HTTP/2.0" if text == "HTTP/2" else text


def make_content(flow: Flow) -> dict[str, Any]:
    """`size` is the decoded length; `compression` the bytes that were saved by it."""
    size, body = flow.response_content_bytes, flow.response_body
    transferred = body_size(flow, "response")
    if size is None and transferred == 0:
        size = 0
    elif size is None and transferred > 0 and flow.response_body_state in CUT and (
            not flow.response_coding):
        size = transferred
    content: dict[str, Any] = {
        "size": known(size), "mimeType": flow.response_type or "x-unknown"}
    if size is not None and transferred >= 0:
        content["compression"] = size - transferred
    if isinstance(body, bytes) and body:
        content["text"] = base64.b64encode(body).decode()
        content["encoding"] = "base64"
    elif body:
        content["text"] = body
    if flow.response_body_state:
        content["comment"] = flow.response_body_state
    return content


def body_size(flow: Flow, side: str) -> int:
    """The transferred bytes. If only heads were captured: the length that the head
    announces, of a message that is whole; or -1. A body of HTTP/2 needs no field."""
    counted = getattr(flow, f"{side}_body_bytes")
    if counted is not None:
        return int(counted)
    fields = getattr(flow, f"{side}_fields")
    if side == "response":
        if not flow.response_head:
            return -1
        if flow.method == "HEAD" or flow.status in (204, 304):
            return 0
    length = find(fields, "content-length")
    if flow.reason == "ok" and re.fullmatch("[0-9]{1,18}", length):
        return int(length)
    if side == "request" and fields and not (
            length or find(fields, "transfer-encoding")) and (
            flow.origin_http != "2" or flow.method in WITHOUT_BODY):
        return 0
    return -1


def known(number: int | None) -> int:
    return -1 if number is None else number


def pairs(fields: Fields) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in fields]


def read_query(text: str) -> Fields:
    fields = []
    for part in re.split("[&;]", text):
        if part:
            name, _, value = part.partition("=")
            fields.append((unquote_plus(name), unquote_plus(value)))
    return fields


def read_cookies(fields: Fields) -> list[dict[str, Any]]:
    """The cookies of a request; none if they are redacted."""
    return [{"name": name.strip(), "value": value.strip()}
            for key, text in fields if key.lower() == "cookie" and text != REDACTED
            for name, mark, value in (part.partition("=") for part in text.split(";"))
            if mark]


def read_set_cookies(fields: Fields) -> list[dict[str, Any]]:
    """The cookies of a response (RFC 6265 section 5.2); none if they are redacted."""
    cookies = []
    for key, text in fields:
        if key.lower() != "set-cookie" or text == REDACTED:
            continue
        first, *rest = text.split(";")
        name, _, value = first.partition("=")
        cookie: dict[str, Any] = {"name": name.strip(), "value": value.strip(),
                                  "httpOnly": False, "secure": False}
        for part in rest:
            word, _, content = (piece.strip() for piece in part.partition("="))
            match word.lower():
                case "httponly":
                    cookie["httpOnly"] = True
                case "secure":
                    cookie["secure"] = True
                case "path" | "domain":
                    cookie[word.lower()] = content
                case "expires":
                    expires = read_date(content)
                    if expires:
                        cookie["expires"] = expires
        cookies.append(cookie)
    return cookies


def read_date(text: str) -> str:
    """A date of HTTP in ISO 8601; "": it cannot be read."""
    try:
        date = parsedate_to_datetime(text.replace("-", " "))
    except (ValueError, TypeError, IndexError):
        return ""
    return date.replace(tzinfo=date.tzinfo or UTC).isoformat(timespec="milliseconds")
