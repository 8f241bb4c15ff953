"""Commands of curl that are pasted: as browsers copy them, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.capture.copies import as_curl
from cutthrough.capture.pasted import read_curl
from cutthrough.capture.query import QueryError, Request

CHROMIUM = r"""curl 'https://api.example.com/v1/items?a=1' \
  -H 'accept: */*' \
  -H 'content-type: application/json' \
  -b 'id=7; theme=dark' \
  -H 'user-agent: Mozilla/5.0' \
  --data-raw $'{"text":"it\'s \u00e9\\n"}' \
  --compressed"""
FIREFOX = r"""curl 'https://api.example.com/upload' -X PUT -H 'Accept: text/html'
 --compressed -H 'Referer: https://api.example.com/' --data-binary 'a
b'"""


def test_a_command_of_chromium_is_the_request_that_it_was_copied_from():
    assert read_curl(CHROMIUM) == Request(
        url="https://api.example.com/v1/items?a=1", method="POST", fields=(
            ("accept", "*/*"), ("content-type", "application/json"),
            ("Cookie", "id=7; theme=dark"), ("user-agent", "Mozilla/5.0")),
        body='{"text":"it\'s é\\n"}'.encode())


def test_a_command_of_firefox_is_the_request_that_it_was_copied_from():
    assert read_curl(FIREFOX) == Request(
        url="https://api.example.com/upload", method="PUT", fields=(
            ("Accept", "text/html"), ("Referer", "https://api.example.com/"),
            ("Content-Type", "application/x-www-form-urlencoded")), body=b"a\nb")


@pytest.mark.parametrize(("command", "method", "url", "fields", "body"), [
    ("curl a.example/x", "GET", "http://a.example/x", {}, b""),
    ("curl -I http://a.example", "HEAD", "http://a.example", {}, b""),
    ("curl -sSL -XDELETE http://a.example", "DELETE", "http://a.example", {}, b""),
    ("curl -d a=1 -d b=2 http://a.example", "POST", "http://a.example",
     {"Content-Type": "application/x-www-form-urlencoded"}, b"a=1&b=2"),
    ("curl -G -d a=1 --data-urlencode 'q=x y' 'http://a.example?z=0'", "GET",
     "http://a.example?z=0&a=1&q=x+y", {}, b""),
    ("""curl --json '{"a":' --json ' 1}' http://a.example""", "POST",
     "http://a.example", {"Content-Type": "application/json",
                          "Accept": "application/json"}, b'{"a": 1}'),
    ("curl -u ann:pass http://a.example", "GET", "http://a.example",
     {"Authorization": "Basic YW5uOnBhc3M="}, b""),
    ("curl -H 'X-Empty;' -H 'Accept:' -H 'Host: a.example' http://a.example/#b", "GET",
     "http://a.example/", {"X-Empty": ""}, b""),
    ("curl -H 'Host: b.example' http://a.example", "GET", "http://a.example",
     {"Host": "b.example"}, b""),
    ("curl -x proxy:1 -o out -m 5 http://a.example", "GET", "http://a.example", {},
     b""),
    (r'curl "http://a.example/\"q\"" -A a\ b', "GET", 'http://a.example/"q"',
     {"User-Agent": "a b"}, b""),
    (r"curl http://a.example --data-raw @name", "POST", "http://a.example",
     {"Content-Type": "application/x-www-form-urlencoded"}, b"@name"),
])
def test_options_are_read_as_curl_reads_them(command, method, url, fields, body):
    request = read_curl(command)
    assert (request.method, request.url, dict(request.fields), request.body) == (
        method, url, fields, body)


@pytest.mark.parametrize(("command", "reason"), [
    ("wget http://a.example", "does not begin with curl"), ("", "does not begin"),
    ("curl", "0 URLs"), ("curl http://a.example http://b.example", "2 URLs"),
    ("curl http://a.example; rm -r x", "a shell would do more"),
    ("curl $(id)", "a shell would do more"), ("curl `id`", "a shell would do more"),
    ("curl http://a.example > out", "a shell would do more"),
    ("curl http://a.example | sh", "a shell would do more"),
    ('curl "http://a.example/$HOME"', "would expand"),
    ('curl "`id`"', "would expand"),
    ("curl 'http://a.example", "a shell would do more"),
    ("curl -d @file http://a.example", "files are not read"),
    ("curl --data-urlencode a@file http://a.example", "files are not read"),
    ("curl -b jar http://a.example", "files are not read"),
    ("curl -F a=b http://a.example", "-F: this option of curl is not known"),
    ("curl http://a.example -H", "-H has no value"),
    ("curl http://a.example -H name", "is no field"),
])
def test_what_is_not_read_is_refused_with_its_reason(command, reason):
    with pytest.raises(QueryError, match=reason):
        read_curl(command)


@pytest.mark.parametrize(("written", "text"), [
    (r"\u00e9\ud83d\ude00", "é😀"), (r"\U1f600\x21", "😀!"),
    (r"\ud83d\ude00\u41", "😀A"), (r"\xc3\xa9\x41\303\251\101", "éAéA"),
    (r"\xe9t\xe9", "été"),
])
def test_codes_of_a_character_are_that_character(written, text):
    """Half a character of a browser's emoji was an error of the program, and the octets
    that Burp writes were characters."""
    request = read_curl(f"curl http://a.example -H $'X: {written}' -d $'{written}'")
    assert request.fields[0] == ("X", text)
    assert request.body == text.encode()


@pytest.mark.parametrize("written", [r"\ud83d", r"\ude00\ud83d", r"\U110000", r"\Ud83d",
                                     r"\uffff\udcff"])
@pytest.mark.parametrize("option", ["-d", "-u", "-H", "--data-urlencode", "--url"])
def test_codes_of_no_character_are_refused(option, written):
    with pytest.raises(QueryError, match="no character"):
        read_curl(f"curl http://a.example {option} $'a:{written}'")


VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


@given(VALUES, VALUES, st.sampled_from(["GET", "POST", "PATCH"]))
def test_what_is_copied_here_can_be_pasted_here(value, body, method):
    request = Request(
        url="https://api.example.com/a?b=c", method=method,
        fields=(("X-Value", value), ("Content-Type", "text/plain")),
        body=b"" if method == "GET" else body.encode())
    assert read_curl(as_curl(request)) == request


@given(st.text(), st.from_regex(r"(\\[uUx0-7]?[0-9a-fA-F]{0,4})+", fullmatch=True))
def test_any_text_is_read_or_refused(text, codes):
    for word in (text, f"a -d $'{codes}'"):
        try:
            read_curl(f"curl {word}")
        except QueryError:
            pass
