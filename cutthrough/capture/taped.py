"""An exchange to be recorded, as it came out of the ring: nothing is redacted."""

import msgspec

from cutthrough.capture.messages import Piece


class Taped(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Times are Unix time. `up` and `down`: bodies with their framing. A number of
    bytes is 2**64 - 1 if it was not counted."""

    is_intercepted: bool
    host: str
    port: int
    reason: str                              # the label of its outcome
    up_head: str
    down_head: str                           # "": it had no room in the ring
    up: bytes
    pieces: list[Piece]                      # of a WebSocket, both ways
    down: list[bytes]
    times: list[int]                         # of the pieces of `down`
    up_bytes: int
    down_bytes: int
    up_chunked: bool
    down_chunked: bool
    was_cut: bool
    begun_us: int
    head_at_us: int
    wait_us: int                             # between the request's end and the head
