"""A captured request as a command of curl, a call of fetch or of httpx, or as
`/flows/send` takes it; and the lines in which two exchanges differ."""

import difflib
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cutthrough.capture.flow import Fields, Flow, find
from cutthrough.capture.query import Request
from cutthrough.capture.send import replay_of
from cutthrough.capture.views import show_body
from cutthrough.exchange.visible import shell_word, visible

# Octets of a word in a command: Linux lets a program have 128 KiB in one
MOST_WORD = 16 << 10
# Lines of each side of a difference: with more of them, none is looked for
MOST_LINES = 20_000


def copy_as(flow: Flow, form: str) -> str:
    """The same request in one of FORMS. Values that were not kept are named in its
    first line; in JSON they are a list, `left`."""
    request, left = replay_of(flow)
    if form == "json":
        encoded = msgspec.json.encode({"request": request, "left": left})
        text = json.dumps(json.loads(encoded), separators=(",", ":"))
        return text.replace("\x7f", "\\u007f") + "\n"
    mark = "//" if form == "fetch" else "#"
    note = visible(f"{mark} not kept: {', '.join(left)}", "") + "\n" if left else ""
    return note + _WRITERS[form](request)


def _text(body: bytes) -> str | None:
    """None: it is no text that a shell and JSON can have."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _json(value: Any) -> str:
    """JSON of printable ASCII."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def quote(text: str) -> str:
    """A word of a shell: the octets of a head, which is text of ISO-8859-1."""
    try:
        return shell_word(text.encode("latin-1"))
    except UnicodeEncodeError:
        return shell_word(text.encode())


def as_curl(request: Request) -> str:
    words, before = ["curl --globoff --path-as-is"], ""
    if request.method == "HEAD":
        words.append("--head")
    elif request.method != ("POST" if request.body else "GET"):
        words.append(f"-X {quote(request.method)}")
    words.append(quote(request.url))
    words += [f"-H {quote(f'{name}: {value}' if value else f'{name};')}"
              for name, value in request.fields]
    if request.body:
        if not find(list(request.fields), "content-type"):
            words.append("-H 'Content-Type:'")           # curl would send its own
        if b"\0" in request.body or len(request.body) > MOST_WORD:
            before = f"echo {b64encode(request.body).decode()} | base64 -d | "
            words.append("--data-binary @-")
        else:
            words.append(f"--data-raw {shell_word(request.body)}")
    return before + " \\\n  ".join(words) + "\n"


def as_fetch(request: Request) -> str:
    lines = [f"  method: {_json(request.method)},",
             f"  headers: {_json(request.fields)},"]
    if request.body:
        text = _text(request.body)
        lines.append(f"  body: {_json(text)}," if text is not None else
                     f'  body: Uint8Array.from(atob("{b64encode(request.body).decode()}'
                     '"), one => one.charCodeAt(0)),')
    return "\n".join([f"await fetch({_json(request.url)}, {{", *lines, "});\n"])


def as_httpx(request: Request) -> str:
    lines = [f"    {request.method!a}, {request.url!a},", "    headers=[",
             *(f"        ({name.encode()!r}, {value.encode('latin-1', 'replace')!r}),"
               for name, value in request.fields), "    ],"]
    if request.body:
        lines.append(f"    content={request.body!r},")
    return "\n".join(["import httpx", "", "response = httpx.request(", *lines, ")\n"])


_WRITERS: dict[str, Callable[[Request], str]] = {
    "curl": as_curl, "fetch": as_fetch, "httpx": as_httpx}
FORMS = (*_WRITERS, "json")


def differences(one: Flow, other: Flow) -> Iterator[str]:
    """The lines of a unified diff; none: both are equal. Bodies by their types."""
    for side in ("request", "response"):
        for part, lines_of in (("head", head_of), ("body", body_of)):
            yield from compare(lines_of(one, side), lines_of(other, side),
                               f"flow {one.id}, {side} {part}",
                               f"flow {other.id}, {side} {part}")


def compare(one: list[str], other: list[str], name: str, other_name: str
            ) -> Iterator[str]:
    if one == other:
        return
    if max(len(one), len(other)) > MOST_LINES:
        yield from (f"--- {name}", f"+++ {other_name}",
                    f"(more than {MOST_LINES} lines, and not the same)")
        return
    yield from difflib.unified_diff(one, other, name, other_name, lineterm="", n=2)


def head_of(flow: Flow, side: str) -> list[str]:
    return (getattr(flow, f"{side}_head") or "").rstrip().splitlines()


def body_of(flow: Flow, side: str) -> list[str]:
    body = getattr(flow, f"{side}_body")
    fields: Fields = getattr(flow, f"{side}_fields")
    return list(show_body(body, find(fields, "content-type"), "auto",
                          find(fields, "grpc-encoding"))) if body else []
