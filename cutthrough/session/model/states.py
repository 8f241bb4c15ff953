"""The states of a client's connection: one table says which moves it may make.

Each state has one deadline. Its length is the option named here; its outcome is what is
logged, counted and, if a reply can still be made, replied. `state.pyx` compiles the
table and checks it against `state.pxd`. The command line reads the names too: this
module imports nothing that is compiled.
"""

from typing import NamedTuple


class Row(NamedTuple):
    name: str
    moves: tuple[str, ...]      # states that may follow
    timeout: str                # the option with the deadline's length; "": none
    outcome: str                # at the deadline


# A refused request goes to LINGER, or to IDLE if nothing is left unread: from IDLE too,
# if its head came whole and HEAD was never entered. A dead pooled connection leads back
# to RESOLVE or DIAL once (R19), and so does a dial without a descriptor after idle
# connections gave theirs (R32). An answered 101 is a tunnel. A tunnel from HEAD began
# in another worker: it is taken over, and nothing is dialled. SOCKS reads its request
# after the password was verified, in HEAD again. RESOLVE follows RESOLVE if a parent's
# name is resolved after the destination's. PARENT ends with the request, the tunnel, or
# another parent. If a transparent request's name does not resolve to its destination,
# the hook is called again, for the address, and an idle connection to it leads to
# REQUEST or RESPONSE. An intercepted CONNECT leads from SECURE to
# HEAD: the client's handshake follows, and then requests; or bytes that are no HTTP,
# which become a TUNNEL from HEAD, DECIDE or HELD, because their origin is connected.
# SECURE leads to RESOLVE or DIAL once more if an origin refuses its server name
# (retry_without_sni).
TABLE = (
    Row("HEAD", ("IDLE", "AUTH", "DECIDE", "HELD", "RESOLVE", "DIAL", "REQUEST",
                 "RESPONSE", "STREAMS", "TUNNEL", "DATAGRAMS", "LINGER", "CLOSED"),
        "head_timeout", "head_timeout"),
    Row("IDLE", ("IDLE", "HEAD", "AUTH", "DECIDE", "HELD", "RESOLVE", "DIAL", "REQUEST",
                 "RESPONSE", "LINGER", "CLOSED"),
        "keepalive_timeout", "keepalive_timeout"),
    Row("AUTH", ("HEAD", "DECIDE", "HELD", "RESOLVE", "DIAL", "REQUEST", "RESPONSE",
                 "IDLE", "LINGER", "CLOSED"), "auth_timeout", "auth_timeout"),
    Row("DECIDE", ("DECIDE", "HELD", "RESOLVE", "DIAL", "REQUEST", "RESPONSE", "TUNNEL",
                   "IDLE", "LINGER", "CLOSED"),
        "policy_hook_timeout", "policy_unavailable"),
    # Its deadline is that of what has it: a latency, filters, a player, a rate, the
    # recorder; see end_hold in act
    Row("HELD", ("DECIDE", "HELD", "RESOLVE", "DIAL", "REQUEST", "RESPONSE", "RELAY",
                 "TUNNEL", "IDLE", "LINGER", "CLOSED"), "", "filter_timeout"),
    Row("RESOLVE", ("DECIDE", "HELD", "RESOLVE", "DIAL", "REQUEST", "RESPONSE", "IDLE",
                    "LINGER", "CLOSED"), "dns_timeout", "dns_timeout"),
    # To DECIDE and HELD: it has waited for another request's connection (see turns)
    Row("DIAL", ("DECIDE", "HELD", "RESOLVE", "DIAL", "PARENT", "SECURE", "REQUEST",
                 "RESPONSE", "PEEK", "TUNNEL", "IDLE", "LINGER", "CLOSED"),
        "connect_timeout", "connect_timeout"),
    Row("PARENT", ("RESOLVE", "DIAL", "SECURE", "REQUEST", "RESPONSE", "PEEK", "TUNNEL",
                   "IDLE", "LINGER", "CLOSED"), "parent_timeout", "parent_timeout"),
    Row("SECURE", ("HEAD", "RESOLVE", "DIAL", "REQUEST", "RESPONSE", "TUNNEL", "IDLE",
                   "LINGER", "CLOSED"), "connect_timeout", "connect_timeout"),
    # To HELD: its body was collected, to be compared with recordings
    Row("REQUEST", ("HELD", "RESOLVE", "DIAL", "RESPONSE", "RELAY", "IDLE", "LINGER",
                    "CLOSED"),
        "body_timeout", "body_timeout"),
    # To HELD: its origin had gone, and the mode of recordings was switched meanwhile
    Row("RESPONSE", ("HELD", "RELAY", "TUNNEL", "RESOLVE", "DIAL", "IDLE", "LINGER",
                     "CLOSED"),
        "response_timeout", "response_timeout"),
    Row("RELAY", ("IDLE", "DELIVER", "LINGER", "CLOSED"),
        "idle_timeout", "idle_timeout"),
    Row("PEEK", ("SECURE", "TUNNEL", "LINGER", "CLOSED"),
        "head_timeout", "peek_timeout"),
    Row("TUNNEL", ("HALF_CLOSED", "DELIVER", "CLOSED"), "idle_timeout", "idle_timeout"),
    Row("DATAGRAMS", ("CLOSED",), "idle_timeout", "idle_timeout"),
    Row("HALF_CLOSED", ("DELIVER", "CLOSED"),
        "half_closed_timeout", "half_closed_timeout"),
    # Its outcome is the reason for which the exchange was cut short, and not this one
    Row("DELIVER", ("LINGER", "CLOSED"), "half_closed_timeout", "half_closed_timeout"),
    Row("STREAMS", ("LINGER", "CLOSED"), "keepalive_timeout", "keepalive_timeout"),
    Row("LINGER", ("CLOSED",), "linger_timeout", "ok"),
    Row("CLOSED", (), "", "ok"),
)

# The states in operators' words, in the table's order
WORDS = tuple(row.name.lower() for row in TABLE)
# A connection's occupation, for operators too: `idle` is no tunnel and no request
KINDS = ("tunnel", "request", "idle")
