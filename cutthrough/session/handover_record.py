"""A tunnel as one message: all that the next worker needs to continue it.

The sockets come along as descriptors, and so do the pipes that hold bytes of it. Times
are microseconds of CLOCK_MONOTONIC, which is one clock for all processes of a host. The
taker looks up the policy's names again in its own policy.
"""

import msgspec

# The record's version: the two workers may run different versions of the program
FORMAT = 2

# Family, bytes in network order, port
Address = tuple[int, bytes, int]


class Direction(msgspec.Struct, array_like=True):
    """Bytes that go up, or down."""

    moved: int                               # bytes, since it began
    unsent: bytes                            # read, not yet taken by the other side
    piped: int                               # the same, in a pipe: either is empty
    bulk: int
    eof: bool                                # its source has ended
    shut: bool                               # its sink has been shut down
    may_splice: bool
    spliced: bool
    tokens: float                            # bytes left of the tunnel's own rate
    tokens_us: int                           # time of `tokens`; 0: no rate of its own


class Tunnel(msgspec.Struct, tag="tunnel"):
    """Descriptors beside it: the client's socket, the origin's, and for each pipe, up
    before down, the end to read from and the one to write to."""

    format: int
    number: int                              # its name in the answer
    frozen_us: int                           # time since when its bytes do not move

    worker: int                              # with request_id its identifier in logs
    request_id: int
    client: Address
    origin: Address
    key: bytes                               # canonical host, and two bytes of port
    host_kind: int
    port: int
    method: int
    minor: int
    status: int
    stamps: tuple[int, int, int, int, int, int, int, int]     # as client.pxd has them
    half_closed: bool
    deadline_ms: int                         # its deadline without one more byte

    user: bytes
    groups: tuple[str, ...]
    expires: float
    reported: bool
    cuts: bool                               # its rule has `cut` set
    decision: tuple[str, str] | None         # the hook's: reason, limits
    # Its rows on the page of limits and its charges there, all the taker's by now;
    # None: the taker has another page
    holding: tuple[int, int, bool, bool] | None

    up: Direction
    down: Direction

    tally: int = 0                           # the taker's, when `holding` was counted
    sender: Address | None = None            # the load balancer that named the client
    source: str = ""                         # name of the source it came from; "": none
    # Of its first bytes, see openings.parts_of; None: they were not looked at
    opening: tuple[int, int, bool, int, bytes, bytes, bytes, bytes] | None = None
    parent: tuple[str, str] | None = None    # that it goes through: name, identity
    pinned: bool = False                     # clients have rejected our certificate
    request: bytes = b""                     # method and path of an upgrade; see tunnel
    tlvs: bytes = b""                        # of the PROXY header, as Client has them
    tcp: bytes = b""                         # its client's fingerprint; empty: none
    for_origin: bool = False                 # of an upgrade through a named origin
    vouched: bool = False                    # its door named the user; see Client
    peer: Address | None = None              # the proxy that named `client` in its head


class Done(msgspec.Struct, tag="done"):
    """All tunnels that could be given were given; more may follow unless `last`."""

    last: bool


class Answer(msgspec.Struct, array_like=True):
    """From the taker: the tunnels it owns from now on, and the tunnels it refuses."""

    taken: list[int]
    refused: list[int]
