"""Text of strangers for terminals and shells (R83)."""

import subprocess
import tempfile
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.capture.copies import as_curl, as_fetch, as_httpx
from cutthrough.capture.query import Request
from cutthrough.exchange.visible import is_visible, shell_format, shell_word, visible

# Prints the arguments that curl would get, then its standard input
CURL = r"""curl() { printf '%s\0' "$@"; case "$*" in *@-*) cat;; esac; }
"""
HOSTILE = st.lists(st.sampled_from([
    b"\x03", b"\x1b[2J", b"\n", b"\r", b"'", b'"', b"\\", b"$(id)", b"`id`", b"!!",
    b"a", b"\x7f", b"\xc2\x9b", b"\xff", "\u202e".encode(), "\u200b".encode(), b"7",
    "\U000e0041".encode(), "\u3164".encode(), "\xe9".encode(), b"x41", b";", b"&"])
    ).map(b"".join)


def run(script: str, shell: str = "sh") -> bytes:
    """Its output. In a file: one word of a command has 128 KiB at most."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(CURL + script)
        file.flush()
        return subprocess.run([shell, file.name], check=True,
                              capture_output=True, timeout=60).stdout


@settings(deadline=None)                     # it starts two processes
@given(st.lists(HOSTILE, min_size=40, max_size=40))
def test_a_shell_reads_a_word_as_its_octets(words: list[bytes]) -> None:
    """R83. By dash, which has no $'…', and by bash."""
    words = [word.rstrip(b"\n") for word in words]
    text = " ".join(map(shell_word, words))
    assert all(map(is_visible, text))
    for shell in ("sh", "bash"):
        assert run(f"printf '%s\\0' {text}", shell) == b"\0".join([*words, b""])


@settings(deadline=None)
@given(HOSTILE)
def test_a_shell_prints_any_octets(octets: bytes) -> None:
    """R83."""
    text = shell_format(octets + b"\0\n")
    assert all(map(is_visible, text))
    for shell in ("sh", "bash"):
        assert run(f"printf {text}", shell) == octets + b"\0\n"


@pytest.mark.parametrize("body", [
    b"hi\x03\necho PW\"NED\"\n", b"caf\xe9", b"a\0b", "\u202e\u2066x".encode(),
    b"x" * 300_000, b"@file", b"'; id; '"])
def test_a_command_of_curl_sends_the_octets_that_came(body: bytes) -> None:
    """A body with Ctrl-C ran commands when the text was pasted (R83)."""
    text = as_curl(Request(
        url="http://a.example/?a='$(id)", method="PUT", body=body,
        fields=(("X-A", "caf\xe9\x1b[1m"), ("Content-Type", "text/plain"))))
    assert all(is_visible(character) for character in text.replace("\n", ""))
    output = run(text)
    if b"@-" in output:
        words, _, content = output.partition(b"@-\0")
        assert content == body
    else:
        words, _, content = output.partition(b"--data-raw\0")
        assert content == body + b"\0"
    assert b"X-A: caf\xe9\x1b[1m\0" in words
    assert b"http://a.example/?a='$(id)\0" in words


@pytest.mark.parametrize("write", [as_curl, as_fetch, as_httpx])
def test_copies_are_printable(write) -> None:
    """R83."""
    text = write(Request(
        url="http://a.example/\u202e\x7f", method="PUT", body=b"\x7f\x9b\x1b\xc2\x85",
        fields=(("X-A", "\x7f\x9b"),)))
    assert all(is_visible(character) for character in text.replace("\n", ""))


def test_what_is_not_seen_is_named() -> None:
    assert visible("a\u202eb\x1b[2J\u3164\U000e0041\xa0\n\tc \xe9") == (
        "a\\u{202e}b\\u{1b}[2J\\u{3164}\\u{e0041}\\u{a0}\n\tc \xe9")


def test_no_character_of_a_direction_or_a_format_is_visible() -> None:
    for number in range(0x110000):
        character = chr(number)
        if unicodedata.category(character) in (
                "Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"):
            assert not is_visible(character)
