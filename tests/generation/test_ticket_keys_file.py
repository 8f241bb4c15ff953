"""The file of ticket keys: nginx's octets, HAProxy's lines, and mistakes."""

import base64
import os
from pathlib import Path

import pytest

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError
from cutthrough.generation.ticket_keys_file import parse_ticket_keys, read_ticket_keys

LONG = [bytes([n]) * 80 for n in (1, 2, 3)]
SHORT = [bytes([n]) * 48 for n in (4, 5, 6)]


def lines(*keys: bytes, end: bytes = b"\n") -> bytes:
    return b"".join(base64.b64encode(key) + end for key in keys)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_octets_and_lines_are_the_same_keys(count):
    keys = tuple(LONG[:count])
    assert parse_ticket_keys(b"".join(keys)) == keys
    assert parse_ticket_keys(lines(*keys)) == keys
    assert parse_ticket_keys(lines(*keys, end=b"\r\n")) == keys
    short = parse_ticket_keys(b"".join(SHORT[:count]))
    assert short == parse_ticket_keys(lines(*SHORT[:count]))
    assert [key[:16] for key in short] == [key[:16] for key in SHORT[:count]]
    assert {len(key) for key in short} == {80}


def test_a_short_key_has_two_secrets_of_full_length():
    (key,) = parse_ticket_keys(SHORT[0])
    cipher, mac = key[16:48], key[48:]
    assert cipher != mac and SHORT[0][16:32] not in cipher + mac


def test_a_line_may_have_either_length():
    assert len(parse_ticket_keys(lines(LONG[0], SHORT[0]))) == 2


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "neither"), (b"\n", "neither"), (bytes(79), "neither"),
    (b"?" * 81, "neither"),
    (lines(LONG[0])[:-4], "neither"), (lines(bytes(32)), "neither"),
    (b"".join(LONG) + LONG[0], "neither"), (lines(*LONG, *SHORT), "has 6 keys"),
    (LONG[0] + LONG[0], "two keys of one name"), (bytes(80), "all zeros")])
def test_a_mistake_is_named(data, reason):
    with pytest.raises(FileError, match=reason):
        parse_ticket_keys(data)


def test_no_file_is_no_key_and_a_public_one_is_refused(tmp_path: Path):
    assert read_ticket_keys(Config()) == ()
    file = tmp_path / "keys"
    config = Config(ticket_keys_file=str(file))
    with pytest.raises(ConfigError, match="No such file"):
        read_ticket_keys(config)
    file.write_bytes(LONG[0])
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="others than its owner may read it"):
        read_ticket_keys(config)
    file.chmod(0o600)
    assert read_ticket_keys(config) == (LONG[0],)
    assert os.stat(file).st_mode & 0o777 == 0o600
