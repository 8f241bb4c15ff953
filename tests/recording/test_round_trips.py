"""Any recording into files and back: the same, but for losses that the writer named."""

import gzip
import io
import json
import string

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange.targets import spell_octets
from cutthrough.recording.formats.exchanges import read_exchanges, write_archive
from cutthrough.recording.formats.vcr import read_cassette, write_cassette
from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Pattern,
    Recording,
    Request,
    Response,
)
from cutthrough.recording.sessions.folder import MANIFEST, read_folder, write_folder
from cutthrough.recording.sessions.session import Manifest

TOKENS = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=8)
# Text that a head may have: of latin-1, and no blank at either end
VALUES = st.text([chr(code) for code in (*range(32, 127), *range(161, 256))],
                 max_size=12).map(str.strip)
# No fields about the body, or the way
FIELDS = st.lists(st.tuples(TOKENS.map(lambda name: f"X-{name}"), VALUES) | st.tuples(
    st.just("Set-Cookie"), VALUES), max_size=5).map(tuple)
PATHS = st.text(string.ascii_letters + "/%&=+:;@,.~!$'()*\xfc\u20ac", max_size=12)
WORDS = st.dictionaries(TOKENS, st.text(max_size=5), max_size=2)
TIMES = st.integers(0, 10**9)
BODIES = st.one_of(
    st.binary(max_size=30), st.text(max_size=30).map(str.encode), st.sampled_from([
        b'{"a": 1}', b"[]", "é\r\n\0".encode(), "größer".encode("latin-1"),
        b"\xff\xfe"]))
KINDS = st.sampled_from([
    "", "text/plain", "application/json", "image/png", "text/html; charset=iso-8859-1",
    "text/plain; charset=utf-16", "text/plain; charset=nonsense"])


def rarely(values, usual):
    return st.one_of(st.just(usual), st.just(usual), st.just(usual), values)


@st.composite
def requests(draw):
    kind = draw(KINDS)
    return Request(
        method=draw(st.sampled_from(["GET", "POST", "M-SEARCH", "HEAD"])),
        scheme=draw(st.sampled_from(["http", "https"])),
        host=draw(st.sampled_from(["a.example", "::1", "127.0.0.1"])),
        port=draw(st.sampled_from([80, 443, 8080])), path=f"/{draw(PATHS)}",
        query=draw(PATHS | st.just("a=1&a=2")), body=draw(BODIES),
        fields=(*draw(FIELDS), *((("Content-Type", kind),) if kind else ())))


@st.composite
def responses(draw):
    kind, coding = draw(KINDS), draw(rarely(st.sampled_from(["gzip", "x-own"]), ""))
    pieces = [piece for piece in draw(st.lists(BODIES, max_size=3)) if piece]
    if coding == "gzip" and pieces:
        pieces = [gzip.compress(b"".join(pieces), mtime=0)]
    fields = (*draw(FIELDS), *((("Content-Type", kind),) if kind else ()),
              *((("Content-Encoding", coding),) if coding else ()))
    messages = draw(rarely(st.lists(st.builds(
        Message, TIMES, st.booleans(), st.sampled_from(["text", "binary", "ping"]),
        BODIES), min_size=1, max_size=3).map(tuple), ()))
    if messages:
        return Response(status=101, fields=fields, messages=messages)
    return Response(
        status=draw(st.integers(200, 599)), reason=draw(VALUES), fields=fields,
        head_us=draw(TIMES), chunks=tuple(Chunk(draw(TIMES), one) for one in pieces),
        trailers=draw(rarely(FIELDS, ())))


RECORDINGS = st.lists(st.builds(
    Recording, request=requests(), response=responses(),
    created_us=st.integers(0, 4 * 10**15), tags=rarely(st.just(("a", "b")), ()),
    patterns=rarely(st.lists(st.builds(
        Pattern, part=st.sampled_from(["path", "body", "url"]), key=TOKENS,
        how=st.sampled_from(["exact", "glob", "regex"]), value=st.text(max_size=5)),
        max_size=2).map(tuple), ()),
    requires=rarely(WORDS, {}), sets=rarely(WORDS, {}),
    removes=rarely(st.lists(TOKENS, max_size=2).map(tuple), ()),
    delay_us=rarely(TIMES, 0), template=rarely(st.just(True), False)), max_size=3)


def numbered(recordings):
    return [msgspec.structs.replace(one, number=number)
            for number, one in enumerate(recordings, 1)]


def bare(one):
    return msgspec.structs.replace(one, number=0, created_us=0, hits=0)


