"""Protects the admin listener from other sites' pages in an operator's browser (R39).

Requests from other sites' pages are refused, no answer may be framed, and the number of
watchers is limited per address, because any page can make the browser send requests,
and they come from the operator's own address.
"""

import asyncio
import ipaddress
import socket
import struct
from typing import Any

from aiohttp import web

# Header fields of every answer: no other site may frame or read it
PROTECTED = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
CROSS_SITE = ("cross-site request refused: only the live page, a link to it and "
              "clients other than browsers are allowed\n")


def request_key(name: str) -> Any:
    """Returns the key of a value that a request keeps. Since aiohttp 3.14 strings cause
    a warning."""
    key_class = getattr(web, "RequestKey", None)
    return name if key_class is None else key_class(name, object)


# Its watcher_key
WATCHER = request_key("watcher")
UCRED = struct.Struct("3i")                  # pid, uid, gid: unix(7), SO_PEERCRED


def is_cross_site(request: web.Request) -> bool:
    """Is this a request from another site's page?

    A browser names the site in a field that no script can set: Sec-Fetch-Site (W3C
    Fetch Metadata) or, if it is older, Origin (RFC 6454). Other clients send neither.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is None:
        origin = request.headers.get("Origin")
        return origin is not None and origin.lower().partition("://")[2] != (
            request.headers.get("Host", "").lower())
    if site in ("same-origin", "none"):      # none: a typed address or a bookmark
        return False
    # A link may open any path but /events, because the other site cannot see into the
    # page that it opens. /events is refused: it would use up a watcher's place.
    return not (request.method == "GET" and request.path != "/events"
                and request.headers.get("Sec-Fetch-Mode") == "navigate"
                and request.headers.get("Sec-Fetch-Dest") == "document")


def watcher_key(request: web.Request) -> tuple[str, str]:
    """Returns the key by which a watcher is counted, and its kind: the address, of IPv6
    the /64 network, as limits count it; over a unix socket the user. The request keeps
    it, because a watcher that has left has no address any more."""
    key: tuple[str, str] | None = request.get(WATCHER)
    if key is None:
        key = request[WATCHER] = _key_of(request.transport)
    return key


def _key_of(transport: asyncio.Transport | None) -> tuple[str, str]:
    if transport is None:                    # left before its request was answered
        return "", "address"
    sock = transport.get_extra_info("socket")
    if sock.family == socket.AF_UNIX:
        _, uid, _ = UCRED.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
        return f"uid {uid}", "user"
    address = ipaddress.ip_address(transport.get_extra_info("peername")[0])
    if address.version == 6:
        return str(ipaddress.ip_network((int(address), 64), strict=False)), "address"
    return str(address), "address"
