"""Filters driven without a network: the messages at the origin, and at the client."""

import asyncio
import gzip
import importlib
import json
import sys
import zlib
from collections.abc import AsyncIterator

import pytest

from cutthrough import Flow
from cutthrough.codings import CodingError, known_decoders, make_decoders
from cutthrough.testing import Answer, play

TEXT = b"the quick brown fox " * 1000
JSON = Answer(200, {"Content-Type": "application/json", "ETag": '"1"',
                    "X-Amz-Checksum-CRC32": "i9aeUg==",
                    "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}, b'{"price": 7}')


class Nothing:
    async def on_request_head(self, flow: Flow) -> None:
        pass

    async def on_response_head(self, flow: Flow) -> None:
        pass


class Upper:
    """Whole bodies."""

    async def on_request_body(self, flow: Flow, body: bytes) -> bytes:
        return body.upper()

    async def on_response_body(self, flow: Flow, body: bytes) -> bytes:
        return body.upper()


class UpperPieces:
    async def on_request_body(self, flow: Flow,
                              pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            yield piece.upper()

    on_response_body = on_request_body


class Looks:
    def __init__(self):
        self.seen = []

    async def on_response_body(self, flow, body):
        self.seen.append(body)


def test_what_no_filter_changes_is_the_same():
    played = play(Nothing(), headers={"A": "b"}, answer=JSON)
    assert played.outcome == "ok"
    assert [*played.request.headers] == [("Host", "example.com"), ("A", "b")]
    assert [*played.response.headers][:4] == [*JSON.headers.items()]
    assert played.response.body == JSON.body


def test_changes_of_a_request_s_head_reach_the_origin():
    class Change:
        async def on_request_head(self, flow):
            flow.request.method = "POST"
            flow.request.host, flow.request.port = "other.example", 8080
            flow.request.path = "/new?x=1"
            del flow.request.headers["Cookie"]
            flow.request.headers["Content-Length"] = "7"        # is not the filter's
            flow.request.headers["Via"] = "1.1 other"
    played = play(Change(), headers={"Cookie": "a=b"}, body=b"four", method="PUT")
    assert played.request.first == "POST http://other.example:8080/new?x=1 HTTP/1.1"
    assert [*played.request.headers] == [
        ("Host", "other.example:8080"), ("Via", "1.1 other"), ("Content-Length", "4")]
    assert played.request.body == b"four"


def test_filters_run_in_order():
    class First:
        async def on_request_head(self, flow):
            flow.request.headers["X"] = "1"
            flow.metadata["first"] = True

    class Second:
        async def on_request_head(self, flow):
            assert flow.metadata["first"]
            flow.request.headers["X"] += "2"
    assert play(First(), Second()).request.headers["X"] == "12"


def test_an_answer_needs_no_origin():
    class Local:
        async def on_request_head(self, flow):
            flow.respond(201, b"here", {"X": "y"})

    class Never:
        async def on_request_head(self, flow):
            raise AssertionError
    played = play(Local(), Never())
    assert played.outcome == "filter_answered" and played.request is None
    assert (played.response.status, played.response.body) == (201, b"here")
    assert played.response.headers["X"] == "y"
    assert play(Local(), method="HEAD").response.headers["Content-Length"] == "4"


def test_an_answer_replaces_the_origin_s():
    class Replace:
        async def on_response_head(self, flow):
            flow.respond(404)
    played = play(Replace(), answer=JSON)
    assert (played.response.status, played.response.body) == (404, b"")
    assert played.request is not None


@pytest.mark.parametrize("hook", ["on_request_head", "on_response_head"])
def test_a_refusal_has_its_reason(hook):
    async def refuse(self, flow):
        flow.refuse("not today")
    made = type("Refuse", (), {hook: refuse})()
    played = play(made, answer=JSON)
    assert (played.outcome, played.text) == ("filter_refused", "Refuse-0: not today")
    assert played.response is None


def test_a_body_is_changed_whole():
    played = play(Upper(), method="POST", body=b"hello", answer=JSON)
    assert played.request.body == b"HELLO"
    assert played.response.body == b'{"PRICE": 7}'
    for name in ("ETag", "Last-Modified", "X-Amz-Checksum-CRC32"):
        assert name not in played.response.headers
    assert played.response.headers["Content-Type"] == "application/json"


class First:
    """The first piece is enough for it."""

    async def on_response_body(self, flow, pieces):
        async for piece in pieces:
            yield piece
            return


@pytest.mark.parametrize("how", [None, SystemExit(3), LookupError("late")])
def test_a_generator_that_another_one_leaves_ends_within_the_exchange(how):
    """It ended when it was collected, in a task of the loop's: an exit there was that
    of the worker."""
    ended = []

    class Cleans:
        async def on_response_body(self, flow, pieces):
            try:
                async for piece in pieces:
                    yield piece
            finally:
                await asyncio.sleep(0)
                ended.append(flow.outcome)
                if how is not None:
                    raise how
    played = play(Cleans(), First(), answer=Answer(body=TEXT))
    assert played.response.body == TEXT[:4096]
    assert (ended, played.outcome) == ([""], "ok")


def test_a_body_is_changed_piece_by_piece():
    played = play(UpperPieces(), method="POST", body=TEXT, answer=Answer(body=TEXT))
    assert played.request.body == played.response.body == TEXT.upper()
    assert played.request.headers["Transfer-Encoding"] == "chunked"
    assert "Content-Length" not in played.response.headers


@pytest.mark.parametrize("filters", [
    (Upper(), UpperPieces()), (UpperPieces(), Upper()), (UpperPieces(), UpperPieces())])
def test_both_kinds_follow_one_another(filters):
    assert play(*filters, answer=Answer(body=TEXT)).response.body == TEXT.upper()


def raw_deflate(data):
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


CODED = {"gzip": gzip.compress(TEXT), "deflate": zlib.compress(TEXT),
         "DEFLATE": raw_deflate(TEXT), "identity": TEXT,
         "gzip, deflate": zlib.compress(gzip.compress(TEXT)),
         "x-gzip": gzip.compress(TEXT[:999]) + gzip.compress(TEXT[999:])}


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("kind", [Upper, UpperPieces])
def test_a_filter_gets_the_decoded_body(coding, kind):
    answer = Answer(200, {"Content-Encoding": coding}, CODED[coding])
    played = play(kind(), answer=answer, pieces=7)
    assert played.response.body == TEXT.upper()
    assert "Content-Encoding" not in played.response.headers


@pytest.mark.parametrize("coding", CODED)
def test_a_body_that_is_only_looked_at_goes_on_as_it_came(coding):
    looks = Looks()
    answer = Answer(200, {"Content-Encoding": coding, "ETag": '"1"'}, CODED[coding],
                    chunked=True)
    played = play(looks, answer=answer)
    assert looks.seen == [TEXT]
    assert played.response.body == CODED[coding]
    assert played.response.headers["ETag"] == '"1"'
    assert played.response.headers["Content-Encoding"] == coding


def test_what_cannot_be_filtered_is_not_requested():
    played = play(Upper(), headers={"Range": "bytes=5-", "If-Range": '"1"',
                                    "Accept-Encoding": "gzip, snappy"})
    assert "Range" not in played.request.headers
    assert "If-Range" not in played.request.headers
    assert "snappy" not in played.request.headers["Accept-Encoding"]
    assert "Accept-Encoding" not in play(Upper()).request.headers


UNFIT = {
    "unknown": Answer(200, {"Content-Encoding": "snappy"}, TEXT),
    "broken": Answer(200, {"Content-Encoding": "gzip"}, CODED["gzip"][:-9] + bytes(9)),
    "cut": Answer(200, {"Content-Encoding": "gzip"}, CODED["gzip"][:-9]),
    "long": Answer(200, {}, TEXT), "bomb": Answer(200, {"Content-Encoding": "gzip"},
                                                  gzip.compress(bytes(1 << 22)))}


@pytest.mark.parametrize("name", UNFIT)
def test_a_body_that_cannot_be_filtered_is_a_fault(name):
    """R31: a bound, also if a few bytes inflate to many."""
    looks = Looks()
    most = 1000 if name == "long" else 1 << 20
    assert play(looks, answer=UNFIT[name], max_body=most).outcome == "filter_failed"
    played = play(looks, answer=UNFIT[name], max_body=most, on_fault="pass")
    assert played.outcome == "ok" and played.response.body == UNFIT[name].body
    assert looks.seen == []


def test_a_bomb_is_not_inflated_beyond_its_bound():
    pieces, size = make_decoders("gzip").feed(gzip.compress(bytes(1 << 24))), 0
    for piece in pieces:
        size += len(piece)
        assert len(piece) <= 65536
    assert size == 1 << 24


@pytest.mark.parametrize(("coding", "module"), [
    ("br", "brotli"),
    ("zstd", "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")])
def test_br_and_zstd_are_decoded_where_their_packages_are(coding, module):
    made = importlib.import_module(module)
    assert coding in known_decoders()
    coded = made.compress(TEXT)
    for size in (1, 7, len(coded)):
        decoders, got = make_decoders(coding), b""
        for at in range(0, len(coded), size):
            got += b"".join(decoders.feed(coded[at:at + size]))
        decoders.end()
        assert got == TEXT
    bomb = make_decoders(coding).feed(made.compress(bytes(1 << 24)))
    sizes = [len(piece) for piece in bomb]
    assert sum(sizes) == 1 << 24 and max(sizes) <= 1 << 17
    decoders = make_decoders(coding)
    assert TEXT.startswith(b"".join(decoders.feed(coded[:-1])))
    with pytest.raises(CodingError):
        decoders.end()
    with pytest.raises(CodingError):
        [*make_decoders(coding).feed(b"garbage" * 9)]


def test_codings_without_end_are_refused():
    with pytest.raises(CodingError):
        make_decoders("gzip, gzip, gzip, gzip")


async def fail(self, flow, *more):
    flow.request.headers["X"] = "half done"
    if flow.response is not None:
        flow.response.headers["X"] = "half done"
        flow.response.status = 500
    raise LookupError("oops")


async def hang(self, flow, *more):
    await asyncio.sleep(60)


async def fail_pieces(self, flow, pieces):
    raise LookupError("oops")
    yield b""


async def hang_pieces(self, flow, pieces):
    await asyncio.sleep(60)
    yield b""


async def exit_program(self, flow, *more):
    raise SystemExit(3)


async def cancel(self, flow, *more):
    raise asyncio.CancelledError


async def not_bytes(self, flow, *more):
    return "text"


HEADS, BODIES = ("on_request_head", "on_response_head"), (
    "on_request_body", "on_response_body")
FAULTS = [(hook, function) for function in (fail, hang, exit_program, cancel)
          for hook in HEADS + BODIES] + [
    (hook, function) for function in (fail_pieces, hang_pieces, not_bytes)
    for hook in BODIES]


@pytest.mark.parametrize(("hook", "function"), FAULTS)
def test_a_fault_refuses_or_passes_as_configured(hook, function):
    made = type("Faulty", (), {hook: function})()
    given = {"method": "POST", "body": b"up", "answer": Answer(body=b"down"),
             "budget": 0.02}
    late = function.__name__.startswith("hang")
    refused = play(made, **given)
    assert refused.outcome == ("filter_timeout" if late else "filter_failed")
    assert refused.text == "Faulty-0" and refused.response is None
    passed = play(made, **given, on_fault="pass")
    assert (passed.outcome, passed.request.body, passed.response.body) == (
        "ok", b"up", b"down")
    assert "X" not in passed.request.headers
    assert "X" not in passed.response.headers and passed.response.status == 200


def test_the_answer_of_a_function_that_failed_is_not_the_response():
    """The filters behind it saw its 410, and the client got the origin's 200."""
    class Fails:
        async def on_response_body(self, flow, body):
            flow.respond(410, b"gone")
            raise LookupError("oops")

    class Looks:
        async def on_response_body(self, flow, body):
            flow.metadata["seen"] = flow.response.status
            flow.response.headers["X"] = "looked"

    played = play(Fails(), Looks(), answer=Answer(body=b"down"), on_fault="pass")
    assert played.flow.metadata["seen"] == played.response.status == 200
    assert played.response.headers["X"] == "looked"


def test_the_wait_for_bytes_is_not_the_filter_s_time():
    class Paced:
        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                await asyncio.sleep(0.005)
                yield piece
    body = bytes(100)
    assert play(Paced(), answer=Answer(body=body), pieces=1,
                budget=0.2).response.body == body


def test_a_filter_s_own_timeout_is_no_overrun():
    class Own:
        async def on_request_head(self, flow):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
    assert play(Own()).outcome == "filter_failed"


@pytest.mark.parametrize("key", ["host", "port"])
def test_the_target_cannot_change_inside_an_interception(key):
    class Moves:
        async def on_request_head(self, flow):
            flow.request.host, flow.request.port = "Example.com", 443
            setattr(flow.request, key, {"host": "b.example", "port": 8443}[key])
    assert play(Moves(), url="https://example.com/").outcome == "filter_failed"
    assert play(Moves(), url="https://example.com/", on_fault="pass").outcome == "ok"
    assert play(Moves()).outcome == "ok"


def test_on_end_knows_the_outcome():
    outcomes = []

    class Ends:
        async def on_end(self, flow):
            await asyncio.sleep(0)
            outcomes.append(flow.outcome)
    play(Ends(), answer=JSON)

    class Refuses(Ends):
        async def on_request_head(self, flow):
            flow.refuse("no")
    play(Refuses())
    assert outcomes == ["ok", "filter_refused"]


def test_what_is_no_filter_is_an_error():
    class Plain:
        def on_request_head(self, flow):
            pass
    with pytest.raises(ValueError, match="not an async function"):
        play(Plain())
    with pytest.raises(ValueError, match="has none of"):
        play(object())


def test_json_is_rewritten_beside_other_types():
    from docs.examples.filters import HidePrices
    assert json.loads(play(HidePrices(), answer=JSON).response.body) == {"price": None}


def test_a_connect_is_played_too():
    class Label:
        async def on_connect(self, flow):
            if flow.request.host == "b.test":
                flow.respond(451, b"no")
            elif flow.request.headers.get("X-A"):
                flow.response.headers["X-B"] = flow.request.url

        async def on_request_head(self, flow):
            raise AssertionError("it is of other requests")

    played = play(Label(), method="CONNECT", url="a.test:443", headers={"X-A": "1"})
    assert (played.outcome, played.request.first) == (
        "ok", "CONNECT a.test:443 HTTP/1.1")
    assert played.response.status == 200
    assert list(played.response.headers) == [("X-B", "a.test:443")]
    played = play(Label(), method="CONNECT", url="b.test:443")
    assert (played.outcome, played.response.status, played.response.body) == (
        "filter_answered", 451, b"no")
