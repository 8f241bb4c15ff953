"""A tunnel as one message: all that the next worker has to know to go on with it.

The sockets come along as descriptors, and so do the pipes that hold bytes of it. Times
are microseconds of CLOCK_MONOTONIC, which is one clock for all processes of a host;
what a name of the policy stood for is looked up anew by whoever takes it.
"""

import msgspec

# Of the record: two versions of the program may follow each other
FORMAT = 2

# Family, bytes in network order, port
Address = tuple[int, bytes, int]


class Way(msgspec.Struct, array_like=True):
    """One direction."""

    moved: int                               # bytes, since it began
    kept: bytes                              # read, and not taken by the other side yet
    piped: int                               # behind these so many, in a pipe
    bulk: int
    eof: bool                                # its source has ended,
    shut: bool                               # and its sink was told
    may_splice: bool
    spliced: bool
    tokens: float                            # of the tunnel's own rate
    tokens_us: int                           # as of this time; 0: it has none


class Tunnel(msgspec.Struct, tag="tunnel"):
    """Descriptors beside it: the client's socket, the origin's, and for each pipe, up
    before down, the end to read from and the one to write to."""

    format: int
    number: int                              # what the answer calls it
    frozen_us: int                           # since when nobody moves its bytes

    worker: int                              # together its identifier in logs
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
    deadline_ms: int                         # without one more byte

    user: bytes
    groups: tuple[str, ...]
    expires: float
    reported: bool
    cuts: bool                               # its rule ends what may go on no longer
    decision: tuple[str, str] | None         # of the hook: reason, limits
    # Its rows on the page of limits and what it counts for there, all the taker's by
    # now; None: the taker has another page
    holding: tuple[int, int, bool, bool] | None

    up: Way
    down: Way

    tally: int = 0                           # of the taker, when that was counted


class Done(msgspec.Struct, tag="done"):
    """All that could be given has been; more may follow, unless it is the `last`
    word."""

    last: bool


class Answer(msgspec.Struct, array_like=True):
    """From the taker: these are its own from now on, and these it does not want."""

    taken: list[int]
    refused: list[int]
