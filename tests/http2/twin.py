"""A slow, obvious twin of the translation of heads: RFC 9113 sections 8.2 and 8.3."""

import re

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
#: What browsers leave raw in a URL, too: tests/wire/twin_target.py
TARGET = re.compile(rb"[!-~]*")
PATH = re.compile(rb"[!-~\x80-\xff]*")
SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*")
PSEUDO = (b":method", b":scheme", b":authority", b":path")
OF_CONNECTION = {b"connection", b"proxy-connection", b"keep-alive",
                 b"transfer-encoding", b"upgrade", b"http2-settings"}
Fields = list[tuple[bytes, bytes]]


def is_field(name: bytes, value: bytes) -> bool:
    return bool(
        TOKEN.fullmatch(name) and name == name.lower() and VALUE.fullmatch(value)
        and name not in OF_CONNECTION
        and (name != b"te" or value.lower() == b"trailers"))


def is_authority(text: bytes) -> bool:
    return bool(text and TARGET.fullmatch(text) and not set(text) & set(b"/?#@\\"))


def read(fields: Fields) -> dict[bytes, bytes] | None:
    """The pseudo-fields, and Host; None: malformed."""
    found: dict[bytes, bytes] = {}
    regular = False
    for name, value in fields:
        if name[:1] == b":":
            if regular or name not in PSEUDO or name in found:
                return None
            found[name] = value
            continue
        regular = True
        if not is_field(name, value):
            return None
        if name == b"host":
            if name in found:
                return None
            found[name] = value
    return found


def trimmed(fields: Fields) -> Fields:
    return [(name, value if name[:1] == b":" else value.strip(b" \t"))
            for name, value in fields]


def head_of(fields: Fields, ends: bool) -> bytes | None:
    fields = trimmed(fields)
    found = read(fields)
    if found is None or not TOKEN.fullmatch(found.get(b":method", b"")):
        return None
    method, scheme, path = (found.get(b":" + one) for one in (
        b"method", b"scheme", b"path"))
    authority = found.get(b":authority", found.get(b"host"))
    if authority is None or not is_authority(authority) or (
            b"host" in found and (not is_authority(found[b"host"])
                                  or found[b"host"].lower() != authority.lower())):
        return None
    if method == b"CONNECT":
        if scheme is not None or path is not None:
            return None
        target = authority
    else:
        if scheme is None or path is None or not SCHEME.fullmatch(scheme) or not (
                PATH.fullmatch(path) and (path[:1] == b"/" or path == b"*")):
            return None
        target = path
        if scheme.lower() != b"https":
            target = scheme + b"://" + authority + (b"" if path == b"*" else path)
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: " + authority]
    lengths = [value for name, value in fields if name == b"content-length"]
    chunked = not ends and method != b"CONNECT" and (
        not lengths
        or (length_of(fields) is not None       # HTTP/1.1 has no trailers beside it
            and any(name == b"trailer" and value for name, value in fields)))
    left_out = {b"host", b"te", b"cookie"} | ({b"content-length"} if chunked else set())
    lines += [name + b": " + value for name, value in fields
              if name[:1] != b":" and name not in left_out]
    cookies = [value for name, value in fields if name == b"cookie"]
    if cookies:
        lines.append(b"cookie: " + b"; ".join(cookies))
    if ends and method != b"CONNECT" and (length_of(fields) or 0) > 0:
        return None                     # section 8.1.1
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def length_of(fields: Fields) -> int | None:
    """By the only Content-Length; None: it is none."""
    values = [value for name, value in fields if name == b"content-length"]
    is_length = len(values) == 1 and re.fullmatch(rb"[0-9]{1,18}", values[0])
    return int(values[0]) if is_length else None


def trailers_of(fields: Fields) -> bytes | None:
    fields = trimmed(fields)
    if not all(is_field(name, value) for name, value in fields):
        return None
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields)
