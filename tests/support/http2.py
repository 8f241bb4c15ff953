"""A client of HTTP/2, by the package h2, above a socket."""

import socket
import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import h2.config
import h2.connection
import h2.events
from h2.connection import ConnectionState

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
STREAM_CLOSED = 5
REFUSED_STREAM, CANCEL, CONNECT_ERROR, ENHANCE_YOUR_CALM = 7, 8, 10, 11


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(
        ">BBI", kind, flags, stream) + payload


class Answer:
    """The answer so far on one stream."""

    def __init__(self) -> None:
        self.heads: list[dict[str, str]] = []
        self.fields: list[tuple[str, str]] = []
        self.body = bytearray()
        self.trailers: list[tuple[str, str]] | None = None
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.heads[-1][":status"]) if self.heads else 0

    @property
    def is_over(self) -> bool:
        return self.ended or self.reset is not None


class Peer:
    """`credit`: octets that have come are credited to the sender at once."""

    def __init__(self, sock: Any, *, credit: bool = True) -> None:
        self.sock = sock
        self.credit = credit
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, header_encoding="utf-8", validate_outbound_headers=False,
            normalize_outbound_headers=False))
        self.answers: dict[int, Answer] = defaultdict(Answer)
        self.goaway: tuple[int, int] | None = None
        self.goaways: list[tuple[int, int]] = []
        self.pings = 0
        self.settings: dict[int, int] = {}
        self.closed = False
        self.h2.initiate_connection()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def request(self, fields: Iterable[tuple[str, str]], ends: bool = True) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, list(fields), end_stream=ends)
        self.flush()
        return stream

    def get(self, url: str, *more: tuple[str, str], method: str = "GET",
            ends: bool = True) -> int:
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        return self.request(
            [(":method", method), (":scheme", scheme), (":authority", authority),
             (":path", slash + path or "/"), *more], ends)

    def connect(self, authority: str, *more: tuple[str, str]) -> int:
        return self.request(
            [(":method", "CONNECT"), (":authority", authority), *more], ends=False)

    def send(self, stream: int, data: bytes, ends: bool = False) -> int:
        """As much as the windows allow now; returns how much that was."""
        sent = 0
        while sent < len(data):
            room = min(self.h2.local_flow_control_window(stream),
                       self.h2.max_outbound_frame_size, len(data) - sent)
            if room <= 0:
                break
            self.h2.send_data(stream, data[sent:sent + room],
                              end_stream=ends and sent + room == len(data))
            sent += room
        if ends and not data:
            self.h2.end_stream(stream)
        self.flush()
        return sent

    def read(self, n: int = 65536) -> bool:
        """Reads once. False: the connection has ended."""
        try:
            data = self.sock.recv(n)
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return False
        self.take(data)
        return True

    def take(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self.note(event)
        self.flush()

    def note(self, event: Any) -> None:
        answer = self.answers[getattr(event, "stream_id", 0) or 0]
        match event:
            case h2.events.InformationalResponseReceived() | (
                    h2.events.ResponseReceived()):
                answer.heads.append(dict(event.headers))
                answer.fields = list(event.headers)
            case h2.events.TrailersReceived():
                answer.trailers = list(event.headers)
            case h2.events.DataReceived():
                answer.body += event.data
                if self.credit and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                answer.ended = True
            case h2.events.StreamReset():
                answer.reset = int(event.error_code or 0)
            case h2.events.ConnectionTerminated():
                self.goaway = (int(event.error_code), int(event.last_stream_id or 0))
                self.goaways.append(self.goaway)
                # h2 would send nothing more, but its open streams go on
                self.h2.state_machine.state = ConnectionState.CLIENT_OPEN
            case h2.events.PingAckReceived():
                self.pings += 1
            case h2.events.RemoteSettingsChanged():
                self.settings |= {int(key): change.new_value for key, change in
                                  event.changed_settings.items()}

    def wait(self, *streams: int) -> Answer:
        """Reads until these streams have ended; returns the last one's answer."""
        for stream in streams:
            while not self.answers[stream].is_over and self.read():
                pass
        return self.answers[streams[-1]]

    def wait_head(self, stream: int) -> Answer:
        answer = self.answers[stream]
        while answer.status < 200 and not answer.is_over and self.read():
            pass
        return answer

    def wait_body(self, stream: int, n: int) -> bytes:
        answer = self.answers[stream]
        while len(answer.body) < n and not answer.is_over and self.read():
            pass
        return bytes(answer.body)

    def wait_end(self) -> tuple[int, int] | None:
        """Reads until the end; returns the code of GOAWAY, and the last stream."""
        while self.read():
            pass
        return self.goaway


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    return ours, theirs
