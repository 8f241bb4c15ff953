"""Bodies: charsets of one list, codings within a bound, text written as it came."""

import codecs
import encodings.aliases
import functools
import gzip
import os
from collections.abc import Callable, Iterator

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from cutthrough import codings
from cutthrough.codings import CodingError, Decoder, Decoders, make_decoders
from cutthrough.exchange import content
from cutthrough.exchange.content import (
    CODECS,
    as_text,
    codec_of,
    inflate,
    read_text,
    undo_coding,
)


def test_every_label_of_the_list_has_a_codec() -> None:
    """R65."""
    assert len(CODECS) > 200
    for codec in CODECS.values():
        assert "a".encode(codec).decode(codec) == "a", "str.encode takes no other codec"


@pytest.mark.parametrize("name", sorted({
    *encodings.aliases.aliases, *encodings.aliases.aliases.values(), "punycode", "idna",
    "unicode_escape", "raw_unicode_escape", "zlib", "utf_7", "undefined", "mbcs"}))
def test_no_other_codec_of_python_is_looked_up(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R65: punycode is quadratic, and a peer names it."""
    if name in CODECS:
        return
    assert codec_of(f"text/plain; charset={name}") == ""
    assert as_text(b"a", f"text/plain; charset={name}", whole=True) is None
    assert read_text(b"a", f"text/plain; charset={name}", whole=True) is None


@given(st.binary(max_size=200), st.sampled_from([
    "", "text/plain", "application/json; charset=latin1",
    "text/html; charset=shift_jis",
    "text/html; charset=gb18030", "text/plain; charset=utf-16", "image/png",
    "text/plain; charset=iso-2022-jp", "text/plain; charset=windows-1252"]))
def test_text_of_octets_that_the_charset_has_is_written_as_it_came(
        data: bytes, kind: str) -> None:
    read = read_text(data, kind, whole=True)
    if read is not None and read.errors == "surrogateescape":
        assert read.octets(read.text) == data


@pytest.mark.parametrize(("data", "text"), [
    (codecs.BOM_UTF16_LE + "\xe9{".encode("utf-16-le"), "\ufeff\xe9{"),
    (codecs.BOM_UTF16_BE + "\xe9{".encode("utf-16-be"), "\ufeff\xe9{"),
    (codecs.BOM_UTF32_LE + "\xe9{".encode("utf-32-le"), "\ufeff\xe9{"),
    (codecs.BOM_UTF8 + "\xe9{".encode(), "\ufeff\xe9{"),
])
def test_a_byte_order_mark_counts_more_than_a_charset(data: bytes, text: str) -> None:
    read = read_text(data, "text/plain; charset=latin1", whole=True)
    assert read is not None and read.text == text
    assert read.octets(read.text) == data


def test_what_inflates_is_bounded_by_its_use() -> None:
    """R65."""
    bomb = gzip.compress(bytes(1 << 20))
    assert undo_coding(bomb, "gzip", 1000) == (bytes(1000), False)
    twice = gzip.compress(gzip.compress(bytes(64 << 20)))
    made, ended = undo_coding(twice, "gzip, gzip", content.MOST_CAPTURED)
    assert made is not None and len(made) == content.MOST_CAPTURED and not ended
    with pytest.raises(CodingError):
        inflate(bomb, "gzip", 1000)
    assert inflate(bomb, "gzip") == bytes(1 << 20)


def coded(data: bytes, *times: Callable[[bytes], bytes]) -> bytes:
    for encode in times:
        data = encode(data)
    return data


# Without the time, which would be in the names of tests
GZIP = functools.partial(gzip.compress, mtime=0)
ZSTD, MIB = zstd.compress, 1 << 20
# Nothing comes out of them: 64 MiB between two codings
BOMBS = {
    "gzip, gzip, gzip": coded(GZIP(b"") + bytes(64 * MIB), GZIP, GZIP),
    "gzip, zstd": coded(GZIP(b"") * 200_000, ZSTD),
    "zstd, gzip": coded(ZSTD(b"") * 400_000, GZIP),
    "zstd": ZSTD(b"") * 20_000}


@pytest.mark.parametrize("coding", BOMBS)
def test_what_inflates_to_nothing_is_bounded_between_codings(coding: str) -> None:
    """R63, R99: a few kilobytes were seconds of work, since nothing came out."""
    assert undo_coding(BOMBS[coding], coding, content.MOST_CAPTURED) == (None, False)
    decoders, work = make_decoders(coding), 0
    with pytest.raises(CodingError):
        for piece in decoders.feed(BOMBS[coding]):
            assert not piece
            made = decoders.take_work()
            assert made <= len(BOMBS[coding]) + codings.PIECE * 2, "others have a turn"
            work += made
    members = codings.MOST_BETWEEN // codings.BETWEEN_OF_MEMBER
    assert work < len(BOMBS[coding]) + 2 * codings.MOST_BETWEEN + (
        members * codings.WORK_OF_MEMBER)


def test_what_comes_out_first_pays_for_little_behind_it() -> None:
    """R63."""
    tail = GZIP(b"") + bytes(64 * MIB)
    bomb = GZIP(GZIP(bytes(MIB)) + tail)
    decoders, size, work = make_decoders("gzip, gzip"), 0, 0
    with pytest.raises(CodingError):
        for piece in decoders.feed(bomb):
            size += len(piece)
            work += decoders.take_work()
    assert size == MIB and work < 5 * MIB


@pytest.mark.parametrize(("coding", "data", "size"), [
    ("gzip, gzip, gzip", coded(bytes(3 * MIB), GZIP, GZIP, GZIP), 3 * MIB),
    ("gzip, zstd, gzip", coded(os.urandom(3 * MIB), GZIP, ZSTD, GZIP), 3 * MIB),
    ("gzip", GZIP(b"x" * 200) * 15_000, 3_000_000),     # each line for itself
    ("zstd", ZSTD(b"x" * 200) * 15_000, 3_000_000),
    ("zstd, gzip", GZIP(ZSTD(b"x" * 200) * 15_000), 3_000_000)])
def test_codings_of_content_stay_within_that_bound(
        coding: str, data: bytes, size: int) -> None:
    made, ended = undo_coding(data, coding, content.MOST_CAPTURED)
    assert made is not None and len(made) == size and ended


def test_a_coding_gets_few_bytes_at_a_time() -> None:
    """zlib copies what is left behind each member: 4 MiB of members were 440 GB."""
    taken: list[int] = []

    class Takes(Decoder):
        def feed(self, data: bytes) -> Iterator[bytes]:
            taken.append(len(data))
            yield data

    data = os.urandom(MIB + 1)
    assert b"".join(Decoders([Takes(), Takes()]).feed(data)) == data
    assert sum(taken) == 2 * len(data) and max(taken) <= codings.SLICE
