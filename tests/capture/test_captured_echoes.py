"""A secret of a request, wherever its captured answer repeats it (R59)."""

import base64
import gzip
import json
import time
import zlib
from urllib.parse import quote

import pytest

from cutthrough.exchange.captured_echoes import find_echoes, without
from cutthrough.exchange.echoes import Work
from cutthrough.exchange.messages import Piece, read_websocket
from cutthrough.exchange.redaction.redactor import Unreadable
from cutthrough.tape import assembly
from cutthrough.tape.assembly import DOWN, END, FRAMES_DOWN, FRAMES_UP, HEADS, UP
from tests.capture.records import end, heads, rows
from tests.support.redaction import redactor

SECRET = "s3cr3t-c4fe-0123456789"
BASIC = base64.b64encode(f"ann:{SECRET}".encode()).decode()
LINES = [f"Authorization: Bearer {SECRET}", f"Authorization: Basic {BASIC}",
         f"Proxy-Authorization: Basic {BASIC}", f"cookie:  a=b;  sid={SECRET}",
         f"X-Api-Key : {SECRET}", f"Authorization: Bearer\r\n {SECRET}",
         f"X-Own: {SECRET}"]
COOKIES = [f"{number:05}/\"+<&'aaaaa" for number in range(740)]
SHORT = ["00007-"]
OPTIONS = {"fields": ("x-own",), "query": ("token",), "json": ("$..password",)}


def head_of(*lines, target="/a"):
    return "\r\n".join([f"POST {target} HTTP/1.1", "Host: a", *lines, "", ""]).encode()


def captured(lines, *, head="", body=b"", target="/a", asked=b"", flags=0, seen=0,
             http=(11, 0), pieces=(), **options):
    """The row of an exchange with this answer."""
    reply = f"HTTP/1.1 200 OK\r\n{head}\r\n".encode()
    (row,) = rows(
        (HEADS, 0, 1, heads(reply)), (UP, 0, 1, asked), (DOWN, 0, 1, body), *pieces,
        (END, 0, 1, end(head=head_of(*lines, target=target), body_up=len(asked),
                        body_down=seen or len(body), flags=flags, http=http)),
        **options)
    return row


def shown(row):
    return [name for name, value in row.items() if SECRET in str(value) or (
        isinstance(value, bytes) and SECRET.encode() in value)]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("place", [
    {"head": f"X-Got: {SECRET}\r\n"}, {"body": f"got {SECRET}.".encode()},
    {"head": f"X-Got: {SECRET}\r\n", "http": (20, 20)},
    {"head": "Content-Encoding: gzip\r\n", "body": gzip.compress(SECRET.encode())},
    {"head": "Content-Encoding: deflate\r\n", "body": zlib.compress(SECRET.encode())},
    {"head": "Content-Type: text/html; charset=utf-16le\r\n",
     "body": SECRET.encode("utf-16-le")},
    {"body": b"\xff\xfe" + SECRET.encode("utf-16-le")},
    {"body": b"\0" + SECRET.encode()},
    {"head": "Content-Encoding: rot13\r\n", "body": SECRET.encode()},
    {"body": b"4\r\nbody\r\n0\r\nX-Sum: %s\r\n\r\n" % SECRET.encode(),
     "flags": assembly.DOWN_CHUNKED},
    {"body": b"%x\r\n%s\r\n0\r\n\r\n" % (len(SECRET), SECRET.encode()),
     "flags": assembly.DOWN_CHUNKED}])
def test_an_answer_that_repeats_a_credential(line, place):
    row = captured([line], fields=OPTIONS["fields"], **place)
    assert shown(row) == []
    assert SECRET not in str(row["response_body"]).replace("\\x00", "")


def test_what_stands_around_it_stays():
    row = captured([LINES[0]], head="X-Got: a\r\n", body=f"got {SECRET}.".encode())
    assert row["response_body"] == "got [redacted]."
    assert row["response_head"] == "HTTP/1.1 200 OK\r\nX-Got: a\r\n\r\n"
    assert row["request_head"] == head_of("Authorization: [redacted]").decode()
    assert captured([], body=SECRET.encode())["response_body"] == SECRET


def test_a_secret_of_the_target_and_one_of_the_body():
    row = captured([], target=f"/?token={SECRET}", body=f'got "{SECRET}"'.encode(),
                   head=f"Location: /{SECRET}\r\n", **OPTIONS)
    assert shown(row) == [] and row["response_body"] == 'got "[redacted]"'
    row = captured(["Content-Type: application/json"], body=SECRET.encode(),
                   asked=b'{"password": "%s"}' % SECRET.encode(), **OPTIONS)
    assert shown(row) == [] and row["response_body"] == "[redacted]"


