"""The second half of docs/endings.md: every reason, whose fault it is, what to do.

Made from the table of endings and from what stands here: `python -m
cutthrough.tools.endings_docs docs/endings.md` writes it anew behind its heading, which
`make docs` calls. A test holds the committed page to it, and every reason to an advice.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from cutthrough.outcome import TABLE as OUTCOMES

HEADING = "## Every reason\n"
OPENING = """\
Made by `make docs` from `cutthrough/outcome.pyx` and
`cutthrough/tools/endings_docs.py`; change it there.

The word stands in the access log (`reason`, `%ct::reason`, `%err_code`), in the reply's
body, in metrics and on the live page. The status is what the client gets if no response
has begun; - is none: the connection is closed or reset. The error is that of
`Proxy-Status` (RFC 9209).

| reason | status | error | whose | what it means | what to do |
|---|---|---|---|---|---|"""

WHOSE = {"": "nobody's", "client": "the client's", "policy": "the policy's",
         "network": "the network's", "origin": "the origin's", "proxy": "the proxy's"}

NOTHING = "nothing"
CLIENT_PROGRAM = "look at the client program: what it sends is not valid HTTP/1.1"
ADVICE = {
    "ok": NOTHING,
    "bad_request": CLIENT_PROGRAM + "; the body of the reply says more where it can",
    "bad_target": CLIENT_PROGRAM + "; the log's `url` shows what was asked for",
    "bad_framing": CLIENT_PROGRAM + "; if many clients have it, look for an attack",
    "bad_credentials_field": "see that one program only adds credentials",
    "no_origin": "configure the client to use a proxy; or set `origin`",
    "unsupported_coding": "have the client send `chunked`, or a length",
    "unsupported_version": "have the client speak HTTP/1.1",
    "head_too_large": (
        "raise `max_head` or `max_fields`, or find out what grows: cookies"),
    "uri_too_long": "raise `max_line`, or have the client send a body instead",
    "body_too_large": "raise `max_body` if such uploads are wanted",
    "head_timeout": (
        "nothing for single ones; many of one address are an attack, or a browser's "
        "spare connections: `head_timeout`"),
    "body_timeout": "look at the client's network; `body_timeout`, `min_rate`",
    "final_recipient": "nothing: it was answered here, as Max-Forwards asked",
    "trace_refused": NOTHING,
    "auth_required": (
        "nothing for a first request, which browsers send without; else give the "
        "client a user and a password"),
    "auth_failed": (
        "correct the client's password; `tried_user` in the log has the name"),
    "auth_expired": "give the user a new date in `users_file`, and reload",
    "auth_throttled": (
        "wait as long as Retry-After says; find who guesses by `client` and "
        "`tried_user`"),
    "destination_denied": (
        "`cutthrough explain` names the rule; change the policy if the destination is "
        "wanted"),
    "address_denied": (
        "name the addresses in a rule that allows them if they are wanted; if a public"
        " name led there, somebody tries to reach your network"),
    "port_denied": "add the port to `connect_ports`",
    "policy_unavailable": (
        "look at the error log for the hook's fault, or raise `policy_hook_timeout`"),
    "loop_detected": (
        "see that the client does not ask for the proxy itself, and that two proxies "
        "do not ask each other"),
    "client_limit": "raise `max_connections_per_client` if many users share an address",
    "user_limit": "raise `connections` or `tunnels` of the user's limits",
    "rate_limited": "raise `requests_per_second` or `burst` of the user's limits",
    "quota_exceeded": "raise `bytes_per_day`, or wait for midnight UTC",
    "question_limit": (
        "see why this user's names or the policy's hook are so slow to answer"),
    "dns_error": "ask the same name server yourself, and see `resolvers`",
    "dns_not_found": "nothing, if the name is wrong; else see `resolvers`",
    "dns_timeout": "look at the name servers and the way to them; `dns_timeout`",
    "connection_refused": "see that the origin listens at this port",
    "connection_reset": (
        "look for a firewall before the origin, or an origin that is full"),
    "connection_failed": "the error log's `trace` has the errno",
    "unreachable": "look at this host's routes, and whether it has IPv6",
    "connect_timeout": "look for a firewall that drops; `connect_timeout`",
    "origin_closed": "look at the origin's own log; it may have restarted",
    "origin_reset": "look at the origin's own log; the error log has a `trace`",
    "bad_response": "have the origin corrected; the error log has a `trace`",
    "bad_response_framing": (
        "have the origin corrected: nobody can tell where its response ends"),
    "response_head_too_large": "have the origin send less, cookies perhaps",
    "upgrade_failed": "have the origin corrected",
    "response_timeout": "look at what the origin is busy with; `response_timeout`",
    "response_truncated": (
        "look at the origin's own log; the client asks for the rest, or again"),
    "client_closed": "nothing: users close tabs, programs give up",
    "client_reset": "nothing: users close tabs, programs give up",
    "idle_timeout": "raise `idle_timeout` if such connections are meant to rest",
    "write_timeout": "look at the network of the peer that takes so slowly; `min_rate`",
    "half_closed_timeout": (
        "raise `half_closed_timeout` if one side is meant to be silent"),
    "lifetime": "raise `lifetime` if it may last longer",
    "keepalive_timeout": NOTHING,
    "auth_timeout": (
        "see how many hashes wait; give them more CPU, a lower cost, or raise "
        "`auth_timeout`"),
    "overloaded": (
        "see which bound it is: `max_connections`, descriptors (`cutthrough doctor`), "
        "buffers, the queue for hashes"),
    "drained": "raise `drain_timeout` if such connections may end in their own time",
    "stopped": NOTHING,
    "cut": "ask who has the admin token",
    "internal_error": "report it, with the traceback of the error log",
}


def lines() -> Iterator[str]:
    yield OPENING
    for row in OUTCOMES:
        yield (f"| `{row.label}` | {row.status or '-'} | {row.token or '-'} "
               f"| {WHOSE[row.fault]} | {row.meaning} | {ADVICE[row.label]} |")


def render(page: str) -> str:
    """Returns the page with its second half made anew."""
    return f"{page.partition(HEADING)[0]}{HEADING}\n" + "\n".join(lines()) + "\n"


def main(path: Path) -> None:
    path.write_text(render(path.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
