from cutthrough.exchange.messages import Piece

class RingExchange:
    is_intercepted: bool
    user: str
    host: str
    port: int
    reason: str
    up_head: str
    down_head: str
    up: bytes
    pieces: list[Piece]
    added: list[str]
    down: list[bytes]
    times: list[int]
    up_bytes: int
    down_bytes: int
    up_chunked: bool
    down_chunked: bool
    was_cut: bool
    begun_us: int
    head_at_us: int
    wait_us: int
    asked: list[int] | None
    head_asked: int
    is_unanswered: bool
