"""Cassettes of VCR.py, as its versions and the clients that it records write them."""

import gzip
import io
import json

import msgspec
import pytest

from cutthrough.exchange.formats.imported import Altered, NotImported
from cutthrough.recording.formats.vcr import read_cassette, write_cassette
from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Pattern,
    Recording,
    Response,
)
from tests.recording.answers import request
from tests.support.cassettes import (
    CASSETTE,
    OF_FILES,
    OF_OLD_HTTPX,
    OF_TORNADO,
    cassette,
)


def written(*recordings):
    file = io.StringIO()
    left_out = write_cassette(file, recordings)
    return file.getvalue().encode(), left_out


def test_a_cassette_is_read():
    one, refused = read_cassette(CASSETTE.encode())
    assert one.request.url == "https://a.example/x?q=1" and one.request.body == b"a=1"
    assert one.request.fields == (("Accept", "*/*"), ("X", "a"), ("X", "b"))
    assert one.response.body == b"\xff\x00" and one.response.reason == "OK"
    assert str(refused).startswith("interaction 1: the URL")


def test_the_tuples_of_tornado_are_read():
    (one,) = read_cassette(OF_TORNADO.encode())
    assert (one.response.status, one.response.body) == (404, b"not found")
    assert one.response.fields == (
        ("Content-Length", "9"), ("Set-Cookie", "a=1; path=/"),
        ("Set-Cookie", "b=2; path=/x"))


def test_content_of_older_httpx_goes_without_the_coding_that_it_had():
    (one,) = read_cassette(OF_OLD_HTTPX.encode())
    assert one.response.body == b'{\n  "gzipped": true}\n' and (
        one.response.status == 200)
    assert one.response.fields == (
        ("Content-Length", "21"), ("Content-Type", "application/json"))
    assert one.request.fields == ()          # a replay has its own Host


def test_files_and_iterators_are_read_as_what_was_in_them():
    assert [one.request.body for one in read_cassette(OF_FILES.encode())] == [
        b"abc", b"abc"]


@pytest.mark.parametrize(("body", "expected"), [
    ({"string": "é"}, "é".encode()), ({"base64_string": "/wA="}, b"\xff\0"), ({}, b""),
    ("text", b"text"), (None, b"")])
def test_every_form_of_a_body_is_read(body, expected):
    (one,) = read_cassette(cassette({"body": body}, body=body))
    assert one.request.body == one.response.body == expected


def test_a_coding_is_kept_if_the_body_has_it():
    """aiohttp's client records content that is decoded, with the fields of before."""
    packed = gzip.compress(b"abc")
    for body, coding in ((packed.hex(), None), ("", "gzip"), ("abc", "x-own")):
        (one,) = read_cassette(cassette(
            body={"string": body}, headers={"Content-Encoding": [coding or "gzip"]}))
        assert one.response.field("content-encoding") == (coding or "")
    (one,) = read_cassette(f"""\
version: 1
interactions:
- request: {{method: GET, uri: 'http://a/', body: null, headers: {{}}}}
  response:
    status: {{code: 200, message: OK}}
    headers: {{content-encoding: [gzip], content-length: ['{len(packed)}']}}
    body: {{string: !!binary {json.dumps(msgspec.to_builtins(packed))}}}
""".encode())
    assert one.response.body == packed
    assert one.response.field("content-encoding") == "gzip"


def test_fields_of_the_hop_are_left_out():
    """Replayed, they would contradict the fields of the proxy."""
    (one,) = read_cassette(cassette(headers={
        "Transfer-Encoding": ["chunked"], "Connection": ["keep-alive, X-Own"],
        "X-Own": ["1"], "X-Kept": ["2"], "Keep-Alive": ["5"]}))
    assert one.response.fields == (("X-Kept", "2"),)


def test_no_field_ends_a_head():
    (one,) = read_cassette(cassette(
        headers={"X": ["a\r\n\r\nb"]}, status={"code": 200, "message": "a\r\nb"}))
    assert one.response.fields == (("X", "a    b"),) and one.response.reason == "a  b"
    for name in ("a b", "a:", "", "a\r\nb"):
        one, named = read_cassette(cassette(headers={name: ["1"], "B": ["2"]}))
        assert one.response.fields == (("B", "2"),)
        assert isinstance(named, Altered) and "the name " in str(named)
    (one,) = read_cassette(cassette({"method": "GET /x"}))
    assert isinstance(one, NotImported)


@pytest.mark.parametrize("text", [
    "", "a: [", "interactions: 1", "version: 2\ninteractions: []", "[1]",
    '{"a": ', "!!python/object/apply:os.system ['true']"])
def test_what_is_no_cassette_is_refused(text):
    with pytest.raises(NotImported):
        read_cassette(text.encode())


@pytest.mark.parametrize("tag", [
    "!!python/object/apply:os.system ['true']", "!!python/name:os.system ''",
    "!!python/object/new:subprocess.Popen {state: [true]}", "!ruby/object:A {a: 1}"])
def test_a_value_with_another_tag_costs_its_interaction_alone(tag):
    body = "request: {method: GET, uri: 'http://a/', body: %s, headers: {}}\n"
    answer = "  response: {status: {code: 204}, headers: {}, body: null}\n"
    text = f"interactions:\n- {body % tag}{answer}- {tag}\n- {body % 'a'}{answer}"
    bad, whole, good = read_cassette(text.encode())
    assert isinstance(bad, NotImported) and tag.split()[0][-6:] in str(bad)
    assert isinstance(whole, NotImported) and good.request.body == b"a"


@pytest.mark.parametrize("text", [
    "- request: !!python/object:vcr.request.Request {host: a}\n  response: {}\n",
    '[{"request": {"host": "a"}, "response": {}}]', "- request: {}\n  response: {}\n"])
def test_what_vcr_py_reads_no_more_is_refused_with_what_to_do(text):
    with pytest.raises(NotImported, match=r"vcr\.migration"):
        read_cassette(text.encode())


def test_tuples_with_aliases_are_no_keys_of_tables():
    """Their hashes would take for ever."""
    bomb = "".join(f"a{n}: &a{n} !!python/tuple [{', '.join([f'*a{n - 1}'] * 9)}]\n"
                   if n else "a0: &a0 x\n" for n in range(30))
    with pytest.raises(NotImported):
        read_cassette(f"{bomb}interactions: {{? *a29 : 1}}\n".encode())


def test_what_a_cassette_has_not_is_told():
    plain = Recording(number=1, request=request("/a"), response=Response(
        status=200, chunks=(Chunk(0, b"abc"),)))
    inner = msgspec.structs.replace
    data, left_out = written(
        plain,
        inner(plain, number=2, patterns=(Pattern(part="path", how="glob", value="*"),)),
        inner(plain, number=3, response=Response(
            status=101, messages=(Message(1, True, "text", b"a"),))),
        inner(plain, number=4, requires={"a": "1"}),
        inner(plain, number=5, template=True),
        inner(plain, number=6, tags=("a",), sets={"a": "1"}, delay_us=1,
              response=inner(plain.response, trailers=(("A", "1"),))),
        inner(plain, number=7, response=Response(status=0, is_cut=True)))
    assert [one.request.path for one in read_cassette(data)] == ["/a", "/a"]
    assert [(number, reason.partition(":")[0]) for number, reason in left_out] == [
        (2, "left out"), (3, "left out"), (4, "left out"), (5, "left out"),
        (6, "without its trailers"), (6, "without its tags"),
        (6, "without its changes of the state"), (6, "without its delay"),
        (7, "left out")]
    assert "WebSocket" in left_out[1][1]
