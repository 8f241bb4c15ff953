"""URLs in lines of the log, without the values of configured keys (R81)."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.redaction.json_redactor import JsonRedactor
from cutthrough.exchange.redaction.redactor import Options, Redactor, hide
from cutthrough.log.hidden import forget_keys, hidden, hide_keys

KEYS = ("token", "api key")


@pytest.fixture(autouse=True)
def keys() -> Iterator[None]:
    hide_keys(KEYS)
    yield
    hide_keys(())


@pytest.mark.parametrize(("text", "made"), [
    ("/?a=1&token=s&b=2", "/?a=1&token=[redacted]&b=2"),
    ("/?TOKEN=s", "/?TOKEN=[redacted]"),
    ("/?to%6Ben=s", "/?to%6Ben=[redacted]"),
    ("/?%2574oken=s", "/?%2574oken=[redacted]"),
    ("/?token[]=s&token%5B0%5D=t", "/?token[]=[redacted]&token%5B0%5D=[redacted]"),
    ("/?api+key=s&api%20key=t", "/?api+key=[redacted]&api%20key=[redacted]"),
    ("/?u=https%3A%2F%2Fh%2F%3Ftoken%3Ds%26b%3D2",
     "/?u=https%3A%2F%2Fh%2F%3Ftoken%3D[redacted]%26b%3D2"),
    ("/#token=s", "/#token=[redacted]"),
    ("/?token=", "/?token="), ("/?xtoken=s&token_=s", "/?xtoken=s&token_=s"),
    ("/?token", "/?token"), ("/?token%", "/?token%"), ("/?token[a", "/?token[a"),
    ("http://u:s@h/", "http://[redacted]@h/"), ("http://h/@", "http://h/@"),
    ("/a@b", "/a@b"),
])
def test_a_value_is_hidden_in_any_spelling_of_its_key(text: str, made: str) -> None:
    """R80, R81."""
    assert hidden(text.encode()) == made.encode()


SPELLED = st.lists(st.sampled_from([
    "token", "%74oken", "Token", "=", "%3d", "%253D", "&", "%26", "?", "[", "]", "a",
    "%", "x", "+", "api", " key", "%2", "://", "@", "/"]), max_size=14).map("".join)


@given(SPELLED)
def test_what_captures_hide_is_hidden(text: str) -> None:
    """The log is no looser than the redaction of captures."""
    secret = "s3cret"
    whole = f"/?{text}{secret}"
    if secret not in Redactor(Options(query=KEYS)).pairs(whole):
        assert secret.encode() not in hidden(whole.encode())


DOCUMENT = '{"user": {"password": "s3cret"}, "a": 1}'


@pytest.mark.parametrize("text", [
    f"/graphql?variables={quote(DOCUMENT)}&a=1", f"/graphql?variables={DOCUMENT}",
    f"/?a=1&x={quote(quote(DOCUMENT))}#a", "/?query=%7Ba%28password%3A%22s3cret%22%29"])
def test_a_value_of_a_document_is_hidden(text: str) -> None:
    """R79: the log has the redaction of captures."""
    hide_keys(KEYS, JsonRedactor(("$..password",), hide).in_line)
    for token in ("", "&token=s3cret"):
        made = hidden(f"{text}{token}".encode())
        assert b"s3cret" not in made and b"[redacted]" in made
        assert made.startswith(text[:4].encode())
    assert hidden(b"/?password=1&x=%22a%22") == b"/?password=1&x=%22a%22"
    hide_keys(KEYS)
    assert b"s3cret" in hidden(text.encode())


def test_a_document_that_cannot_be_searched_goes_whole() -> None:
    def fail(text: bytes) -> bytes:
        raise MemoryError

    hide_keys(KEYS, fail)
    assert hidden(b'/?a="b"') == b"[redacted]" and hidden(b"/?a=b") == b"/?a=b"


def test_keys_of_another_worker_stay_hidden() -> None:
    """R81. The last one's were those of all."""
    hide_keys(("other",), JsonRedactor(("$..password",), hide).in_line, 1)
    hide_keys((), None, 2)
    text = b'/?token=s3cret&other=s3cret&x={"password": "s3cret"}'
    assert b"s3cret" not in hidden(text)
    forget_keys(1)
    assert b"token=[redacted]&" in hidden(text) and hidden(text).count(b"s3cret") == 2
    forget_keys(2)
    forget_keys(2)


def test_a_line_without_keys_stays() -> None:
    hide_keys(())
    assert hidden(b"/?token=s") == b"/?token=s"
