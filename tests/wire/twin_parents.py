"""The slow, obvious twins of the readers of parents' answers.

Each returns (length, code), None for "more bytes, please", or "invalid".
"""

from collections.abc import Callable

from tests.wire import twin

MOST = 65536
MOST_INTERIM = 8
MOST_FIELDS = 1024
INVALID = "invalid"

Answer = tuple[int, int] | str | None


def connect_answer(data: bytes) -> Answer:
    """RFC 9110 sections 9.3.6 and 15.2."""
    at = 0
    for _ in range(MOST_INTERIM + 1):
        rest = data[at:MOST]
        head = twin.read_response(
            rest, line_bytes=MOST - at, head_bytes=MOST - at, n_fields=MOST_FIELDS)
        if isinstance(head, str):
            return INVALID
        if head is None:
            return INVALID if len(rest) == MOST - at else None
        at += head.length
        status = head.first[0]
        if status == 101:
            return INVALID
        if status >= 200:
            return at, status
    return INVALID


def pair(version: int) -> Callable[[bytes], Answer]:
    def read(data: bytes) -> Answer:
        if data and data[0] != version:
            return INVALID
        return (2, data[1]) if len(data) > 1 else None
    return read


def socks5_reply(data: bytes) -> Answer:
    """RFC 1928 section 6; behind a refusal's code nothing is read."""
    if data[:1] not in (b"", b"\x05"):
        return INVALID
    if len(data) > 1 and data[1]:
        return 2, data[1]
    if data[2:3] not in (b"", b"\0"):
        return INVALID
    if len(data) < 4:
        return None
    sizes = {1: 4, 4: 16, 3: 1 + data[4] if len(data) > 4 else None}
    if data[3] not in sizes:
        return INVALID
    size = sizes[data[3]]
    if size is None or len(data) < 6 + size:
        return None
    return 6 + size, 0


def socks4_reply(data: bytes) -> Answer:
    if data[:1] not in (b"", b"\0"):
        return INVALID
    if len(data) > 1 and data[1] not in range(90, 94):
        return INVALID
    if len(data) < 8:
        return None
    return 8, 0 if data[1] == 90 else data[1]


TWINS: dict[str, Callable[[bytes], Answer]] = {
    "connect_answer": connect_answer, "method": pair(5), "login_answer": pair(1),
    "socks5_reply": socks5_reply, "socks4_reply": socks4_reply}
