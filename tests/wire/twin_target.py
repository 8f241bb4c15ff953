"""The twin's targets and Host fields: RFC 9112 section 3.2, RFC 3986 section 3.2."""

import re
import socket
from typing import Any, NamedTuple


class Target(NamedTuple):
    form: str                       # origin, absolute, authority, asterisk
    host: str
    kind: str                       # name, ipv4, ipv6
    port: int
    path: bytes


def read_target(head: Any) -> Target | str:
    method, target = head.first
    hosts = head.values(b"host")
    if len(hosts) > 1 or (not hosts and head.minor == 1):
        return "bad_request"        # section 3.2: exactly one; HTTP/1.0 may have none
    if b"#" in target:
        return "bad_target"         # RFC 9110 section 7.1: a fragment is not sent
    if target == b"*" and method == b"OPTIONS" and not hosts:
        return "bad_target"         # HTTP/1.0, and no field names the server
    host = read_authority(hosts[0], 80) if hosts else ("", "name", 80)
    schemes = rb"http|ws" if head.values(b"upgrade") else rb"http"
    absolute = re.fullmatch(rb"(?i:%b)://([^/?]*)(.*)" % schemes, target, re.S)
    if method == b"CONNECT":
        form, place, path = "authority", read_authority(target), b""
    elif absolute:
        form, place, path = "absolute", read_authority(absolute[1], 80), absolute[2]
    elif target[:1] == b"/" or (target == b"*" and method == b"OPTIONS"):
        form, place = "origin" if target[:1] == b"/" else "asterisk", host
        path = target
    else:
        return "bad_target"         # another scheme, or no form at all
    if form in ("authority", "absolute") and place is None:
        return "bad_target"
    if form in ("authority", "absolute"):
        # The target wins (section 3.2.2); an invalid Host is refused too (3.2).
        if hosts and not is_uri_host(hosts[0]):
            return "bad_request"
    elif host is None:
        return "bad_request"
    return Target(form, *place, path)


def read_authority(text: bytes, port: int = 0) -> tuple[str, str, int] | None:
    """uri-host [ ":" port ] without userinfo, as (host, kind, port)."""
    bare = re.fullmatch(rb"([^\[]*:[^\[]*)(:[0-9]*)", text, re.S)
    if bare and not port:           # an IPv6 address, because there must be a port
        text = b"[%b]%b" % bare.groups() if b"%" not in bare[1] else text
    found = re.fullmatch(rb"(\[[^]]*\]|[^:]*)(?::([0-9]{1,5}))?", text, re.S)
    if not found or not (found[2] or port):
        return None
    host = read_host(found[1])
    port = int(found[2] or port)
    return (*host, port) if host and 1 <= port <= 65535 else None


def read_host(text: bytes) -> tuple[str, str] | None:
    if text[:1] == b"[":
        # RFC 6874: a zone is the client's business, and dropped. No IPvFuture.
        inside = re.sub(rb"%25([A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+\Z", b"", text[1:-1])
        if not re.fullmatch(rb"[0-9a-fA-F:.]*", inside):
            return None
        try:
            packed = socket.inet_pton(socket.AF_INET6, inside.decode())
        except OSError:
            return None
        return socket.inet_ntop(socket.AF_INET6, packed), "ipv6"
    name = text.lower().removesuffix(b".")
    labels = name.split(b".")
    if len(name) > 253 or not all(
            re.fullmatch(rb"[a-z0-9_-]{1,63}", label) for label in labels):
        return None
    # As in the URL standard: if the last label is a number, all of it is an address.
    if not re.fullmatch(rb"[0-9]+|0x[0-9a-f]*", labels[-1]):
        return name.decode(), "name"
    numbers = [read_number(label) for label in labels]
    if None in numbers or len(numbers) > 4:
        return None
    *octets, last = numbers
    if any(octet > 255 for octet in octets) or last >= 256 ** (4 - len(octets)):
        return None
    packed = bytes(octets) + last.to_bytes(4 - len(octets), "big")
    return socket.inet_ntop(socket.AF_INET, packed), "ipv4"


def is_uri_host(text: bytes) -> bool:
    """uri-host [ ":" port ] of RFC 3986, sections 3.2.2 and 3.2.3."""
    found = re.fullmatch(rb"(\[[^]]*\]|[^:]*)(?::[0-9]*)?", text, re.S)
    if not found:
        return False
    char = rb"[A-Za-z0-9._~!$&'()*+,;=-]"
    if found[1][:1] != b"[":
        return re.fullmatch(rb"(?:%b|%%[0-9A-Fa-f]{2})*" % char, found[1]) is not None
    future = rb"\[[vV][0-9A-Fa-f]+\.(?:%b|:)+\]" % char
    return re.fullmatch(future, found[1]) is not None or read_host(found[1]) is not None


def read_number(label: bytes) -> int | None:
    """Decimal, 0octal or 0xhex, as inet_aton reads it."""
    for form, base in ((rb"0x[0-9a-f]+", 16), (rb"0[0-7]*", 8), (rb"[1-9][0-9]*", 10)):
        if re.fullmatch(form, label):
            return int(label, base)
    return None
