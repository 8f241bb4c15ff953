"""The fingerprint of a client's first frames, against a plain reader."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.http2.conftest import Couple
from tests.http2.twin_prints import read_print
from tests.support.http2 import PREFACE, PRIORITY, SETTINGS, WINDOW_UPDATE, frame

MOST = 252


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(
        number.to_bytes(2) + value.to_bytes(4) for number, value in pairs))


def hear(data: bytes, sizes: int = 1 << 16) -> str:
    """What a carrier makes of these octets, in pieces."""
    couple = Couple()
    try:
        couple.peer.h2.data_to_send()
        for at in range(0, len(data), sizes):
            couple.theirs.sendall(data[at:at + sizes])
            couple.carrier.hear()
        text = couple.carrier.take_print()
        assert couple.carrier.take_print() is None
        return text
    finally:
        couple.close()


CHROME = (PREFACE + settings((1, 65536), (3, 1000), (4, 6291456))
          + frame(WINDOW_UPDATE, payload=(15663105).to_bytes(4)))


def test_the_example_of_akamai_at_every_split() -> None:
    for sizes in (1, 2, 5, 24, 1000):
        assert hear(CHROME, sizes) == "1:65536;3:1000;4:6291456|15663105|0|"


def test_the_first_of_each_counts() -> None:
    later = settings((4, 70000)) + frame(WINDOW_UPDATE, payload=b"\0\0\0\7")
    assert hear(CHROME + later) == hear(CHROME)


def test_a_window_of_a_stream_does_not_count() -> None:
    data = PREFACE + settings() + frame(PRIORITY, stream=3, payload=b"\x80\0\0\0\xff")
    assert hear(data + frame(WINDOW_UPDATE, stream=0, payload=b"\0\0\0\5")) == (
        "|5|3:1:0:256|")


def test_a_thousand_settings_end_the_connection_and_are_bounded() -> None:
    data = PREFACE + settings(*((number, 1 << 31) for number in range(1000)))
    text = hear(data)
    assert len(text) <= MOST
    assert text == read_print(data)


FRAMES = st.one_of(
    st.lists(st.tuples(st.integers(0, 65535), st.integers(0, (1 << 32) - 1)),
             max_size=40).map(lambda pairs: settings(*pairs)),
    st.binary(min_size=0, max_size=12).map(lambda data: frame(SETTINGS, payload=data)),
    st.just(frame(SETTINGS, 1)),
    st.tuples(st.integers(0, 3), st.binary(min_size=3, max_size=5)).map(
        lambda found: frame(WINDOW_UPDATE, 0, *found)),
    st.tuples(st.integers(0, 9), st.binary(min_size=4, max_size=6)).map(
        lambda found: frame(PRIORITY, 0, *found)),
    st.tuples(st.integers(4, 20), st.binary(max_size=9)).map(
        lambda found: frame(found[0], 0, 0, found[1])))


@given(st.lists(FRAMES, max_size=12), st.integers(1, 60), st.data())
def test_the_plain_reader_agrees(frames: list[bytes], sizes: int, data: Any) -> None:
    """Whatever libnghttp2 makes of the frames: it gets them behind the reader."""
    octets = PREFACE + b"".join(frames)
    octets = octets[:data.draw(st.integers(0, len(octets)))]
    text = hear(octets, sizes)
    assert text.isascii() and text.isprintable() and len(text) <= MOST
    whole = read_print(octets)
    parts, wanted = text.split("|"), whole.split("|")
    assert len(parts) == 4
    # A connection that has failed is read no further
    assert all(wanted[i].startswith(parts[i]) or parts[i] in ("0", "00")
               for i in range(3))
    if sizes > len(octets):
        assert text == whole
