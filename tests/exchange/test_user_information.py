"""User information of URLs goes, whatever the spelling (R80)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.redaction.redactor import REDACTED, Options, Redactor
from cutthrough.exchange.user_information import without_user
from cutthrough.log.hidden import hidden

LONG = "a1" * 1000


@pytest.mark.parametrize(("text", "redacted"), [
    # A password may have an encoded solidus, which ended the search
    ("https://bob:p%2Fss@host/", f"https://{REDACTED}@host/"),
    ("https://bob:p%3fs%23s@host/", f"https://{REDACTED}@host/"),
    ("https://bob:it's@host/", f"https://{REDACTED}@host/"),
    (f"https://bob:{LONG}@host/", f"https://{REDACTED}@host/"),
    # Without a scheme, as of Location
    ("//bob:pass@host/", f"//{REDACTED}@host/"),
    ("Location: //bob:pass@host/", f"Location: //{REDACTED}@host/"),
    ("Link: <//bob:pass@host/>; rel=next", f"Link: <//{REDACTED}@host/>; rel=next"),
    ("Refresh: 1;url=//bob:pass@host/", f"Refresh: 1;url=//{REDACTED}@host/"),
    # As browsers read it, and as JSON has it
    ("http:\\\\bob:pass@host/", f"http:\\\\{REDACTED}@host/"),
    ("'http:\\/\\/bob:pass@host\\/'", f"'http:\\/\\/{REDACTED}@host\\/'"),
    # In a value of another URL, and of one in that
    ("/?u=https%3A%2F%2Fbob:pa%2540ss%40host%2Fx%40y",
     f"/?u=https%3A%2F%2F{REDACTED}%40host%2Fx%40y"),
    ("/?u=https%253A%252F%252Fbob%253Apass%2540host",
     f"/?u=https%253A%252F%252F{REDACTED}%2540host"),
    ("/?u=%2F%2Fbob:pass%40host%2F", f"/?u=%2F%2F{REDACTED}%40host%2F"),
    ("/?u=http%3A%2F%2Fhost&mail=bob%40host", "/?u=http%3A%2F%2Fhost&mail=bob%40host"),
    # None
    ("https://host/a//b@c", "https://host/a//b@c"),
    ("GET //a@b HTTP/1.1", "GET //a@b HTTP/1.1"),
    ("https://@host/ %40 //", "https://@host/ %40 //"),
    ("https://host/%2F%2Fb@c", "https://host/%2F%2Fb@c"),
])
def test_user_information_ends_as_it_begins(text, redacted):
    assert without_user(text) == redacted
    assert Redactor(Options()).head(f"GET / HTTP/1.1\r\nX: {text}\r\n\r\n").count(
        REDACTED) == redacted.count(REDACTED)


@pytest.mark.parametrize("url", [
    "http://h/?u=https%3A%2F%2Fbob:s3cret%40host%2F",
    "http://h/?u=https%253A%252F%252Fbob:s3cret%2540host%252F",
    "https://bob:a%2Fs3cret@host/"])
def test_the_log_reads_it_in_the_same_way(url):
    assert b"s3cret" not in hidden(url.encode())
    assert hidden(url.encode()) == without_user(url).encode()


@given(st.text(alphabet="/\\%25234fF:@a\" &=\ud800é", max_size=40))
def test_what_is_without_it_stays_so(text):
    once = without_user(text)
    assert without_user(once) == once


@pytest.mark.parametrize("piece", [
    "://a", "%2f%2f", "%252f%252f", "\\/\\/", "//a@", " ", "%", "25",
    ":%2f%2fa%40", "="])
def test_the_search_is_linear(piece):
    text = piece * ((1 << 20) // len(piece)) + "@"
    begin = time.process_time()
    without_user(text)
    assert time.process_time() - begin < 2