def test_messages_repeat_it():
    def frame(data, mask=b""):
        return bytes([129, len(mask) << 5 | len(data)]) + mask + data

    up, down = frame(SECRET.encode(), bytes(4)), frame(f"<{SECRET}>".encode())
    row = captured([LINES[0]], flags=assembly.IS_WEBSOCKET, pieces=[
        (FRAMES_UP, 0, 1, bytes(8) + up), (FRAMES_DOWN, 0, 1, bytes(8) + down)])
    assert shown(row) == [] and '"<[redacted]>"' in row["messages"]


def test_one_that_the_end_cuts_goes_too():
    body = f"got {SECRET[:-3]}".encode()
    for kind in ("", "Content-Type: image/png\r\n"):
        row = captured([LINES[0]], head=kind, body=body, seen=99)
        assert row["response_body"] in ("got ", b"got ")
        assert row["response_body_state"] == "truncated"


def test_credentials_that_are_kept_are_kept_in_both():
    row = captured([LINES[0]], body=SECRET.encode(), credentials=True)
    assert row["response_body"] == SECRET and SECRET in row["request_head"]


def test_more_fields_than_a_request_has_are_redacted_all():
    row = captured([f"Cookie: a={number}-{SECRET}" for number in range(150)])
    assert shown(row) == [] and row["request_head"].count("[redacted]") == 150


def test_what_is_too_much_to_look_through_is_not_kept():
    echoes = find_echoes(b"", ["aaaaaa"])
    with pytest.raises(Unreadable):
        without("a" * 600_000, echoes, whole=True)
    row = captured([], asked=b'{"password": "aaaaaa"}', body=b"a" * 600_000, **OPTIONS)
    assert row["response_body_state"] == "redacted" and row["response_body"] is None


def test_many_secrets_are_looked_for_together():
    """A body of 90 KB took a second with 740 cookies, which was within the bound."""
    echoes = find_echoes(b"", COOKIES)
    content = ("x" * 1000 + COOKIES[7]) * 4000
    begun = time.process_time()
    assert without(content, echoes, whole=True) == ("x" * 1000 + "[redacted]") * 4000
    assert time.process_time() - begun < 1


def test_all_messages_together_have_a_bound():
    """The writer was killed: each of 20 000 messages was searched for 12 000 spellings
    (17 s for 180 kB)."""
    head = find_echoes(b"", COOKIES)
    pieces = [Piece(False, 1, b"\x81\x0500007" * 10_000),
              Piece(True, 1, b"\x81\x85\0\0\0\x0000007" * 10_000)]
    begun = time.process_time()
    text, state = read_websocket(pieces, "", whole=True, redactor=redactor(),
                                 echoes=head)
    assert time.process_time() - begun < 3 and state is None
    assert text.count('"00007"') == 20_000
    # What would take longer is not kept
    frames = (b"\x81\x7e\x40\0" + b"00007-" * 2730 + b"0000") * 600
    text, state = read_websocket([Piece(False, 1, frames)], "", whole=True,
                                 redactor=redactor(), echoes=find_echoes(b"", SHORT))
    shown = json.loads(text)
    assert shown[0]["text"] == "[redacted]" * 2730 + "0000"
    assert [one.get("state") for one in shown[-9:]] == ["redacted"] * 9
    assert len(shown) == 600


def test_messages_whose_end_is_unknown_have_the_same_bound():
    """Each was compared with the start of each spelling."""
    echoes, work = find_echoes(b"", COOKIES), Work()
    begun = time.process_time()
    for _ in range(10_000):
        without(b"0000", echoes, whole=False, work=work)
    assert time.process_time() - begun < 3
    long = find_echoes(b"", ["a" * 1_000_000 + "b" * 1_000_000])
    with pytest.raises(Unreadable):
        without(b"a" * 4_000_000, long, whole=False)
    assert time.process_time() - begun < 6


@pytest.mark.parametrize(("kind", "asked"), [
    ("application/x-www-form-urlencoded", b"a=1&token=p\xe4ssw\xf6rd-s3cr3t"),
    ("application/json", b'{"password": "p\xe4ssw\xf6rd-s3cr3t"}'),
    ("application/json", b'{"password": "\\ud800ssw-s3cr3t"}')])
def test_a_secret_that_is_no_utf8_costs_no_exchange(kind, asked):
    """It was lost, so a client could hide."""
    text = asked.decode("latin-1")
    secret = json.loads(text)["password"] if kind.endswith("json") else (
        text.partition("token=")[2])
    bodies = [b"is %s." % secret.encode("utf-8", "surrogatepass"),
              b"is %s." % json.dumps(secret).encode()]
    if secret.isascii() or max(secret) < "\u0100":
        bodies += [b"is %s." % secret.encode("latin-1"),
                   b"is %s." % quote(secret.encode("latin-1")).encode()]
    for body in bodies:
        row = captured([f"Content-Type: {kind}"], asked=asked, body=body, **OPTIONS)
        assert "s3cr3t" not in str(row["response_body"]), body
        assert "s3cr3t" not in str(row["request_body"])


