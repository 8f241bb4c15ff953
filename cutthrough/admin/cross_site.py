"""The admin listener and other sites: what a page in an operator's browser may not do.

A browser sends what any page has it send, from an operator's own address. So a page of
another site is refused, no answer may be framed, and the places for watchers are shared
out by address (R39).
"""

import ipaddress
import socket
import struct

from aiohttp import web

# Of every answer: no other site frames it or reads it
PROTECTED = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
# Of the page: it loads nothing, and asks this listener only
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'")
FOREIGN = ("cross-site request refused: only the live page, a link to it and clients "
           "other than browsers are allowed\n")
UCRED = struct.Struct("3i")                  # pid, uid, gid: unix(7), SO_PEERCRED


def is_foreign(request: web.Request) -> bool:
    """Does a page of another site ask? A browser says where a request comes from, in
    fields that no script can set: Sec-Fetch-Site (W3C Fetch Metadata), or Origin (RFC
    6454) where it is older. What is no browser sends neither."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is None:
        origin = request.headers.get("Origin")
        return origin is not None and origin.lower().partition("://")[2] != (
            request.headers.get("Host", "").lower())
    if site in ("same-origin", "none"):      # none: typed, or a bookmark
        return False
    # A link leads to the page, where nothing of the other site can see it. Not to
    # /events: it would take a place there.
    return not (request.method == "GET" and request.path != "/events"
                and request.headers.get("Sec-Fetch-Mode") == "navigate"
                and request.headers.get("Sec-Fetch-Dest") == "document")


def watcher_of(request: web.Request) -> tuple[str, str]:
    """Whose share of the places is asked for: of an address, of IPv6 the network, as
    limits have it; over a unix socket, where all have the same one, of a user."""
    assert request.transport is not None
    sock = request.transport.get_extra_info("socket")
    if sock.family == socket.AF_UNIX:
        _, uid, _ = UCRED.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
        return f"uid {uid}", "user"
    address = ipaddress.ip_address(request.transport.get_extra_info("peername")[0])
    if address.version == 6:
        return str(ipaddress.ip_network((int(address), 64), strict=False)), "address"
    return str(address), "address"
