"""A captured request as a command of curl, a call of fetch or of httpx, or as
`/flows/send` takes it; and the lines in which two exchanges differ."""

import difflib
import json
from base64 import b64encode, encodebytes
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cutthrough.capture.query import QueryError, Request
from cutthrough.capture.send import replay_of
from cutthrough.capture.views import show_body
from cutthrough.exchange.flow import Fields, Flow, find
from cutthrough.exchange.visible import shell_format, shell_word, visible

# Octets of a body in an argument or a format: Linux gives an argument 128 KiB
MOST_WORD = 16 << 10
# Lines of each side of a difference: if there are more, none is looked for
MOST_LINES = 20_000


def copy_as(flow: Flow, form: str) -> str:
    """The same request in one of FORMS. Values that were not kept are named in its
    first line; in JSON they are a list, `left`. Raises QueryError: the form has no such
    request."""
    request, left = replay_of(flow)
    if form == "json":
        encoded = msgspec.json.encode({"request": request, "left": left})
        text = json.dumps(json.loads(encoded), separators=(",", ":"))
        return text.replace("\x7f", "\\u007f") + "\n"
    mark = "//" if form == "fetch" else "#"
    note = visible(f"{mark} not kept: {', '.join(left)}", "") + "\n" if left else ""
    return note + _WRITERS[form](request)


def _json(value: Any) -> str:
    """JSON of printable ASCII."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def head_octets(text: str) -> bytes:
    """Returns the octets of a part of a head, which is text of ISO-8859-1; that of an
    imported one may have other characters."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def quote(text: str) -> str:
    return shell_word(head_octets(text))


def as_curl(request: Request) -> str:
    words = ["curl --globoff --path-as-is"]
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
        return _with_body(words, request.body)
    return _command(words)


def _with_body(words: list[str], body: bytes) -> str:
    """A text is an argument if it has no line ends; other bodies come by standard
    input, because that has no bound, and no shell changes them. In base64 a line has 76
    characters, because some terminals cut long ones."""
    if b"\0" in body or len(body) > MOST_WORD:
        return (_command(["base64 -d <<'END' | " + words[0], *words[1:],
                          "--data-binary @-"]) + encodebytes(body).decode() + "END\n")
    word = shell_word(body)
    if word.startswith("'"):
        return _command([*words, f"--data-raw {word}"])
    return _command([f"printf {shell_format(body)} | {words[0]}", *words[1:],
                     "--data-binary @-"])


def _command(words: list[str]) -> str:
    return " \\\n  ".join(words) + "\n"


def as_fetch(request: Request) -> str:
    """Raises QueryError."""
    if request.body and request.method in ("GET", "HEAD"):
        raise QueryError(f"fetch sends no body with {request.method}: take curl or "
                         "httpx", 409)
    fields = [(name, head_octets(value).decode("latin-1"))
              for name, value in request.fields]
    lines = [f"  method: {_json(request.method)},", f"  headers: {_json(fields)},"]
    if request.body:
        lines.append(f"  body: {_body_of_fetch(request)},")
    return "\n".join([f"await fetch({_json(request.url)}, {{", *lines, "});\n"])


def _body_of_fetch(request: Request) -> str:
    """A text, which is sent in UTF-8, or bytes if there is no type, because with a text
    fetch would send one of its own."""
    try:
        text = request.body.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and "\0" not in text and find(
            list(request.fields), "content-type"):
        return _json(text)
    return (f'Uint8Array.from(atob("{b64encode(request.body).decode()}"), '
            "octet => octet.charCodeAt(0))")


def as_httpx(request: Request) -> str:
    lines = [f"    {request.method!a}, {request.url!a},", "    headers=[",
             *(f"        ({name.encode()!r}, {head_octets(value)!r}),"
               for name, value in request.fields), "    ],"]
    if request.body:
        lines.append(f"    content={request.body!r},")
    return "\n".join(["import httpx", "", "response = httpx.request(", *lines, ")\n"])


_WRITERS: dict[str, Callable[[Request], str]] = {
    "curl": as_curl, "fetch": as_fetch, "httpx": as_httpx}
FORMS = (*_WRITERS, "json")


def differences(flow: Flow, other: Flow) -> Iterator[str]:
    """The lines of a unified diff; none: both are equal. Bodies by their types."""
    for side in ("request", "response"):
        for part, lines_of in (("head", head_of), ("body", body_of)):
            yield from compare(lines_of(flow, side), lines_of(other, side),
                               f"flow {flow.id}, {side} {part}",
                               f"flow {other.id}, {side} {part}")


def compare(lines: list[str], other: list[str], name: str, other_name: str
            ) -> Iterator[str]:
    if lines == other:
        return
    if max(len(lines), len(other)) > MOST_LINES:
        yield from (f"--- {name}", f"+++ {other_name}",
                    f"(more than {MOST_LINES} lines, and not the same)")
        return
    yield from difflib.unified_diff(lines, other, name, other_name, lineterm="", n=2)


def head_of(flow: Flow, side: str) -> list[str]:
    return (getattr(flow, f"{side}_head") or "").rstrip().splitlines()


def body_of(flow: Flow, side: str) -> list[str]:
    body = getattr(flow, f"{side}_body")
    fields: Fields = getattr(flow, f"{side}_fields")
    return list(show_body(body, find(fields, "content-type"), "auto",
                          find(fields, "grpc-encoding"))) if body else []
