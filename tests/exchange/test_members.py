"""Values of JSON in text that is no document, in each way in which it is written."""

import html
import json
import time
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.redaction.json_redactor import MOST_IN_LINE
from cutthrough.exchange.redaction.members import MOST_TOKENS, Members
from cutthrough.exchange.redaction.redactor import REDACTED, Options, Redactor

SECRET = 's3cret " \\ é'
VALUES = {"id": 1, "password": SECRET, "last": [2]}
DOCUMENT = json.dumps(VALUES)


def escapes(text: str, form: str) -> str:
    """As Django's `escapejs` (\\u%04X) and Closure's templates (\\x%02x) spell it."""
    return "".join(form % ord(each) if each in "\\'\"><&=-;" else each for each in text)


def references(text: str, form: str) -> str:
    """As a template in HTML spells it: JSTL's `c:out`, ESAPI."""
    return "".join(each if each.isalnum() or each in " é" else form % ord(each)
                   for each in text)


FORM = "application/x-www-form-urlencoded"
EVENTS = "text/event-stream"

TEXTS = [
    (f"x{DOCUMENT}", "text/plain"), (f"payload={DOCUMENT}", "text/plain"),
    (f"2026-11-30 INFO {DOCUMENT}\n", "text/plain"),
    (f"ok\n{DOCUMENT}\n", ""), (f"42[\"login\", {DOCUMENT}]", ""),
    (f"a[{json.dumps(DOCUMENT)}]", ""), (json.dumps(DOCUMENT), "text/plain"),
    (json.dumps({"log": f"INFO {DOCUMENT}"}), "application/json"),
    (json.dumps({"log": json.dumps({"x": f"INFO {DOCUMENT}"})}), "application/json"),
    (json.dumps({"page": html.escape(DOCUMENT)}), "application/json"),
    (f"<script>window.state = {DOCUMENT};</script>", "text/html"),
    (f"<p data-page=\"{html.escape(DOCUMENT)}\">", "text/html"),
    (f"<p data-page='{DOCUMENT.replace(chr(34), '&#34;')}'>", "text/html"),
    (f"1:{DOCUMENT}\n2:[]\n", "text/x-component"),
    (f"data: x{DOCUMENT}\n\n", EVENTS), (f"0:{DOCUMENT}\n\n", EVENTS),
    (quote(DOCUMENT), FORM), (f"{quote(DOCUMENT)}=", FORM),
    (f"a=1&{quote(DOCUMENT)}&b=2", FORM), (f"a={quote(quote(DOCUMENT))}", FORM),
    (f"a={quote(json.dumps({'x': f'INFO {DOCUMENT}'}))}", FORM),
    (f"--b\r\n\r\nx{DOCUMENT}\r\n--b--", "multipart/mixed; boundary=b"),
    (f"<p data-page=\"{references(DOCUMENT, '&#%03d;')}\">", "text/html"),
    (f"<p data-page=\"{references(DOCUMENT, '&#x%x;')}\">", "text/html"),
    (f"<p data-page=\"{html.escape(repr(VALUES))}\">", "text/html"),
    *((f"x = JSON.parse('{escapes(text, form)}');", "text/html")
      for text in (DOCUMENT, repr(VALUES), json.dumps({"a": DOCUMENT, "last": 1}))
      for form in ("\\u%04X", "\\u%04x", "\\x%02x")),
    (json.dumps({"log": f"x = '{escapes(DOCUMENT, chr(92) + 'u%04X')}'"}),
     "application/json"),
    (f"INFO {VALUES}\n", "text/plain"), (json.dumps({"log": f"INFO {VALUES}"}), ""),
    (json.dumps({"log": "INFO {'password': 's3cret'}", "last": 1}), "application/json"),
    (json.dumps({"log": "{'password': 's3cret'}", "last": 1}), "application/json"),
    (json.dumps({"log": "x = {password: 's3cret', last: 1}"}), "application/json"),
    (f"INFO {json.dumps(repr(VALUES))}\n", "text/plain"),
    (f"x={quote(f'INFO {VALUES}')}", FORM),
    ("{'password': \"it's s3cret\", 'last': 1}"[1:], "text/plain"),
    ("INFO {'password': {\"it's\": ['s3cret']}, 'last': 1}", "text/plain"),
    ("x = {password: 's3cret', last: 1}", "text/javascript"),
    ('x = {a: 1,password : "a\\"s3cret", last: 1}', "text/javascript"),
    ("a: 1\npassword: 's3cret'\nlast: 1", "application/yaml"),
    ('mutation { login(password: "s3cret") { last } }', "application/graphql"),
    ('mutation { login(password: """a "s3cret" """) { last } }', "application/graphql"),
    (json.dumps({"query": 'mutation { login(password: "s3cret") { last } }'}),
     "application/json"),
    (json.dumps({"query": 'mutation { login(password:"""s3cret""") { last } }'}),
     "application/json"),
    (f"/graphql?query={quote(f'login(password: {json.dumps(SECRET)})')}&last", ""),
    (f"/?last={quote(quote(f'login(a:1,password:{json.dumps(SECRET)})'))}", ""),
    (f"/graphql?query={quote(json.dumps({'last': 1, 'password': 's3cret'}))}", ""),
]


