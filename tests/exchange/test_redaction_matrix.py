"""No secret is left, in any format, spelling, coding and charset (R79).

Each case goes through the redactor of captures and through that of recordings, and once
more as an answer that repeats a credential of its request; then the secret is searched
for in every octet that would be kept.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from urllib.parse import quote

import pytest

from cutthrough.exchange.bodies import Transferred, make_body
from cutthrough.exchange.captured_echoes import find_echoes
from cutthrough.exchange.echoes import Echoes
from cutthrough.exchange.redaction.redactor import REDACTED, Options, Redactor
from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recording import Chunk, Recording, Request, Response

SECRET = "s3cr3t-c4fe"
OPTIONS = {"query": ("token", "api key", "clé"), "json": ("$..password", "$.a.*.pin")}
CAPTURES = Redactor(Options(**OPTIONS))
CREDENTIALS_ALONE = Redactor(Options())
RECORDINGS = Masker(Redaction(**OPTIONS), b"k" * 32)

JSON = {
    "member": '{"password": "%s", "b": 1}',
    "repeated key": '{"password": 1, "b": 2, "password": "%s"}',
    "escaped key": '{"p\\u0061ssword": "%s"}',
    "array": '{"password": ["x", {"y": "%s"}]}',
    "object": '{"password": {"x": [1, {"y": "%s"}]}}',
    "star": '{"a": [{"pin": "%s"}, {"pin": 2}]}',
    "deep": '{"b": [[[{"c": {"password": "%s"}}]]]}',
    "document in a string": '{"b": "{\\"password\\": \\"%s\\"}"}',
    "escaped document in a string": '{"b": "\\u007b\\"password\\": \\"%s\\"}"}',
    "lines": '{"b": 1}\n{"password": "%s"}\n',
    "sequence": '\x1e{"b": 1}\n\x1e{"password": "%s"}\n',
    "mark": '\ufeff{"password": "%s"}',
    "white space": '\n \t{ "password"\n:\t"%s" }',
    "quotation mark": '{"password": "a\\"%s"}',
    "surrogate": '{"x": "\\ud800", "password": "\\udfff%s"}',
    "not a number": '{"x": NaN, "password": "%s"}',
    "URL": '{"url": "https://h/?a=1&token=%s&b=2"}',
    "URL with escapes": '{"url": "https:\\/\\/h\\/?a=1\\u0026token=%s\\u0026b=2"}',
    "URL with an escaped key": '{"url": "https://h/?\\u0074oken=%s"}',
    "not closed": '{"password": "%s"',
    "comment": '{/* a */ "password": "%s"}',
    "trailing comma": '{"password": "%s",}',
    "prefix": ')]}\'\n{"password": "%s"}',
    "another prefix": 'for(;;);{"password": "%s"}',
    "call": 'callback({"password": "%s"});',
}
TEXT = {
    "query": "GET /?a=1&token=%s&b=2",
    "fragment": "https://h/#state=1&token=%s",
    "page": '<a href="/?a=1&amp;token=%s">',
    "page with an apostrophe": "<a href='/?token=a'%s&b=2'>",
    "encoded key": "/?to%%6ben=%s",
    "twice encoded key": "/?to%%256ben=%s",
    "upper case": "/?TOKEN=%s",
    "brackets": "/?token[]=%s&token[0]=%s",
    "encoded brackets": "/?token%%5B%%5D=%s",
    "URL in a value": "/?to=https%%3A%%2F%%2Fh%%2F%%3Fa%%3D1%%26token%%3D%s%%26b%%3D2",
    "URL in a value, twice": "/?to=https%%253A%%252F%%252Fh%%253Ftoken%%253D%s",
    "key with a space": "/?api+key=%s&api%%20key=%s",
    "key beyond ASCII": "/?cl%%C3%%A9=%s",
    "semicolon": "/?a=1;token=%s;b=2",
    "semicolon in a value": "/?token=a;%s",
    "plain": "token=%s",
    "assignment": 'x = "token=%s";',
    "parenthesis": "(token=%s)",
    "comma": "a=1,token=%s",
    "number sign": "/?token=a#%s",
}
FORM = {
    "first": "token=%s&b=1", "last": "b=1&token=%s", "white space": "b=1& token =%s",
    "blanks in a value": "token=a b %s&b=1", "line in a value": "token=a\r\n%s&b=1",
    "quotation mark": 'token="%s"', "brackets": "token[a][]=%s",
    "document": "payload=" + quote('{"password": "') + "%s" + quote('"}'),
    "URL": "to=" + quote("https://h/?token=", safe="") + "%s",
}
PART = ('--b\r\nContent-Disposition: form-data; name="{name}"\r\n{fields}\r\n'
        "{text}\r\n--b--\r\n")
PARTS = {
    "name": PART.format(name="token", fields="", text="%s"),
    "name in brackets": PART.format(name="token[]", fields="", text="%s"),
    "file": PART.format(name='token"; filename="a', fields="", text="a\r\n%s"),
    "document": PART.format(name="a", text='{"password": "%s"}',
                            fields="Content-Type: application/json\r\n"),
    "malformed document": PART.format(name="a", text='{"password": "%s',
                                      fields="Content-Type: application/json\r\n"),
    "form": PART.format(name="a", text="token=a b %s",
                        fields="Content-Type: application/x-www-form-urlencoded\r\n"),
    "URL": PART.format(name="a", fields="", text="/?token=%s"),
    "lone line feeds": PART.format(name="token", fields="", text="%s"
                                   ).replace("\r\n", "\n"),
    "not closed": PART.format(name="token", fields="", text="%s")[:-8],
    "another boundary": PART.format(name="token", fields="", text="%s"
                                    ).replace("--b", "--c"),
    "base64": PART.format(name="a", fields="Content-Transfer-Encoding: base64\r\n",
                          text=base64.b64encode(f"token={SECRET}".encode()).decode()),
}
EVENTS = {
    "line": 'data: {"password": "%s"}\n\n',
    "several lines": 'id: 1\ndata: {"password":\ndata: "%s"}\n\n',
    "carriage returns": 'data: {"password":\rdata: "%s"}\r\r',
    "both": 'data: {"password":\r\ndata: "%s"}\r\n\r\n',
    "other fields between": 'data: {"password":\nid: 4\ndata: "%s"}\n\n',
    "without a blank": 'data:{"password":"%s"}\n\n',
    "malformed": 'data: {"password": "%s"\n\n',
    "URL": "data: /?token=%s\n\n",
    "comment": ": token=%s\n\n",
    "identifier": "id: token=%s\n\n",
    "cut": 'data: {"a": 1}\n\ndata: {"password": "%s',
}
FORMATS = {
    "application/json": JSON, "application/problem+json": JSON, "": {**JSON, **TEXT},
    "application/csp-report": JSON, "application/x-ndjson": JSON,
    "text/plain": {**JSON, **TEXT}, "application/octet-stream": {**JSON, **TEXT},
    "text/javascript": {**JSON, **TEXT},
    "text/html": TEXT, "application/x-www-form-urlencoded": {
        **FORM, **TEXT, **{f"JSON, {name}": JSON[name] for name in (
            "member", "array", "not closed", "mark", "lines", "prefix")}},
    "multipart/form-data; boundary=b": PARTS, 'multipart/mixed; boundary="b"': PARTS,
    "text/event-stream": EVENTS, "image/png": TEXT,
}
CHARSETS = ("utf-8", "latin-1", "utf-16", "utf-16-le", "gb18030", "shift_jis",
            "utf-8-sig", "utf-32",
            "one octet beyond UTF-8", "unknown", "punycode", "a NUL")
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, "gzip": gzip.compress, "deflate": zlib.compress,
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data)),
    "unknown": bytes}


def encode(text: str, kind: str, charset: str) -> tuple[bytes, str]:
    """The octets, and the media type with their charset if that is given."""
    with_charset = f"{kind or 'text/plain'}; charset="
    if charset == "one octet beyond UTF-8":
        return text.encode() + b" \xff", kind
    if charset == "a NUL":
        return text.encode() + b"\0", kind
    if charset in ("unknown", "punycode"):
        return text.encode(), with_charset + charset
    if charset in ("utf-16", "utf-32", "utf-8-sig", "utf-8"):
        return text.encode(charset), kind
    return text.encode(charset, "replace"), with_charset + charset


CASES = [(kind, name, charset, coding)
         for kind, cases in FORMATS.items() for name in cases
         for charset, coding in product(CHARSETS, CODINGS)
         if (coding in ("", "gzip") or charset in ("utf-8", "a NUL")) and (
             not name.endswith("mark") or charset.startswith("utf"))]


def fill(text: str) -> str:
    return text.replace("%s", SECRET).replace("%%", "%")


def shows(data: bytes) -> bool:
    """Is the secret in these octets, in a charset?"""
    return any(SECRET.encode(charset) in data for charset in ("utf-8", "utf-16-le"))


def test_the_cases_are_many() -> None:
    assert len(CASES) >= 2000


def captured(kind: str, redactor: Redactor, echoes: Echoes | None = None
             ) -> Iterator[tuple[tuple[str, str, str], bool]]:
    """Each case of this kind, and whether the kept text shows the secret."""
    for _, name, charset, coding in (case for case in CASES if case[0] == kind):
        body, full = encode(fill(FORMATS[kind][name]), kind, charset)
        head = (f"HTTP/1.1 200 OK\r\nContent-Type: {full}\r\n"
                f"Content-Encoding: {coding}\r\n\r\n")
        data = CODINGS[coding](body)
        for n in (len(data), len(data) - 3):
            made = make_body(
                Transferred(data[:n], len(data)), head, redactor, echoes=echoes)
            content = made.content or b""
            octets = content if isinstance(content, bytes) else content.encode()
            yield (name, charset, coding), shows(octets)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind or "no type")
def test_no_secret_is_in_a_captured_body(kind: str) -> None:
    """R79."""
    assert [case for case, leaks in captured(kind, CAPTURES) if leaks] == []


@pytest.mark.parametrize("line", [
    f"Authorization: Bearer {SECRET}", f"x-api-key:{SECRET}",
    "Proxy-Authorization: Basic " + base64.b64encode(f"u:{SECRET}".encode()).decode()])
def test_no_credential_is_in_a_captured_body_that_repeats_it(line: str) -> None:
    """R59, R79: without keys, paths and expressions."""
    echoes = find_echoes(line.encode(), ())
    kinds = FORMATS if line.startswith("Authorization") else ("application/json", "")
    for kind in kinds:
        leaks = [case for case, leaks in captured(kind, CREDENTIALS_ALONE, echoes)
                 if leaks]
        assert leaks == [], kind
    seen = [leaks for _, leaks in captured("text/plain", CREDENTIALS_ALONE)]
    assert sum(seen) > len(seen) / 2, "the cases have the secret"


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind or "no type")
def test_no_secret_is_in_a_recorded_body(kind: str) -> None:
    """R79."""
    for _, name, charset, coding in (case for case in CASES if case[0] == kind):
        body, full = encode(fill(FORMATS[kind][name]), kind, charset)
        fields = (("Content-Type", full),
                  *((("Content-Encoding", coding),) if coding else ()))
        made = RECORDINGS.response(Response(
            status=200, fields=fields, chunks=(Chunk(1, CODINGS[coding](body)),)))
        assert not shows(made.body), (kind, name, charset, coding)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind or "no type")
def test_no_credential_is_in_a_recorded_body_that_repeats_it(kind: str) -> None:
    """R59, R79."""
    masker = Masker(Redaction(), b"k" * 32)
    asked = Request(method="GET", scheme="http", host="h", port=80, path="/", query="",
                    fields=(("Authorization", f"Bearer {SECRET}"),))
    for _, name, charset, coding in (case for case in CASES if case[0] == kind):
        body, full = encode(fill(FORMATS[kind][name]), kind, charset)
        fields = (("Content-Type", full), ("Content-Encoding", coding))
        made = masker.recording(Recording(request=asked, response=Response(
            status=200, fields=fields, chunks=(Chunk(1, CODINGS[coding](body)),))))
        assert not shows(made.response.body), (kind, name, charset, coding)


@pytest.mark.parametrize("place", [
    "GET /?a=1&token=%s&b=2 HTTP/1.1", "GET http://u:%s@h/ HTTP/1.1",
    "GET / HTTP/1.1\r\nReferer: https://h/?a=1&token=%s#x",
    "GET / HTTP/1.1\r\nReferer: https://u:%s@h/",
    "HTTP/1.1 302 Found\r\nLocation: https://h/#a=1&token=%s",
    "HTTP/1.1 302 Found\r\nLocation: //h/?to=https%%3A%%2F%%2Fu%%3A%s%%40h",
    "HTTP/1.1 200 OK\r\nLink: <https://h/?token=%s>; rel=next",
    "HTTP/1.1 200 OK\r\nRefresh: 0; url=https://h/?token=%s",
    "GET / HTTP/1.1\r\nAuthorization: Bearer %s", "GET / HTTP/1.1\r\nCookie: a=%s",
    "GET / HTTP/1.1\r\nX-API-Key : %s", "GET / HTTP/1.1\r\nauthorization: a\r\n %s",
    "HTTP/1.1 200 OK\r\nSet-Cookie: a=%s",
])
def test_no_secret_is_in_a_head(place: str) -> None:
    """R79, R80."""
    head = f"{fill(place)}\r\nHost: h\r\n\r\n"
    assert SECRET not in CAPTURES.head(head)


def test_what_is_no_secret_stays_as_it_came() -> None:
    text = '{"x": "\\u0061=1", "xtoken": "?token_=1&x-token=2",\n "passwords" : [1.50]}'
    assert CAPTURES.content(text.encode(), "application/json") == text.encode()
    latin = "a=\xe9&token=1".encode("latin-1")
    assert CAPTURES.content(latin, "text/plain; charset=latin1") == (
        f"a=\xe9&token={REDACTED}".encode("latin-1"))


def test_values_around_a_secret_stay() -> None:
    made = CAPTURES.content(
        b'{ "a":1.50, "password" : null ,"b":[ ] }', "application/json")
    assert made == b'{ "a":1.50, "password" : "[redacted]" ,"b":[ ] }'
    assert json.loads(made)["b"] == []


def test_pictures_and_the_like_stay() -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe"
    assert CAPTURES.content(png, "image/png") == png
