"""A body on the wire, and the kept part of it."""

import gzip
import sys
import zlib

import brotli
import pytest

from cutthrough import codings
from cutthrough.exchange.bodies import Body, Transferred, make_body
from cutthrough.exchange.content import MOST_CAPTURED
from tests.support.redaction import redactor
from tests.support.stream import chunked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = "Content-Type: text/plain\r\n"


def keep(raw, fields=TEXT, seen=None, chunks=False, cut=False, **settings):
    transferred = Transferred(raw, len(raw) if seen is None else seen, chunks, cut)
    return make_body(transferred, f"HTTP/1.1 200 OK\r\n{fields}\r\n",
                     redactor(**settings))


def test_a_text_is_text_and_anything_else_is_bytes():
    assert keep(b"abc") == Body("abc", 3, 3)
    assert keep(b"\x89PNG", "Content-Type: image/png\r\n").content == b"\x89PNG"
    assert keep("ä".encode("latin-1"), TEXT[:-2] + "; charset=ISO-8859-1\r\n") == Body(
        "ä", 1, 1)
    assert keep(b"{}", "").content == "{}", "no type, and UTF-8"
    assert keep(b"\xff\xfe\xff", "").content == b"\xff\xfe\xff"
    assert keep(b"a\0b").content == b"a\0b"


@pytest.mark.parametrize("kind", [
    "application/x-amz-json-1.1", "application/x-javascript", "application/x-xml",
    "application/json5", "application/vnd.apple.mpegurl", "application/x-ndjson",
    "application/vnd.a+json", "application/jwt"])
def test_a_type_of_text_is_one_by_any_of_its_names(kind):
    assert keep(b"abc", f"Content-Type: {kind}\r\n").content == "abc"


@pytest.mark.parametrize("kind", [
    "application/x-sqlite3", "application/vnd.wap.wbxml", "application/x-protobuf"])
def test_a_name_with_letters_of_a_type_of_text_is_none(kind):
    assert keep(b"abc", f"Content-Type: {kind}\r\n").content == b"abc"


@pytest.mark.parametrize("charset", ["zlib", "hex", "rot13", "unknown", "utf-7"])
def test_a_charset_is_no_way_to_other_codecs(charset):
    raw = zlib.compress(b"x" * 1000)
    fields = f"Content-Type: text/plain; charset={charset}\r\n"
    assert keep(raw, fields).content == raw


def test_chunks_are_joined():
    raw = chunked([b"one", b"two"])
    assert keep(raw, chunks=True) == Body("onetwo", 6, 6)
    assert keep(raw[:-5], seen=len(raw), chunks=True) == Body(
        "onetwo", None, None, "truncated")
    assert keep(b"5;x=y\r\nhello\r\n0\r\nTrailer: t\r\n\r\n", chunks=True).content == (
        "hello")


@pytest.mark.parametrize(("coding", "encode"), [
    ("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress),
    ("deflate", lambda data: zlib.compress(data, wbits=-15)),
    ("br", brotli.compress), ("zstd", zstd.compress),
    ("gzip, br", lambda data: brotli.compress(gzip.compress(data))),
])
def test_an_encoding_is_undone_and_both_lengths_are_known(coding, encode):
    raw = encode(b"hello " * 100)
    fields = f"{TEXT}Content-Encoding: {coding}\r\n"
    assert keep(raw, fields) == Body("hello " * 100, len(raw), 600)


@pytest.mark.parametrize(("codings", "encode"), [
    (("gzip", "br"), lambda data: brotli.compress(gzip.compress(data))),
    (("identity", "GZIP"), gzip.compress), (("", "gzip"), gzip.compress),
    (("identity", "identity"), bytes)])
def test_encodings_in_several_lines_are_one_list(codings, encode):
    """Only the first line was undone."""
    raw = encode(b"hello " * 100)
    fields = TEXT + "".join(f"Content-Encoding: {one}\r\n" for one in codings)
    assert keep(raw, fields) == Body("hello " * 100, len(raw), 600)


@pytest.mark.parametrize("tail", [b"\0", bytes(100_000)])
def test_zeros_behind_a_member_of_gzip_are_padding(tail):
    """RFC 1952 has none, and gzip(1) and browsers pass them over."""
    raw = gzip.compress(b"hel") + tail + gzip.compress(b"lo") + tail
    fields = f"{TEXT}Content-Encoding: gzip\r\n"
    assert keep(raw, fields) == Body("hello", len(raw), 5)
    assert keep(gzip.compress(b"hello") + tail + b"xxxx", fields).state == "encoded"
    decoders = codings.make_decoders("gzip")
    pieces = [b"".join(decoders.feed(raw[at:at + 7]))
              for at in range(0, len(raw), 7)]
    decoders.end()
    assert b"".join(pieces) == b"hello"


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "aes128gcm", "gzip, br"])
def test_content_that_cannot_be_decoded_stays(coding):
    raw = b"\xff" * 9
    assert keep(raw, f"{TEXT}Content-Encoding: {coding}\r\n") == Body(
        raw, 9, None, "encoded")