def redactor(*paths: str) -> Redactor:
    return Redactor(Options(json=paths or ("$.user.password",)))


@pytest.mark.parametrize(("text", "kind"), TEXTS)
def test_a_value_goes_wherever_its_document_begins(text, kind):
    made = redactor().content(text.encode(), kind).decode()
    assert "s3cret" not in made and REDACTED in unquote(made)
    assert "last" in made and len(made) < len(text) + len(REDACTED)


@pytest.mark.parametrize(("value", "left"), [
    ("12", ', "a": 1}'), ("null", "}"), ('{"a": "}", "b": [1]}', ', "a": 1}'),
    (r'["\"]", 1]', "]"), (r'"\\"', ', "a": "b"'), ('"cut', ""), ("[1, [2]", "")])
def test_a_value_ends_where_it_ends(value, left):
    made = redactor().content(f'x{{"password" : {value}{left}'.encode(), "text/plain")
    assert made.decode() == f'x{{"password" : "{REDACTED}"{left}'


def test_what_a_path_does_not_name_stays():
    """In a document the whole path counts, in its strings too."""
    for text in ('{"password": 1}', json.dumps({"a": '{"password": 1}'}),
                 'x{"passwords": 1, "x_password": 2}', "password: 1", '"password"',
                 "x_password: 'a', passwords: 'b'", "a.password: 'a'", "'password'",
                 "password: a.b('c')", '{"x": "a password: 1"}', "'password', '1'"):
        assert redactor().content(text.encode(), "text/plain") == text.encode()


def test_a_path_without_a_key_is_in_each_text():
    assert redactor("$.*").content(b'x{"a": 1, "b": [2]}', "") == (
        b'x{"a": "[redacted]", "b": "[redacted]"}')


def test_equal_values_have_equal_stand_ins():
    """So a recording matches whatever way the client writes it."""
    heard: list[str] = []
    members = Members({"password"}, lambda secret: heard.append(secret) or REDACTED)
    for text in (DOCUMENT, json.dumps(DOCUMENT), html.escape(DOCUMENT), quote(DOCUMENT),
                 quote(quote(json.dumps(DOCUMENT))), references(DOCUMENT, "&#%d;"),
                 escapes(DOCUMENT, "\\u%04X"),
                 escapes(json.dumps(DOCUMENT), "\\x%02x")):
        members.redact(text.encode(), 10)
    assert set(heard) == {SECRET}


@given(st.text(max_size=20), st.integers(0, 4), st.integers(0, 2))
def test_any_value_in_any_number_of_strings(value, strings, quotes):
    text = json.dumps({"password": f"<s3cret{value}s3cret>", "z": 1})
    for _ in range(strings):
        text = json.dumps(text)
    for _ in range(quotes):
        text = quote(text)
    made = Members({"password"}, lambda secret: "-").redact(f"x {text}".encode(), 9)
    assert b"s3cret" not in made and b"z" in made


