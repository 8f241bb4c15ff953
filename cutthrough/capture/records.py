"""Records of the ring -> rows of the store: the parts of an exchange are put together.

A worker sends HEADS, pieces of bodies and END; END makes the row. Parts without
an END yet are kept in memory within bounds, oldest first out. All is redacted here.
"""

import struct
from collections.abc import Iterable
from typing import Any

from cutthrough.capture.bodies import Body, make_body
from cutthrough.capture.redaction import Redactor
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.counters import METHODS
from cutthrough.wire.openings import PROTOCOLS

# As observer.pyx writes them
HEADS, UP, DOWN, END = 1, 2, 3, 4
_END = struct.Struct("=4q4Q6I10I6H4B")
_N_TEXTS = 10
IS_TUNNEL, IS_REUSED, IS_REPORTED, HAS_UPGRADE = 1, 2, 4, 8
UP_CHUNKED, DOWN_CHUNKED, UP_CUT, DOWN_CUT = 16, 32, 64, 128
WAS_RETRIED, OFFERS_ECH = 256, 512
_NOT_COUNTED = (1 << 64) - 1

# Exchanges without an END, and bytes of their bodies: 200 bodies of the usual bound
MOST_OPEN, MOST_OPEN_BYTES = 20_000, 100 << 20

# The columns of a row, in order; store.py has their types
COLUMNS = (
    "request", "begun_us", "ended_us", "kind", "method", "host", "port", "url",
    "status", "reason", "rule", "reported", "user", "client", "client_port", "peer",
    "peer_port", "parent", "reused", "retried", "bytes_up", "bytes_down",
    "head_us", "auth_us", "hook_us", "dns_us", "connect_us", "send_us", "wait_us",
    "receive_us", "total_us", "protocol", "sni", "alpn", "ja4", "tls_version", "ech",
    "request_head_bytes", "response_head_bytes", "request_body_bytes",
    "response_body_bytes", "request_content_bytes", "response_content_bytes",
    "request_body_state", "response_body_state", "bytes",
    "request_head", "response_head", "request_body", "response_body")

_REASONS = tuple(row.label for row in OUTCOMES)
_NO_BODY = Body(None, None, None)


class _Open:
    """The parts of an exchange so far."""

    __slots__ = ("down", "heads", "size", "up")

    def __init__(self) -> None:
        self.heads: bytes = b""
        self.up: list[bytes] = []
        self.down: list[bytes] = []
        self.size = 0


_NOTHING = _Open()


class Assembly:
    """Makes rows of records; `rows` returns the whole ones."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._open: dict[tuple[int, int], _Open] = {}
        self._size = 0
        self.evicted = 0                     # exchanges that lost their parts

    def rows(self, records: Iterable[tuple[int, int, int, bytes]]
             ) -> list[tuple[Any, ...]]:
        made = []
        opened = self._open
        for kind, worker, request, payload in records:
            if kind == END:
                parts = opened.pop((worker, request), _NOTHING)
                self._size -= parts.size
                made.append(self._row(f"{worker}-{request}", payload, parts))
                continue
            one = opened.get((worker, request))
            if one is None:
                one = opened[worker, request] = _Open()
            if kind == HEADS:
                one.heads = payload
            elif kind == UP:
                one.up.append(payload)
            elif kind == DOWN:
                one.down.append(payload)
            one.size += len(payload)
            self._size += len(payload)
            if self._size > MOST_OPEN_BYTES or len(opened) > MOST_OPEN:
                self._evict()
        return made

    def _evict(self) -> None:
        oldest = next(iter(self._open))
        self._size -= self._open.pop(oldest).size
        self.evicted += 1

    def _row(self, name: str, payload: bytes, parts: _Open) -> tuple[Any, ...]:
        (ended, total, first_byte, receive, bytes_up, bytes_down, body_up, body_down,
         head_us, auth, hook, dns, connect, send, *rest) = _END.unpack_from(payload)
        (status, port, client_port, peer_port, tls_version, flags,
         outcome, method, _host_kind, protocol) = rest[_N_TEXTS:]
        texts = []
        at = _END.size
        for n in rest[:_N_TEXTS]:
            texts.append(payload[at:at + n].decode("latin-1") if n else "")
            at += n
        user, host, rule, parent, client, peer, sni, alpn, ja4, up_head = texts
        down_head = ""
        if parts.heads:
            n = int.from_bytes(parts.heads[:4], "little")
            up_head = up_head or parts.heads[4:4 + n].decode("latin-1")
            down_head = parts.heads[4 + n:].decode("latin-1")
        up_bytes, down_bytes = len(up_head), len(down_head)
        redactor = self._redactor
        up = down = _NO_BODY
        if body_up != _NOT_COUNTED:
            up = make_body(b"".join(parts.up), up_head, body_up,
                           chunked=bool(flags & UP_CHUNKED),
                           cut=bool(flags & UP_CUT), redactor=redactor)
        if body_down != _NOT_COUNTED:
            down = make_body(b"".join(parts.down), down_head, body_down,
                             chunked=bool(flags & DOWN_CHUNKED),
                             cut=bool(flags & DOWN_CUT), redactor=redactor)
        up_head = redactor.head(up_head)
        down_head = redactor.head(down_head)
        shown = f"[{host}]" if ":" in host else host
        words = up_head.split(" ", 2) if up_head else []
        if len(words) == 3:
            word, path = words[0], words[1]
            url = f"http://{shown}{'' if port == 80 else f':{port}'}{path}"
        else:
            word, url = METHODS[method], f"{shown}:{port}"
        wait = max(0, first_byte - send) if first_byte else None
        if not user.isascii():
            user = user.encode("latin-1").decode(errors="replace")
        size = 400 + len(up_head) + len(down_head) + len(url) + (
            len(up.content or "") + len(down.content or ""))
        return (
            name, ended - total, ended, "tunnel" if flags & IS_TUNNEL else "request",
            word, host, port, url, status or None, _REASONS[outcome], rule,
            flags & IS_REPORTED != 0, user or None, client, client_port or None,
            peer or None, peer_port or None, parent or None,
            flags & IS_REUSED != 0, flags & WAS_RETRIED != 0, bytes_up, bytes_down,
            head_us or None, auth or None, hook or None, dns or None, connect or None,
            min(send, first_byte) if send and first_byte else send or None, wait,
            receive if first_byte else None, total,
            PROTOCOLS[protocol] if protocol else None, sni or None, alpn or None,
            ja4 or None, tls_version or None, flags & OFFERS_ECH != 0,
            up_bytes or None, down_bytes or None, up.transferred, down.transferred,
            up.decoded, down.decoded, up.state or None, down.state or None, size,
            up_head or None, down_head or None, up.content, down.content)