def test_a_coding_that_is_malformed_behind_a_full_piece_stays():
    """65 537 times one letter by a bit each, then a distance that no code has, in the
    last byte: zlib has taken all of the input when it says so. It ended the exchange:
    neither capture nor recording had it."""
    raw = bytes.fromhex("0de081000000008020b0e62ff101") + bytes(8191) + b"\x38"
    assert keep(raw, f"{TEXT}Content-Encoding: deflate\r\n") == Body(
        raw, len(raw), None, "encoded")


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_an_encoding_without_its_package_stays(coding, monkeypatch):
    monkeypatch.delitem(codings.known_decoders(), coding)
    raw = ENCODERS[coding](b"hello")
    assert keep(raw, f"{TEXT}Content-Encoding: {coding}\r\n") == Body(
        raw, len(raw), None, "encoded")


ENCODERS = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("coding", ENCODERS)
def test_a_bomb_ends_at_its_bound(coding):
    raw = ENCODERS[coding](bytes(64 << 20))
    body = keep(raw, f"Content-Type: image/png\r\nContent-Encoding: {coding}\r\n")
    assert (len(body.content), body.decoded, body.state) == (
        MOST_CAPTURED, None, "truncated")


@pytest.mark.parametrize("coding", ENCODERS)
def test_encoded_content_that_is_cut_is_kept_as_far_as_it_goes(coding):
    text = "".join(f"{n} times {n * n}, " for n in range(5000))
    raw = ENCODERS[coding](text.encode())
    body = keep(raw[:-200], f"{TEXT}Content-Encoding: {coding}\r\n", seen=len(raw))
    assert body.state == "truncated" and body.decoded is None
    assert text.startswith(body.content) and len(body.content) < len(text)


def test_a_window_that_http_does_not_allow_is_not_made():
    """RFC 9659: the window of zstd has 8 MiB at most."""
    wide = {zstd.CompressionParameter.window_log: 25,
            zstd.CompressionParameter.enable_long_distance_matching: 1}
    encoder = zstd.ZstdCompressor(options=wide)
    raw = encoder.compress(bytes(9 << 20)) + encoder.flush()
    assert keep(raw, f"{TEXT}Content-Encoding: zstd\r\n").state == "encoded"


def test_a_body_in_part_says_so():
    assert keep(b"abc", seen=10) == Body("abc", 10, None, "truncated")
    assert keep(b"abc", seen=10, cut=True).state == "incomplete"
    assert keep("aä".encode()[:2], seen=3).content == "a", "cut within a character"


def test_a_secret_that_cannot_be_looked_for_is_not_kept():
    """R59."""
    coded = keep(b"token=s3cret", f"{TEXT}Content-Encoding: xz\r\n", query=("token",))
    assert coded == Body(None, 12, None, "redacted")
    json = "Content-Type: application/json\r\n"
    assert keep(b'{"a": "s3', json, seen=20, json=("a",)) == Body(
        None, 20, None, "redacted")
    assert keep(b'{"a": "s3cret"}', json, json=("a",)).content == '{"a": "[redacted]"}'