@pytest.mark.parametrize("piece", [
    b"\\", b'"', b"%5c", b"%22", b"%25", b"&quot;", b'"password":', b'"password"', b" ",
    b'"password":{', b'"password":"', b"%22password%22%3a%7b", b"%22password%22%3a%22",
    b"{", b"%5c" * 126 + b"%22", b"'", b"'password':", b"\\u0022password\\u0022:",
    b"\\u005c", b"\\x22", b"&#000034;", b"password:'", b"password: ",
    b"password:\"\"\"", b"'password':[\""])
@pytest.mark.parametrize("before", [b"", b'"password":', b"%22password%22:%22"])
def test_the_search_is_linear(before, piece):
    text = before + piece * ((1 << 20) // len(piece)) + b"password"
    begin = time.process_time()
    try:
        Members({"password"}, lambda secret: "-").redact(text, 4096)
    except ValueError:
        pass
    assert time.process_time() - begin < 4


@given(st.text(max_size=20), st.integers(0, 2), st.sampled_from((
    repr, json.dumps)), st.sampled_from((
        "&#%d;", "&#x%02x;", "&#x%04X;", "\\x%02x", "\\u%04X")))
def test_any_value_in_a_template(value, strings, write, form):
    text = write({"password": f"<s3cret{value}s3cret>", "z": 1})
    for _ in range(strings):
        text = json.dumps(text)
    text = (references if form[0] == "&" else escapes)(text, form)
    made = Members({"password"}, lambda secret: "-").redact(f"x {text}".encode(), 9)
    assert b"s3cret" not in made and b"z" in made


def test_a_value_of_too_many_marks_is_not_searched():
    with pytest.raises(ValueError, match="tokens"):
        Members({"a"}, str).redact(
            b'x"a":' + b"[" * (9 * MOST_TOKENS + 1), 9)


@pytest.mark.parametrize("head", [
    f"GET /graphql?variables={quote(DOCUMENT)}&a=1 HTTP/1.1\r\nHost: a\r\n\r\n",
    f"GET /?x={quote(quote(DOCUMENT))} HTTP/1.1\r\nHost: a\r\n\r\n",
    'GET /?x={"password":"s3cret"}&last HTTP/1.1\r\nHost: a\r\n\r\n',
    'GET /?x={"password":"s3cret HTTP/1.1\r\nHost: a\r\nlast: 1\r\n\r\n',
    f"GET /last HTTP/1.1\r\nX-Event: {DOCUMENT}\r\nHost: a\r\n\r\n",
    f"GET /last HTTP/1.1\r\nX-Event: {DOCUMENT[:35]}\r\nHost: a\r\n\r\n",
    f"GET /last HTTP/1.1\r\nReferer: https://a/?x={quote(DOCUMENT)}\r\nHost: a\r\n\r\n",
    f"HTTP/1.1 200 OK\r\nLocation: /last?x={quote(DOCUMENT)}\r\nHost: a\r\n\r\n"])
def test_heads_have_documents_too(head):
    made = redactor().head(head)
    assert "s3cret" not in made and REDACTED in made and "last" in made
    lines = made.split("\r\n")
    assert len(lines) == len(head.split("\r\n")) and "Host: a" in lines
    assert "HTTP/1.1" in lines[0]


def test_a_query_has_documents_too():
    made = redactor().query(f"a=1&x={quote(DOCUMENT)}")
    assert "s3cret" not in made and "last" in made


@pytest.mark.parametrize("value", [
    '"password":"s3cret",' * (MOST_IN_LINE + 1), f'x"password":{"[1," * 5000}s3cret'])
def test_a_field_of_too_many_values_goes_whole(value):
    """A worker that replays waits for it."""
    made = redactor().head(f"GET / HTTP/1.1\r\nX: {value}\r\nHost: a\r\n\r\n")
    assert made == f"GET / HTTP/1.1\r\n{REDACTED}\r\nHost: a\r\n\r\n"
    assert redactor().field("X", value) == REDACTED
