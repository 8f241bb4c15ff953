"""An origin of HTTP/2, by the package h2, above a socket."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes

Fields = Iterable[tuple[str, str]]


class Question:
    """The request so far on one stream."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str]] = []
        self.body = bytearray()
        self.trailers: list[tuple[str, str]] | None = None
        self.ended = False
        self.reset: int | None = None


class Origin:
    """`credit`: octets that have come are credited to the sender at once; `streams`:
    open at a time."""

    def __init__(self, sock: Any, *, credit: bool = True, streams: int = 100) -> None:
        self.sock = sock
        self.credit = credit
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, header_encoding="utf-8", validate_outbound_headers=False,
            normalize_outbound_headers=False))
        self.questions: dict[int, Question] = defaultdict(Question)
        self.settings: dict[int, int] = {}
        self.goaway: int | None = None
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: streams})

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def read(self, n: int = 65536) -> bool:
        """Reads once. False: the connection has ended."""
        data = self.sock.recv(n)
        if not data:
            return False
        for event in self.h2.receive_data(data):
            self.note(event)
        self.flush()
        return True

    def note(self, event: Any) -> None:
        question = self.questions[getattr(event, "stream_id", 0) or 0]
        match event:
            case h2.events.RequestReceived():
                question.fields = list(event.headers)
            case h2.events.TrailersReceived():
                question.trailers = list(event.headers)
            case h2.events.DataReceived():
                question.body += event.data
                if self.credit and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                question.ended = True
            case h2.events.StreamReset():
                question.reset = int(event.error_code or 0)
            case h2.events.ConnectionTerminated():
                self.goaway = int(event.error_code)
            case h2.events.RemoteSettingsChanged():
                self.settings |= {int(key): change.new_value for key, change in
                                  event.changed_settings.items()}

    def answer(self, stream: int, fields: Fields, body: bytes = b"",
               trailers: Fields = (), *, ends: bool = True) -> None:
        trailers = list(trailers)
        self.h2.send_headers(stream, list(fields),
                             end_stream=ends and not body and not trailers)
        if body:
            self.h2.send_data(stream, body, end_stream=ends and not trailers)
        if trailers:
            self.h2.send_headers(stream, trailers, end_stream=True)
        self.flush()
