"""Forms as lines: one for each field, files with their type and size.

Urlencoded ones as the URL standard has it (section 5.1), multipart ones as RFC 7578.
The further lines of a value are indented, so that no value looks like another field.
"""

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote_plus

from cutthrough.exchange.content import as_text
from cutthrough.exchange.protobuf import Malformed

MOST_FIELDS = 10_000
PAD = "    "

# Shows a part's content by its type
ShowPart = Callable[[str | bytes, str], Iterator[str]]

_BOUNDARY = re.compile(r";\s*boundary\s*=\s*(?:\"([^\"]+)\"|([^\s;]+))", re.I)
_FIELD = re.compile(rb"(?:^|\n)(content-(?:disposition|type))[ \t]*:[ \t]*([^\r\n]*)",
                    re.I)


def is_multipart(kind: str) -> bool:
    return kind.lower().startswith("multipart/")


def show_form(data: bytes, kind: str, show: ShowPart) -> Iterator[str]:
    """`kind`: the content type. Raises Malformed before the first line."""
    if is_multipart(kind):
        yield from show_multipart(data, kind, show)
        return
    for number, pair in enumerate(data.decode(errors="replace").strip().split("&")):
        if number == MOST_FIELDS:
            yield "(more fields are not shown)"
            return
        if pair:
            name, _, value = pair.partition("=")
            yield from show_field(unquote_plus(name), unquote_plus(value))


def show_field(name: str, value: str) -> Iterator[str]:
    first, *rest = value.splitlines() or [""]
    yield f"{on_one_line(name)}: {first}"
    yield from (f"{PAD}{line}" for line in rest)


def on_one_line(text: str) -> str:
    return " ".join(text.splitlines())


def show_multipart(data: bytes, kind: str, show: ShowPart) -> Iterator[str]:
    match = _BOUNDARY.search(kind)
    if match is None:
        raise Malformed("its type has no boundary")
    mark = b"\r\n--" + (match[1] or match[2]).encode(errors="replace")
    at = (b"\r\n" + data).find(mark)
    if at < 0:
        raise Malformed("its boundary is not in it")
    at += len(mark) - 2
    for _ in range(MOST_FIELDS):
        if data.startswith(b"--", at):       # the last boundary
            return
        begin = data.find(b"\n", at) + 1     # behind it there may be white space
        end = data.find(mark, max(begin - 2, 0))
        if not begin or end < 0:
            if begin and begin < len(data):
                yield from show_part(data[begin:], show)
            yield "(its end is missing)"
            return
        yield from show_part(data[begin:end], show)
        at = end + len(mark)
    yield "(more parts are not shown)"


def show_part(part: bytes, show: ShowPart) -> Iterator[str]:
    head, _, content = (b"\r\n" + part).partition(b"\r\n\r\n")
    fields = {name.lower(): value.decode(errors="replace").strip()
              for name, value in _FIELD.findall(head)}
    disposition = fields.get(b"content-disposition", "")
    kind = fields.get(b"content-type", "")
    name = parameter(disposition, "name")
    file = parameter(disposition, "filename")
    text = as_text(content, kind or "text/plain", whole=True)
    if file is None and not kind and text is not None:
        yield from show_field(name or "", text)
        return
    words = [*([f'file "{on_one_line(file)}"'] if file is not None else []),
             *([kind] if kind else []), f"{len(content)} bytes"]
    yield f"{on_one_line(name or '')}: ({', '.join(words)})"
    yield from (f"{PAD}{line}" for line in show(
        content if text is None else text, kind))


def parameter(text: str, name: str) -> str | None:
    match = re.search(rf'(?:^|;)\s*{name}\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s;]*))',
                      text, re.I)
    if match is None:
        return None
    return match[2] if match[1] is None else re.sub(r'\\(["\\])', r"\1", match[1])
