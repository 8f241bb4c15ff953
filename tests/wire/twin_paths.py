"""The twin's paths: RFC 3986 section 3.3, and the readings of servers (R56)."""

import functools
import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

PCHAR = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@")
MOST = 4096


def read_path(target: bytes) -> set[bytes]:
    """The readings of a target's path, without its query; empty: it is unclear."""
    path = target.partition(b"?")[0]
    if len(path) > MOST or not re.fullmatch(rb"/[!-~]*", path) or b"\\" in path:
        return set()
    if re.search(rb"%(?![0-9A-Fa-f]{2})", path):
        return set()
    if b";" in path and b"%3b" in path.lower():
        return set()
    segments = path[1:].split(b"/")
    decoded = [unquote_to_bytes(segment) for segment in segments]
    bare = [segment.partition(b";")[0] for segment in decoded]
    if b"" in bare[:-1] or {b".", b".."} & set(bare) or any(map(is_odd, decoded)):
        return set()
    found = {
        b"".join(b"/" + spell(segment, decode, drop) for segment in segments)
        for decode in (False, True) for drop in (False, True)}
    return found if max(map(len, found)) <= MOST else set()


def is_odd(segment: bytes) -> bool:
    """Slashes, controls, a second encoding, and octets that no UTF-8 has."""
    return bool(re.search(rb"[\x00-\x1f\x7f/\\]|%[0-9A-Fa-f]{2}|[\xc0\xc1]"
                          rb"|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]", segment))


def spell(segment: bytes, decode: bool, drop: bool) -> bytes:
    out = b""
    for unit in units(segment):
        octet = int(unit[1:], 16) if len(unit) == 3 else unit[0]
        sent = bytes([octet]) if len(unit) == 1 or decode else b""
        if drop and sent == b";":
            break
        out += sent if octet in PCHAR and sent else b"%%%02X" % octet
    return out


def units(text: bytes) -> list[bytes]:
    return re.findall(rb"%[0-9A-Fa-f]{2}|.", text, re.S)


def is_like(pattern: list[bytes], items: list[bytes], star: bytes,
            fits: Callable[[bytes, bytes], bool]) -> bool:
    """Whether the items fit the pattern; `star` in it is any number of items."""
    @functools.cache
    def go(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(items)
        if pattern[i] == star:
            return any(go(i + 1, k) for k in range(j, len(items) + 1))
        return j < len(items) and fits(pattern[i], items[j]) and go(i + 1, j + 1)
    return go(0, 0)


def is_match(glob: str, path: bytes) -> bool:
    """`glob` in canonical spelling: %2A is an asterisk."""
    return is_like(glob.encode()[1:].split(b"/"), path[1:].split(b"/"), b"**",
                   lambda one, segment: is_like(
                       units(one), units(segment), b"*",
                       lambda a, b: b == (b"*" if a == b"%2A" else a)))


def meets(globs: tuple[str, ...], target: bytes, any_reading: bool) -> bool:
    """Whether each reading, or any, matches a glob."""
    readings = read_path(target)
    if not readings:
        return any_reading
    matched = [any(is_match(glob, one) for glob in globs) for one in readings]
    return any(matched) if any_reading else all(matched)