def spelled(one):
    """A URL of a file is text, and has octets beyond ASCII as %XX."""
    request = one.request
    return msgspec.structs.replace(one, request=msgspec.structs.replace(
        request, path=spell_octets(request.path), query=spell_octets(request.query)))


def told(left_out):
    """The losses of each number, and the numbers that are not there at all."""
    found = {}
    for number, reason in left_out:
        found.setdefault(number, []).append(reason)
    return found, {number for number, reasons in found.items() if any(
        reason.startswith("left out: ") for reason in reasons)}


def reduced(one, reasons):
    """The recording without the losses that the writer names, and without the pieces of
    a body and their times, because no file of other programs has them."""
    response = one.response
    changes, inner = {"number": 0, "hits": 0, "created_us": 0}, {}
    for reason in reasons:
        if "its trailers" in reason:
            inner["trailers"] = ()
        elif "its tags" in reason:
            changes["tags"] = ()
        elif "its delay" in reason:
            changes["delay_us"] = 0
        elif "its changes of the state" in reason:
            changes |= {"sets": {}, "removes": ()}
        else:
            assert "coding of its content" in reason
            inner |= {"chunks": (Chunk(0, gzip.decompress(response.body)),), "fields": (
                tuple(one for one in response.fields if one[0] != "Content-Encoding"))}
    return msgspec.structs.replace(
        one, **changes, response=joined(msgspec.structs.replace(response, **inner)))


def joined(response):
    body = response.body
    return msgspec.structs.replace(
        response, head_us=0, chunks=(Chunk(0, body),) if body else ())


def grouped(one):
    """The fields of a name together, as a cassette has them."""
    def sort(fields):
        names = list(dict.fromkeys(name for name, _ in fields))
        return tuple(sorted(fields, key=lambda pair: names.index(pair[0])))

    return msgspec.structs.replace(
        one, request=msgspec.structs.replace(
            one.request, fields=sort(one.request.fields)),
        response=msgspec.structs.replace(
            one.response, fields=sort(one.response.fields)))


@settings(max_examples=60, deadline=None)
@given(RECORDINGS, st.sampled_from(["json", "yaml"]))
def test_a_directory_comes_back_as_it_was(tmp_path_factory, recordings, form):
    folder = tmp_path_factory.mktemp("folder")
    assert write_folder(folder, Manifest(), numbered(recordings), form) == []
    assert read_folder(folder) == (Manifest(), list(map(bare, recordings)))


@settings(max_examples=100, deadline=None)
@given(RECORDINGS)
def test_a_cassette_comes_back_as_it_was_but_for_what_is_told(recordings):
    recordings, file = numbered(recordings), io.StringIO()
    found, absent = told(write_cassette(file, recordings))
    assert [bare(one) for one in read_cassette(file.getvalue().encode())] == [
        spelled(grouped(reduced(one, found.get(one.number, ())))) for one in recordings
        if one.number not in absent]


@settings(max_examples=100, deadline=None)
@given(RECORDINGS)
def test_an_archive_comes_back_as_it_was_but_for_what_is_told(recordings):
    recordings, file = numbered(recordings), io.StringIO()
    found, absent = told(write_archive(file, recordings))
    back = list(read_exchanges(io.BytesIO(file.getvalue().encode())))
    kept = sorted((one for one in recordings if one.number not in absent),
                  key=lambda one: (one.created_us, one.number))
    assert [one.created_us for one in back] == [one.created_us for one in kept]
    assert [bare(msgspec.structs.replace(one, response=joined(one.response)))
            for one in back] == [spelled(reduced(one, found.get(one.number, ())))
                                 for one in kept]


@settings(max_examples=40, deadline=None)
@given(RECORDINGS, st.data())
def test_equal_exports_are_equal_and_a_change_changes_one_file(
        tmp_path_factory, recordings, data):
    """Also if numbers, hits and times are others."""
    def export(some):
        folder = tmp_path_factory.mktemp("folder")
        write_folder(folder, Manifest(), some)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    first = export(numbered(recordings))
    assert export([msgspec.structs.replace(one, number=7 + n, hits=n, created_us=n)
                   for n, one in enumerate(recordings)]) == first
    if not recordings:
        return
    at = data.draw(st.integers(0, len(recordings) - 1))
    changed = list(recordings)
    changed[at] = msgspec.structs.replace(changed[at], response=msgspec.structs.replace(
        changed[at].response, reason=f"{changed[at].response.reason}!"))
    second = export(changed)
    assert second.keys() == first.keys()
    assert [name for name in first if first[name] != second[name]] == [
        json.loads(first[MANIFEST])["recordings"][at]]
