"""Reads hosts and networks of policy files into the one canonical form (R25).

The hosts of requests and of rules both go through `wire.target`, because two hosts that
are compared must have the same spelling. If a host has none, it is refused here.
"""

import ipaddress
import re
from typing import Any

from cutthrough.wire.target import read_authority

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
# Characters that every reading of a path leaves as they are: see wire.paths
_SEGMENTS = re.compile(r"(/[A-Za-z0-9._~!$&'()+,=:@-]+){0,32}")
MOST_PATH = 256


def canonical_host(text: str) -> tuple[str, bool]:
    """Returns a host in canonical form, and whether it is an address.

    Accepts U-labels (RFC 5890), which become A-labels, and IPv6 with or without
    brackets. Raises ValueError.
    """
    host = text
    if not text.isascii():
        import idna  # its tables are large, and few files need them

        try:
            host = idna.encode(text, uts46=True).decode()
        except UnicodeError as error:
            raise ValueError(f"{text!r} is not a host name: {error}") from None
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    # Port 1 is the default here: any other port shows in the text that is not the host.
    authority = read_authority(host.encode(), 1)
    if isinstance(authority, str) or (host.startswith("[") and not host.endswith("]")):
        raise ValueError(f"{text!r} is not a host name or address{_hint(text)}")
    return authority["host"], authority["kind"] != "name"


def _hint(text: str) -> str:
    if "/" in text and text[-1:].isdigit() and "://" not in text:
        return "; networks belong in `addresses`"
    if "/" in text:
        return "; leave out the scheme and the path"
    return "; ports belong in `ports`" if ":" in text else ""


def host_patterns(text: str) -> tuple[str, ...]:
    """Reads an entry of `hosts`: a host, `*.suffix`, or `.suffix` for both.

    Returns patterns of the first two kinds. Raises ValueError.
    """
    below = text.startswith("*.")
    both = text.startswith(".")
    name = text[2:] if below else text[1:] if both else text
    if name in ("", "*"):
        raise ValueError(f"{text!r} matches every host: leave out `hosts` instead")
    if "*" in name:
        raise ValueError(f"{text!r}: * is allowed only as the first label, as in "
                         "*.example.com")
    host, is_address = canonical_host(name)
    if is_address and name is not text:
        raise ValueError(f"{text!r}: an address has no subdomains")
    if both:
        return host, f"*.{host}"
    return (f"*.{host}",) if below else (host,)


def parse_replaced(value: Any) -> tuple[str, str]:
    """Reads `["/api", "/v2"]`: a literal prefix of paths, of whole segments, and what
    takes its place. A slash at an end does not count. Raises ValueError."""
    if not isinstance(value, list) or len(value) != 2 or not all(
            isinstance(text, str) and text.startswith("/") for text in value):
        raise ValueError('takes two paths, such as ["/api", "/v2"]: a prefix, and what '
                         'takes its place; "/" is none')
    prefix, other = (text.removesuffix("/") for text in value)
    for text in (prefix, other):
        if len(text) > MOST_PATH or not _SEGMENTS.fullmatch(text) or (
                {".", ".."} & {*text.split("/")}):
            raise ValueError(f"{text!r} is not segments of plain characters")
    if prefix == other:
        raise ValueError("changes nothing")
    return prefix, other


def canonical_network(text: str) -> str:
    """Reads a network or an address; mapped IPv4 becomes IPv4. Raises ValueError."""
    try:
        network = ipaddress.ip_network(text, strict=False)
        if "%" in text:                 # a zone (RFC 4007) has a meaning on one host
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{text!r} is not an address or a network such as 10.0.0.0/8") from None
    if ipaddress.ip_interface(text).ip != network.network_address:
        raise ValueError(
            f"{text!r} has host bits set; did you mean {network}?")
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        mapped = network.network_address.ipv4_mapped
        return f"{mapped}/{network.prefixlen - 96}"
    return str(network)
