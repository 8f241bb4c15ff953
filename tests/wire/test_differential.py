"""The wire room against two parsers that are not ours: llhttp (httptools) and h11.

If ours and another parser accept a message, both read the same one: first line, fields,
body. If the two others read different messages, ours refuses. A parser may be stricter
than ours only if a row of STRICTER has the reason why we are not.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import h11
import httptools
import pytest
from hypothesis import given, settings

from cutthrough.wire.target import read_request_target
from tests.doors.wire import (
    ChunkScanner,
    read_framing,
    read_request,
    read_response,
    rewrite_request,
)
from tests.wire import hostile
from tests.wire.against import NUMBERS
from tests.wire.strategies import MESSAGES, REPLIES, REQUESTS, RESPONSES, spoiled

HOST = b"origin.example:8080"


class Message(NamedTuple):
    """The first message that a reader took from the wire, whole."""

    first: tuple[bytes, bytes] | int    # method and target, or the status
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


# None: more bytes are needed. A string says why it was refused.
Answer = Message | str | None


def ours(data: bytes) -> Answer:
    """As the session does: head, target, length of the body, the head sent on, body."""
    head = read_request(data)
    if not isinstance(head, dict):
        return head
    for read in (read_request_target, read_framing, rewrite_request):
        refused = read(data)
        if isinstance(refused, str):
            return refused
    fields = tuple((name.lower(), value) for name, value, _ in head["fields"])
    body = read_body(data[head["length"]:], read_framing(data))
    if not isinstance(body, bytes):
        return body
    return Message((head["method"], head["target"]), fields, body)


def our_response(data: bytes, method: bytes = b"GET") -> Answer:
    head = read_response(data)
    if not isinstance(head, dict):
        return head
    framing = read_framing(data, NUMBERS[method])
    if isinstance(framing, str):
        return framing
    fields = tuple((name.lower(), value) for name, value, _ in head["fields"])
    body = read_body(data[head["length"]:], framing, True)
    return Message(head["status"], fields, body) if isinstance(body, bytes) else body


def read_body(
    rest: bytes, framing: tuple[str, int, bool], lenient: bool = False
) -> bytes | str | None:
    kind, length, _ = framing
    if kind == "chunked":
        chunks = ChunkScanner(decode=True, lenient=lenient)
        got = chunks.feed(rest)
        if isinstance(got, str):
            return got
        return got[1] if chunks.done else None
    if kind == "until-close":
        return rest
    return rest[:length] if len(rest) >= length else None


class Listener:
    """Callbacks of llhttp, up to the end of the first message."""

    def __init__(self) -> None:
        self.url = self.body = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.done = self.in_body = False

    def on_url(self, text: bytes) -> None:
        self.url += b"" if self.done else text

    def on_header(self, name: bytes, value: bytes) -> None:
        if not (self.done or self.in_body):     # fields in the body are trailers
            self.fields.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.in_body = True

    def on_body(self, data: bytes) -> None:
        self.body += b"" if self.done else data

    def on_message_complete(self) -> None:
        self.done = True


def llhttp(data: bytes) -> Answer:
    heard = Listener()
    parser = httptools.HttpRequestParser(heard)
    refused = feed(parser, data)
    if heard.done:
        method = re.match(rb"(?:\r\n)*([^ ]*)", data)
        assert method is not None
        return Message((method[1], heard.url), tuple(heard.fields), heard.body)
    return refused


def llhttp_response(data: bytes) -> Answer:
    heard = Listener()
    parser = httptools.HttpResponseParser(heard)
    refused = feed(parser, data)
    # httptools has no call for the end of the connection.
    if heard.done or (heard.in_body and not refused and until_close(heard.fields)):
        return Message(parser.get_status_code(), tuple(heard.fields), heard.body)
    return refused


def feed(parser: httptools.HttpRequestParser, data: bytes) -> str | None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        return None
    except httptools.HttpParserError as error:
        return repr(error)
    return None


def until_close(fields: list[tuple[bytes, bytes]]) -> bool:
    return not {b"content-length", b"transfer-encoding"} & {name for name, _ in fields}


def peer(data: bytes) -> Answer:
    return hear(h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20), data)


def peer_response(data: bytes) -> Answer:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    return hear(connection, data)


def hear(connection: h11.Connection, data: bytes) -> Answer:
    first: tuple[bytes, bytes] | int = 0
    fields: tuple[tuple[bytes, bytes], ...] = ()
    body = b""
    try:
        connection.receive_data(data)
        if connection.our_role is h11.CLIENT:
            connection.receive_data(b"")        # the end of the connection
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                first, fields = (event.method, event.target), tuple(event.headers)
            elif isinstance(event, h11.Response | h11.InformationalResponse):
                first, fields = event.status_code, tuple(event.headers)
                if isinstance(event, h11.InformationalResponse):
                    return Message(first, fields, b"")
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return Message(first, fields, body)
            else:
                return None
    except h11.RemoteProtocolError as error:
        return str(error) if "peer unexpectedly closed" not in str(error) else None


def normal(answer: Answer) -> Answer:
    """As h11 has the fields that frame: small letters, no zeros, one length."""
    if not isinstance(answer, Message):
        return answer
    dress: dict[bytes, Callable[[bytes], bytes]] = {
        b"transfer-encoding": bytes.lower,
        b"content-length": lambda v: b"%d" % int(v.split(b",")[0])}
    fields = [(name, dress.get(name, bytes)(value)) for name, value in answer.fields]
    lengths = [field for field in fields if field[0] == b"content-length"]
    return answer._replace(fields=tuple(
        [field for field in fields if field not in lengths] + lengths[:1]))


class Stricter(NamedTuple):
    """A message that one parser refuses and we take, and why we do."""

    parser: str
    says: str                       # in its refusal
    message: str                    # a pattern in the message
    why: str


STRICTER = [
    Stricter("llhttp", "Invalid method", r"",
             "it has a list of methods; to RFC 9110 section 9.1 the list is open"),
    Stricter("llhttp", "Transfer-Encoding", r"(?i)\nTransfer-Encoding:\s*chunked[ \t]",
             "white space behind a value is no part of it (RFC 9112 section 5); we "
             "write the coding anew, without it"),
    Stricter("llhttp", "chunk extensions", r"\n[0-9a-fA-F]+;",
             "extensions are dropped unread (RFC 9112 section 7.1.1); a quote or an "
             "empty name in one goes nowhere"),
    Stricter("llhttp", "chunk size", r"\n[0-9a-fA-F]+[ \t]+;",
             "white space before an extension is BWS, which RFC 9110 section 5.6.3 has "
             "a recipient parse; it is dropped with the extension"),
    Stricter("llhttp", "chunk size", r"\n[0-9a-fA-F]+[ \t]+\r?\n",
             "origins pad the sizes of a response with white space; it is dropped, and "
             "the connection is not used again"),
    Stricter("llhttp", "chunk size", r"\n0{16}",
             "a size may have zeros in front (RFC 9112 section 7.1); one goes on"),
    Stricter("llhttp", "present with Transfer-Encoding",
             r"(?s)\n0\r\n(.*\n)?(?i:content-length):",
             "a trailer is no field of the head; this one is dropped"),
    Stricter("llhttp", "Transfer-Encoding",
             r"(?s)\n0\r\n(.*\n)?(?i:transfer-encoding):", "the same"),
    Stricter("llhttp", "Duplicate Content-Length", r"\A\s*HTTP",
             "equal ones of a response are one (RFC 9112 section 6.3); one goes on"),
    Stricter("h11", "illegal chunk header", r"\n[0-9a-fA-F]+[ \t]+(;|\r\n)", "above"),
    Stricter("h11", "Only Transfer-Encoding: chunked",
             r"(?s)\n0\r\n(.*\n)?(?i:transfer-encoding):", "as above"),
    Stricter("h11", "bad Content-Length", r"(?i)\nContent-Length:\s*0*[0-9]{1,19}\s*\r",
             "it may have zeros in front (RFC 9110 section 8.6); it goes on without"),
    Stricter("h11", "no response line received", r"\A\r?\n",
             "one empty line before a response is skipped, and its connection ends"),
    Stricter("h11", "no request line received", r"\A\r\n",
             "one empty line before a request is ignored (RFC 9112 section 2.2)"),
    Stricter("llhttp", "", r"\A\s*HTTP(.*\n)*?(.*[^\r])?\n|\n[ \t]",
             "a bare LF and obs-fold in a response (RFC 9112 sections 2.2 and 5.2) are "
             "written as the grammar has them, and end its connection"),
    Stricter("h11", "", r"\A\s*HTTP(.*\n)*?(.*[^\r])?\n|\n[ \t]", "the same"),
    Stricter("h11", "", r"\A\s*HTTP/... (1..|204|304)", "lengths there mean nothing"),
    Stricter("llhttp", "", r"\A\s*HTTP/... (1..|204|304)", "the same"),
    Stricter("h11", "", r"\A\s*HTTP/(1\.[2-9]|[2-9])",
             "a higher version is read as 1.1 (RFC 9110 section 2.5)"),
    Stricter("llhttp", "", r"\A\s*HTTP/(1\.[2-9]|[2-9])", "the same"),
    Stricter("h11", "", r"(?s)\A\s*HTTP.*[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]",
             "a control in a value ends it for nobody (RFC 9110 section 5.5)"),
    Stricter("llhttp", "", r"(?s)\A\s*HTTP.*[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]",
             "the same"),
    Stricter("h11", "", r"\A\s*HTTP(.*\n)+[^:\n]*[ \t]+:",
             "white space before a colon is removed (RFC 9112 section 5.1)"),
    Stricter("llhttp", "", r"\A\s*HTTP(.*\n)+[^:\n]*[ \t]+:", "the same"),
    Stricter("llhttp", "", r"(?si)\A\s*HTTP.*\nTransfer-Encoding:",
             "beside a length, or in HTTP/1.0: chunks go on alone, and the "
             "connection ends"),
    Stricter("h11", "", r"\A[A-Z]+ [^ ]*[\x80-\xff]", "it goes on percent-encoded"),
    Stricter("llhttp", "", r"\A[A-Z]+ [^ ]*[\x80-\xff]", "it goes on percent-encoded"),
    Stricter("h11", "_SWITCH_UPGRADE", r"\AHTTP/1\.. 101 ?",
             "whether a 101 was asked for is the session's to know (R4)"),
]


def agree(data: bytes, mine: Answer, **theirs: Answer) -> None:
    """A parser reads the message that we accept alike; if it refuses, see STRICTER."""
    if not isinstance(mine, Message):
        return
    for parser, answer in theirs.items():
        if isinstance(answer, Message):
            assert normal(answer) == normal(mine), parser
            continue
        assert answer is not None, f"{parser} waits for more"
        assert any(
            row.parser == parser and row.says in answer
            and re.search(row.message.encode(), data) for row in STRICTER
        ), f"{parser} refuses: {answer}"


@given(spoiled(MESSAGES) | spoiled(REQUESTS))
@settings(max_examples=2000, deadline=None)
def test_a_request_that_we_take_is_the_same_to_others(data: bytes) -> None:
    # R7, R8, R9, R11. If the two read different messages, one is not ours: so this also
    # shows that we refuse a message if they disagree about it.
    agree(data, ours(data), llhttp=llhttp(data), h11=peer(data))


@given(spoiled(REPLIES) | spoiled(RESPONSES))
@settings(max_examples=2000, deadline=None)
def test_a_response_that_we_take_is_the_same_to_others(data: bytes) -> None:
    # R17, R18.
    mine = our_response(data)
    head = read_response(data)
    theirs = {"llhttp": llhttp_response(data), "h11": peer_response(data)}
    if isinstance(head, dict) and "lenient" in head:
        # How many spaces a fold comes to is each reader's choice.
        mine = squeezed(mine)
        theirs = {name: squeezed(it) for name, it in theirs.items()}
    agree(data, mine, **theirs)


def squeezed(answer: Answer) -> Answer:
    if not isinstance(answer, Message):
        return answer
    return answer._replace(fields=tuple(
        (name, re.sub(rb"[ \t]+", b" ", value)) for name, value in answer.fields))


@pytest.mark.parametrize("row", [
    pytest.param(row, id=row.name) for row in hostile.ROWS])
def test_a_hostile_request_has_one_reading_or_none(row: hostile.Row) -> None:
    data = hostile.fill(row.request, HOST)
    mine = ours(data)
    if row.seen is None:
        assert isinstance(mine, str), mine
        return
    assert isinstance(mine, Message), mine
    assert (mine.first[0], mine.body) == (row.seen.method, row.seen.body)
    assert read_request_target(data)["path"] == row.seen.path
    agree(data, mine, llhttp=llhttp(data), h11=peer(data))


def test_there_are_500_hostile_requests_and_no_two_alike() -> None:
    assert len({row.request for row in hostile.ROWS}) == len(hostile.ROWS) >= 500
    assert len({row.name for row in hostile.ROWS}) == len(hostile.ROWS)


def test_hostile_requests_do_divide_other_parsers() -> None:
    # Else they would prove little: each takes some, and reads them its own way.
    requests = [hostile.fill(row.request, HOST) for row in hostile.ROWS]
    answers = [(llhttp(data), peer(data)) for data in requests]
    taken = [pair for pair in answers if Message in map(type, pair)]
    assert len(taken) > 100
    assert any(one != two for one, two in taken
               if isinstance(one, Message) and isinstance(two, Message))


@given(spoiled(MESSAGES))
@settings(max_examples=2000, deadline=None)
def test_what_goes_on_is_one_message_to_everybody(data: bytes) -> None:
    # R7, R14, R15, R16: our output leaves no reader a choice, whatever it came from.
    mine = ours(data)
    if not isinstance(mine, Message) or mine.first[0] == b"CONNECT":
        return
    head, path = rewrite_request(data, pseudonym=b"other")
    rest = data[read_request(data)["length"]:]
    if read_framing(data)[0] == "chunked":
        rest = ChunkScanner().feed(rest)[1]
    sent = head + rest
    again = ours(sent)
    assert isinstance(again, Message), again
    assert (again.first, again.body) == ((mine.first[0], path), mine.body)
    for answer in (llhttp(sent), peer(sent)):
        assert answer == again or "Invalid method" in str(answer)
    names = [name for name, _ in again.fields]
    assert names.count(b"host") == names.count(b"via") == 1
    assert not {b"connection", b"proxy-authorization", b"te"} & set(names)
