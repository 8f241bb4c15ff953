"""Keys of URLs and forms with their values, also without RE2; memory of a search."""

import sys
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from cutthrough.exchange.redaction.spellings import Keys
from cutthrough.log.hidden import hidden as shown
from cutthrough.log.hidden import hide_keys
from tests.support.memory import peak_of
from tests.support.redaction import redactor

FORM = "application/x-www-form-urlencoded"
MIB = 1 << 20


@pytest.fixture(params=["RE2", "re"])
def keys_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
            ) -> Callable[..., Keys]:
    if request.param == "re":
        monkeypatch.setitem(sys.modules, "re2", None)
    else:
        pytest.importorskip("re2")
    return lambda *names: Keys(names)


def hidden(keys: Keys, text: bytes, *, is_form: bool = False) -> list[bytes]:
    return [text[begin:end] for begin, end in keys.values(text, is_form=is_form)]


@pytest.mark.parametrize("key", [
    "token", "token%5B%5D", "%74oken", "token%5B0%5D", "token%20", "api%20key",
    "%61pi+key", "cl%C3%A9", "cl%25C3%25A9"])
@pytest.mark.parametrize("is_form", [True, False])
def test_an_encoded_ampersand_is_a_part_of_the_value_of_a_plain_pair(
        keys_of: Callable[..., Keys], key: str, is_form: bool) -> None:
    """R79. `%` in the key made `%26` end the value: the rest of a password stayed."""
    text = f"a=1&{key}=pass%26word%2526&b=2".encode()
    keys = keys_of("token", "api key", "clé")
    assert hidden(keys, text, is_form=is_form) == [b"pass%26word%2526"]


@pytest.mark.parametrize(("text", "value"), [
    (b"to=%3Ftoken%3Dpass%26b%3D2", b"pass"),
    (b"to=%3F%2574oken%3Dpass%26b%3D2", b"pass"),
    (b"to=%3Ftoken%3Dpass%2526word%26b%3D2", b"pass%2526word"),
    (b"to=%253Ftoken%253Dpass%2526b%253D2", b"pass"),
    (b"to=%3Ftoken%255B%255D%3Dpass%2526word%26b", b"pass%2526word"),
    (b"token[a][b][c][d][e][f]=pass&b=2", b"pass"),
    (b"token%" + b"25" * 20 + b"3Dpass%" + b"25" * 20 + b"26b=2", b"pass"),
])
def test_a_value_ends_as_its_equals_sign_is_spelled(
        keys_of: Callable[..., Keys], text: bytes, value: bytes) -> None:
    assert hidden(keys_of("token"), text) == [value]


@pytest.mark.parametrize("key", [
    "user[token]", "user[x][token]", "user[token][]", "user[0][token][1]", "token[a]",
    "user[Token]", "pin[code]", "pin[code][]", "a[token"])
def test_a_key_of_a_record_is_one_in_each_place(
        keys_of: Callable[..., Keys], key: str) -> None:
    """R79. Rails, PHP and qs write records so."""
    keys, value = keys_of("token", "pin[code]"), b"s3cret"
    for spelled in (key, quote(key), quote(quote(key)),
                    key.replace("[", "\\u005b").replace("]", "\\u005d")):
        text = f"/?a=1&{spelled}=s3cret&b=2".encode()
        assert hidden(keys, text) == [value], spelled
        assert hidden(keys, text[2:], is_form=True) == [value], spelled
    hide_keys(("token", "pin[code]"))
    try:
        assert b"s3cret" not in shown(f"/?{quote(key)}=s3cret&{key}=s3cret".encode())
    finally:
        hide_keys(())
    part = (f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\ns3cret\r\n'
            "--b--\r\n").encode()
    assert b"s3cret" not in redactor(query=("token", "pin[code]")).content(
        part, "multipart/form-data; boundary=b")


def test_another_key_in_brackets_stays(keys_of: Callable[..., Keys]) -> None:
    keys = keys_of("token", "pin[code]")
    for text in (b"user[xtoken]=1", b"user[token_]=1", b"pin=1", b"code=1", b"pin[a]=1",
                 b"[atoken]=1"):
        assert hidden(keys, text, is_form=True) == []


def test_no_level_of_encoding_makes_an_expression_as_long_as_itself(
        keys_of: Callable[..., Keys]) -> None:
    text = b"token%" + b"25" * (MIB // 2) + b"3Dpass%26b=2&c=3"
    keys = keys_of("token")
    assert peak_of(lambda: list(keys.values(text))) < 8 * MIB
    assert hidden(keys, text) in ([], [b"pass%26b=2"])   # without RE2: 32 levels


def test_forms_and_queries_and_heads_hide_all_of_a_value() -> None:
    """R79."""
    kept = redactor(query=("token", "api key"))
    for text in ("token%5B%5D=pass%26word", "%74oken=pass%26word",
                 "api%20key=pass%26word"):
        assert "word" not in kept.query(f"a=1&{text}&b=2")
        assert b"word" not in kept.content(f"a=1&{text}&b=2".encode(), FORM)
        head = kept.head(f"GET /?a=1&{text}&b=2 HTTP/1.1\r\nReferer: /?{text}\r\n\r\n")
        assert "word" not in head and head.count("&b=2 HTTP/1.1") == 1


WORST = {
    "value": b"token=" + b"x" * MIB, "encoded": b"token%3d" + b"x" * MIB,
    "quoted": b"token=" + b"\\x" * (MIB // 2), "percent": b"token%3d" + b"%" * MIB,
    "blanks": b"a=" + b"+" * MIB + b"[", "level": b"&%" + b"25" * (MIB // 2),
    "brackets": b"&token" + b"[]" * (MIB // 2),
}


@pytest.mark.parametrize("worst", WORST)
@pytest.mark.parametrize("is_form", [True, False])
def test_a_search_keeps_no_more_than_its_text(
        keys_of: Callable[..., Keys], worst: str, is_form: bool) -> None:
    """R63. A value of 4 MiB took the writer of captures from 31 to 520 MiB."""
    keys = keys_of("token")
    list(keys.values(b"&token=1"))
    text = WORST[worst]
    assert peak_of(lambda: list(keys.values(text, is_form=is_form))) < 4 * MIB


@pytest.mark.parametrize("piece", [
    b"&token" + b"[]" * 100, b"&token[", b".token[x][", b"&token%5b", b"%25", b"%",
    b"&token" + b"%5b%5d" * 30, b"&token    "])
def test_a_search_is_linear_in_its_text(
        keys_of: Callable[..., Keys], piece: bytes) -> None:
    """R66: `token[][]…` had a million ways to be split, without RE2."""
    keys = keys_of("token", "api key")
    begun = time.thread_time()
    assert hidden(keys, piece * (MIB // len(piece))) == []
    assert time.thread_time() - begun < 5


def spellings_of(key: str) -> Iterator[str]:
    for end in ("", "[]", "%5B0%5D", "\\u005bx\\u005d", " ", "+"):
        for equals in ("=", "%3D", "%253d", "\\u003d", "&#61;"):
            yield f"{key}{end}{equals}"


def test_both_libraries_have_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("re2")
    texts = [f"a=1&{text}pass%26x\\u0026b=2&c".encode()
             for text in spellings_of("token")]
    first = [hidden(Keys(("token",)), text) for text in texts]
    monkeypatch.setitem(sys.modules, "re2", None)
    assert [hidden(Keys(("token",)), text) for text in texts] == first
