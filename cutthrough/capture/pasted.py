"""A command of curl, as browsers and other programs copy it, as a request.

    curl 'https://host/path' -H 'name: value' --data-raw '{"a": 1}'

The words are read by the quotes of POSIX shells and `$'…'`. Nothing is expanded or run,
and no file is read: a command that needs that is refused. Source: curl(1), and POSIX.1
2.2 "Quoting".
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote_plus

from cutthrough.capture.query import QueryError, Request

MOST_TEXT = 4 << 20                          # characters

_PIECE = re.compile(r"""
    (?P<blank>(?:[ \t\r\n]|\\\r?\n)+)
  | (?P<ansi>\$'(?:[^'\\]|\\.)*')
  | (?P<single>'[^']*')
  | (?P<double>"(?:[^"\\]|\\.)*")
  | (?P<escape>\\.)
  | (?P<plain>[^\s'"\\$`;|&<>()]+)
""", re.X | re.S)
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r",
            "t": "\t", "v": "\v"}
_CODE = re.compile(r"""
    (?P<octets>(?:\\x[89a-fA-F][0-9a-fA-F]|\\[23][0-7]{2})+)
  | (?P<units>(?:\\u[0-9a-fA-F]{1,4})+)
  | \\(?:U(?P<point>[0-9a-fA-F]{1,8})|x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})
        |(?P<other>.))
""", re.X | re.S)
_QUOTED = re.compile(r'\\(?:\r?\n|(["\\$`]))|[$`]')
# Of curl's options: those with a value, and those without, by their kind here
_VALUES = {
    "-X": "method", "--request": "method", "--url": "url",
    "-H": "field", "--header": "field", "-A": "User-Agent", "--user-agent":
    "User-Agent", "-e": "Referer", "--referer": "Referer", "-b": "Cookie",
    "--cookie": "Cookie", "-u": "login", "--user": "login",
    "-d": "text", "--data": "text", "--data-ascii": "text", "--data-binary": "text",
    "--data-raw": "raw", "--data-urlencode": "pair", "--json": "json",
    **dict.fromkeys((
        "-m", "--max-time", "--connect-timeout", "-o", "--output", "-w", "--write-out",
        "-x", "--proxy", "--cacert", "--retry", "--max-redirs"), "")}
_FLAGS = {
    "-I": "HEAD", "--head": "HEAD", "-G": "get", "--get": "get",
    **dict.fromkeys((
        "-s", "--silent", "-S", "--show-error", "-i", "--include", "-k", "--insecure",
        "-L", "--location", "-v", "--verbose", "-f", "--fail", "-g", "--globoff", "-N",
        "--no-buffer", "-O", "--remote-name", "--compressed", "--path-as-is",
        "--http1.1", "--http2"), "")}
OF_FILE = "the command names a file, and files are not read"
_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"


def read_curl(text: str) -> Request:
    """Options about the connection and the output are left out. Raises QueryError."""
    if len(text) > MOST_TEXT:
        raise QueryError(f"the command has more than {MOST_TEXT} characters", 413)
    words = split_words(text.strip())
    if not words or words[0] not in ("curl", "curl.exe"):
        raise QueryError("the command does not begin with curl", 400)
    urls: list[str] = []
    fields: list[tuple[str, str]] = []
    data: list[str] = []
    method, flags, kinds = "", set(), set()
    for kind, value in read_options(words[1:]):
        if kind == "url":
            urls.append(value)
        elif kind == "method":
            method = value
        elif kind == "field":
            fields += read_field(value)
        elif kind == "login":
            fields.append(
                ("Authorization", f"Basic {b64encode(value.encode()).decode()}"))
        elif kind in ("text", "raw", "pair", "json"):
            kinds.add(kind)
            data.append(read_data(kind, value))
        elif kind in ("HEAD", "get"):
            flags.add(kind)
        elif kind and value:
            if kind == "Cookie" and "=" not in value:
                raise QueryError(OF_FILE, 400)
            fields.append((kind, value))
    if len(urls) != 1:
        raise QueryError(f"the command has {len(urls)} URLs", 400)
    url, body = urls[0] if "://" in urls[0] else f"http://{urls[0]}", ""
    if data:
        body = ("" if "json" in kinds else "&").join(data)
    if "get" in flags:
        url, body = f"{url}{'&' if '?' in url else '?'}{body}" if data else url, ""
    elif data:
        names = {name.lower() for name, _ in fields}
        implied = [("Content-Type", _JSON if "json" in kinds else _FORM)]
        if "json" in kinds:
            implied.append(("Accept", _JSON))
        fields += [field for field in implied if field[0].lower() not in names]
    method = method or ("HEAD" if "HEAD" in flags else
                        "POST" if data and "get" not in flags else "GET")
    authority = url.partition("://")[2].partition("/")[0]
    return Request(
        url=url.partition("#")[0], method=method, body=body.encode(), fields=tuple(
            (name, value) for name, value in fields
            if (name.lower(), value) != ("host", authority)))


def split_words(text: str) -> list[str]:
    """The words of a command. Raises QueryError if a shell would do more than split."""
    words: list[list[str]] = []              # the pieces of each
    open_word, place = False, 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            raise QueryError(f"at {text[place:place + 12]!r}: a shell would do more "
                             "here than split words", 400)
        kind, place = str(piece.lastgroup), piece.end()
        if kind == "blank":
            open_word = False
            continue
        if not open_word:
            words.append([])
            open_word = True
        words[-1].append(read_piece(kind, piece[0]))
    return ["".join(pieces) for pieces in words]


def read_piece(kind: str, text: str) -> str:
    """A part of a word without its quotes. Raises QueryError."""
    if kind == "ansi":
        return _CODE.sub(read_code, text[2:-1])
    if kind == "single":
        return text[1:-1]
    if kind == "double":
        return _QUOTED.sub(read_quoted, text[1:-1])
    return text[1:] if kind == "escape" else text


def read_quoted(quoted: re.Match[str]) -> str:
    """Between double quotes. Raises QueryError."""
    if quoted[0] in "$`":
        raise QueryError(f"{quoted[0]!r}: a shell would expand this", 400)
    return quoted[1] or ""


def read_code(code: re.Match[str]) -> str:
    """What backslashes stand for between `$'` and `'`. Raises QueryError."""
    if code["octets"]:
        octets = bytes(int(text[1:], 16) if text[0] == "x" else int(text, 8)
                       for text in code["octets"].split("\\")[1:])
        try:
            return octets.decode()
        except UnicodeDecodeError:           # Firefox writes U+00E9 as \xe9
            return octets.decode("latin-1")
    try:
        if code["units"]:                    # browsers write U+1F600 as \ud83d\ude00
            units = [int(text, 16) for text in code["units"].split("\\u")[1:]]
            return b"".join(unit.to_bytes(2) for unit in units).decode("utf-16-be")
        if code["point"]:
            return int(code["point"], 16).to_bytes(4).decode("utf-32-be")
    except UnicodeDecodeError:
        raise QueryError(f"{code[0][:40]}: no character", 400) from None
    if code["other"] is not None:
        return _ESCAPES.get(code["other"], code["other"])
    return chr(int(code["octal"], 8) & 0xFF if code["octal"] else int(code["hex"], 16))


def read_options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yields each option's kind, and its value. Raises QueryError."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            yield "url", word
        elif word in _FLAGS:
            yield _FLAGS[word], ""
        elif word in _VALUES:
            value = next(rest, None)
            if value is None:
                raise QueryError(f"{word} has no value", 400)
            yield _VALUES[word], value
        elif word[:2] in _VALUES and not word.startswith("--"):
            yield _VALUES[word[:2]], word[2:]            # -XPOST
        elif all(f"-{letter}" in _FLAGS for letter in word[1:]):         # -sSL
            yield from ((_FLAGS[f"-{letter}"], "") for letter in word[1:])
        else:
            raise QueryError(f"{word}: this option of curl is not known here", 400)


def read_field(text: str) -> list[tuple[str, str]]:
    """`name: value`, `name;` for an empty value, `name:` for none of this name."""
    name, colon, value = text.partition(":")
    if colon:
        return [(name.strip(), value.strip())] if value.strip() else []
    if not text.endswith(";"):
        raise QueryError(f"-H {text[:40]!r} is no field", 400)
    return [(text[:-1].strip(), "")]


def read_data(kind: str, value: str) -> str:
    """Raises QueryError if it is in a file."""
    name, equals, content = value.partition("=")
    if "@" in name if kind == "pair" else kind != "raw" and value.startswith("@"):
        raise QueryError(OF_FILE, 400)
    if kind != "pair":
        return value
    if not equals:
        return quote_plus(name)
    return f"{name}={quote_plus(content)}" if name else quote_plus(content)
