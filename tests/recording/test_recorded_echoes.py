"""An origin repeats a request's secret: the kept answer does not have it (R59)."""

import base64
import gzip
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.echoes import LEAST
from cutthrough.exchange.messages import Piece
from cutthrough.recording.model.masking import Masker, Redaction
from cutthrough.recording.model.recorded_echoes import RecordedEchoes
from cutthrough.recording.model.recording import Chunk, Message, Recording, Response
from cutthrough.recording.record.recorder import Recorder
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.storage.settings import Recordings
from tests.recording.answers import request
from tests.recording.exchanges import ended

SECRET = "SEKRIT-t0ken/+é"
# The text of a head with the secret's octets
TOKEN = "SEKRIT-t0ken/+=="
REDACTION = Redaction(fields=("x-key",), query=("token",), json=("$..password",),
                      body=("sk-([a-z0-9]+)",))
MASKER = Masker(REDACTION, b"k" * 32)
BASIC = base64.b64encode(b"some-user:SEKRIT-word").decode()


def answered(body=b"", *, asked=None, fields=(), **more):
    """The kept part of an answer to this request."""
    chunks = body if isinstance(body, tuple) else (Chunk(5, body),)
    return MASKER.recording(Recording(
        request=asked or request(fields=(("Authorization", f"Bearer {TOKEN}"),)),
        response=Response(status=200, fields=fields, chunks=chunks, **more))).response


def with_field(name, value):
    return request(fields=((name, value),))


@pytest.mark.parametrize(("asked", "body", "secret"), [
    (with_field("Authorization", f"Bearer {TOKEN}"), TOKEN, TOKEN),
    (with_field("authorization", f"token  {TOKEN}"), f"Bearer {TOKEN}", TOKEN),
    (with_field("Authorization", TOKEN), TOKEN, TOKEN),
    *((with_field("Authorization", value), "it is SEKRIT-word!", "SEKRIT")
      for value in (
        'Token token="SEKRIT-word", realm="a"', "Token token=SEKRIT-word",
        'Snowflake Token="SEKRIT-word"', "GoogleLogin auth=SEKRIT-word",
        'OAuth oauth_nonce="a", oauth_token="SEKRIT-word"',
        "Custom a=1;api-key=SEKRIT-word",
        "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=SEKRIT-word")),
    (with_field("Authorization", f"Basic {BASIC}"), BASIC, BASIC),
    (with_field("Authorization", f"Basic {BASIC}"), '"pw": "SEKRIT-word"', "SEKRIT"),
    (with_field("Authorization", f"Basic {BASIC}"), "some-user:SEKRIT-word", "-user"),
    (with_field("Authorization", "Basic " + base64.b64encode(
        b"SEKRIT-key:").decode()), "SEKRIT-key", "SEKRIT"),
    (with_field("X-Api-Key", "SEKRIT"), "is SEKRIT.", "SEKRIT"),
    (with_field("X-Key", "SEKRIT"), "is SEKRIT.", "SEKRIT"),
    (with_field("Cookie", "lang=english; sid=SEKRIT7890123456"),
     "SEKRIT7890123456", "SEKRIT"),
    (request("/?token=SEKRIT%2B1"), "SEKRIT+1 SEKRIT%2B1 SEKRIT%2b1", "SEKRIT"),
    (request(body=json.dumps({"password": SECRET})), SECRET, "SEKRIT"),
    (request(body="a=1&token=SEKRIT"), "SEKRIT", "SEKRIT"),
    (request(body="say sk-sekrit1"), "sekrit1", "sekrit1"),
], ids=str)
def test_what_was_removed_from_a_request_is_not_in_its_answer(asked, body, secret):
    made = answered(body.encode(), asked=asked).body
    assert secret.encode() not in made and b"[redacted:" in made


@pytest.mark.parametrize("spelt", [
    TOKEN, TOKEN.rstrip("="), TOKEN.replace("/", r"\/"), quote(TOKEN, safe=""),
    quote(TOKEN), quote(TOKEN, safe="").lower().replace("sekrit", "SEKRIT")])
def test_a_secret_is_found_as_json_and_urls_spell_it(spelt):
    assert b"SEKRIT" not in answered(f"at {spelt}.".encode()).body


def test_what_an_answer_repeats_of_other_parameters_stays():
    """A page's path is in a Digest, and its realm in each challenge."""
    asked = with_field("Authorization", 'Digest username="somebody", realm="of-all-7", '
                       'uri="/page/index.html", nonce="0123456789", response="a"')
    text = b"somebody of-all-7 /page/index.html 0123456789"
    assert answered(text, asked=asked).body == text


def test_a_stand_in_is_that_of_the_request():
    made = answered(b'{"auth": "Bearer ' + TOKEN.encode() + b'"}').body
    assert json.loads(made) == {"auth": MASKER.value(f"Bearer {TOKEN}")}


def test_words_of_cookies_and_short_values_stay():
    asked = request(fields=(
        ("Cookie", "theme=default; lang=english; zone=Europe/Amsterdam"),
        ("X-Key", "short"), ("Authorization", f"Basic {BASIC}")))
    body = b"default english Europe/Amsterdam short some-user"
    one = Response(status=200, chunks=(Chunk(5, body),))
    assert answered(body, asked=asked) == one


def test_heads_trailers_and_messages_have_none_either():
    found = answered(
        b"", fields=(("X-Got", f"a {TOKEN}"), ("ETag", TOKEN), ("A", "b")),
        trailers=(("X-Sum", TOKEN),), reason=TOKEN, messages=(
            Message(1, True, "text", b"I am " + TOKEN.encode()),
            Message(2, False, "binary", b"\xff" + TOKEN.encode())))
    assert "SEKRIT" not in repr(found)
    assert found.fields[2] == ("A", "b") and found.messages[1].data[:1] == b"\xff"


@pytest.mark.parametrize("fields", [
    (("Content-Encoding", "gzip"), ("Content-Length", "9"), ("A", "b")),
    (("Content-Encoding", "gzip"), ("Content-Digest", "sha-256=:x:"), ("A", "b"),
     ("Repr-Digest", "sha-256=:x:"), ("x-amz-checksum-crc32", "x"),
     ("X-Goog-Hash", "x"), ("x-ms-blob-content-md5", "x"), ("Content-MD5", "x"),
     ("Digest", "md5=x"))])
def test_a_body_with_a_coding_is_read_and_kept_without_it(fields):
    plain = b"got " + TOKEN.encode()
    found = answered(gzip.compress(plain), fields=fields)
    assert found.body.startswith(b"got [redacted:") and found.fields == (("A", "b"),)
    harmless = gzip.compress(b"got nothing")
    found = answered(harmless, fields=fields)
    assert (found.body, found.fields) == (harmless, fields)
    found = answered(plain, trailers=(("Repr-Digest", "x"), ("A", "b")))
    assert found.trailers == (("A", "b"),)


def test_a_body_that_cannot_be_decoded_stays():
    one = Recording(request=with_field("Cookie", TOKEN), response=Response(
        status=200, fields=(("Content-Encoding", "unknown"),),
        chunks=(Chunk(1, b"\x1f\x8b"),)))
    assert Masker(Redaction(), b"k" * 32).recording(one).response == one.response


def test_a_stand_in_is_no_place_for_a_secret():
    made = answered(f"redacted {MASKER.value('x')}".encode(),
                    asked=with_field("X-Key", "redacted")).body
    assert made == f"{MASKER.value('redacted')} {MASKER.value('x')}".encode()


def test_what_is_too_much_to_look_through_goes_as_a_whole():
    echoes = RecordedEchoes(["s/" * 200_000], MASKER.value)      # in all spellings
    body = b"asb"
    assert echoes.has(body) and echoes.cut(body).startswith(b"[redacted:")
    assert [one.at_us for one in echoes.chunks((Chunk(1, body), Chunk(2, b"x")))] == [2]


@given(st.lists(st.sampled_from([b"a", b"SEKRIT", b"SEK", b"RIT1234", b"\n", b"T0K"]),
                max_size=8).map(b"".join),
       st.lists(st.integers(0, 40), max_size=6))
def test_a_secret_that_is_split_stands_in_the_piece_of_its_end(body, cuts):
    echoes = RecordedEchoes(["SEKRIT", "RIT1234"], lambda text: f"<{len(text)}>")
    ends = sorted({min(cut, len(body)) for cut in (*cuts, len(body))} - {0})
    pieces = tuple(Chunk(end, body[begin:end]) for begin, end in zip(
        [0, *ends], ends, strict=False))
    made = echoes.chunks(pieces)
    whole = b"".join(one.data for one in made)
    # If two overlap, the first one counts
    wanted, at = b"", 0
    places = []
    while at < len(body):
        found = next((one for one in (b"RIT1234", b"SEKRIT")
                      if body.startswith(one, at)), None)
        if found is None:
            wanted += body[at:at + 1]
            places.append((at + 1, body[at:at + 1]))
            at += 1
        else:
            at += len(found)
            wanted += b"<%d>" % len(found)
            places.append((at, b"<%d>" % len(found)))
    assert whole == wanted
    for end, data in places:
        upto = b"".join(one.data for one in made if one.at_us <= end)
        if end in ends:
            assert upto.endswith(data)
    if wanted == body:
        assert made is pieces


def test_a_batch_forgets_what_it_has_looked_for():
    with MASKER.batch():
        answered(TOKEN.encode())
        assert MASKER._known_echoes
    assert "SEKRIT" not in repr(vars(MASKER))


# Recorded, from the ring to the disk

HEAD = (f"GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"X-Key: {BASIC}\r\nVia: 1.1 p\r\n\r\n")
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIP = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
PACKED = gzip.compress(f"got {TOKEN} in gzip".encode())
T = TOKEN.encode()
FRAME = b"\x81" + bytes([len(T)]) + T


def frame_up(data):
    return b"\x81" + bytes([128 | len(data)]) + bytes(4) + data


EXCHANGES = [
    ended(down=(b'{"auth": "Bearer ' + T + b'"}',), up_head=HEAD),
    ended(down=(b"one " + T[:5], T[5:] + b" two"), up_head=HEAD),
    ended(CHUNKED, (b"7\r\nat " + T[:4] + b"\r", b"\n%x\r\n" % len(T[4:]) + T[4:] +
                    b"\r\n0\r\n\r\n"), down_chunked=True, up_head=HEAD),
    ended(CHUNKED, (b"0\r\nX-Sum: " + T + b"\r\n\r\n",), down_chunked=True,
          up_head=HEAD),
    ended(GZIP, (PACKED[:20], PACKED[20:]), up_head=HEAD),
    ended(f"HTTP/1.1 200 OK\r\nX-Got: {TOKEN}\r\n\r\n", up_head=HEAD),
    ended(f"HTTP/1.1 200 {TOKEN}\r\n\r\n", up_head=HEAD),
    ended("HTTP/1.1 101 X\r\n\r\n", (), up_head=HEAD, pieces=[
        Piece(True, 500, frame_up(T)), Piece(False, 600, FRAME)],
        up_bytes=len(frame_up(T)), down_bytes=len(FRAME)),
    ended(down=(BASIC.encode(),), up_head=HEAD),
    ended(down=(b"nothing of that kind",), up_head=HEAD),
]


@pytest.mark.parametrize("reads_bodies", [False, True])
def test_no_file_has_a_secret_that_an_origin_repeats(tmp_path, reads_bodies):
    """"auth": "Bearer SEKRIT" of an answer was in the session's file and its -wal."""
    recorder = Recorder(Recordings(
        directory=str(tmp_path), session="a", count=0, age=0, fields=("x-key",),
        query=(), json=("$.none",) if reads_bodies else (), body=(), hooks="", code="",
        url=""))
    assert recorder.write(EXCHANGES) == 0

    def written():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    before = written()
    recorder.close()
    for files in (before, written()):
        for name, data in files.items():
            for secret in (b"SEKRIT", BASIC.encode(), PACKED[10:30]):
                assert secret not in data, (name, secret)
    assert "a.session-wal" in before
    session = Sessions(tmp_path).open("a")
    kept = list(session.recordings())
    assert len(kept) == len(EXCHANGES)
    assert [one.data for one in kept[1].response.chunks] == [
        b"one ", session.masker.value(TOKEN).encode() + b" two"]
    assert kept[-1].response.body == b"nothing of that kind"
    session.close()



def test_a_client_of_a_websocket_may_repeat_its_secret(tmp_path):
    """Its message is compared with a recording, from which the secret was removed."""
    asked = request(fields=(("Authorization", f"Bearer {TOKEN}"),))
    one = Message(1, True, "text", b"I am " + T)
    found = answered(b"", asked=asked, messages=(one,))
    assert MASKER.messages(asked)(one) == found.messages[0]
    assert MASKER.messages(request())(one) == one


@pytest.mark.parametrize(("kind", "body"), [
    ("application/x-www-form-urlencoded", b"token=p\xe4ssw\xf6rd"),
    ("application/json", b'{"password": "p\xe4ssw\xf6rd"}'),
    ("application/json", b'{"password": "\\ud800ssw-p\xe4ssw\xf6rd"}')])
def test_a_secret_that_is_no_utf8_costs_no_recording(kind, body):
    """It was lost if the answer had a part of the secret, such as a word."""
    asked = request(body=body, fields=(("Content-Type", kind),))
    secret = body.partition(b"=")[2] or body.split(b'"')[3]
    made = answered(b"sswrd " + secret + b" ssw", asked=asked).body
    if b"\\" in body:                       # octets in an escape are of no JSON
        secret = secret.replace(b"\\ud800", b"\xed\xa0\x80")
        made = answered(b"sswrd " + secret + b" ssw", asked=asked).body
    assert made.startswith(b"sswrd [redacted:") and made.endswith(b"] ssw")


def test_messages_have_one_bound_and_replay_has_the_same():
    """A client's are compared, so both have to end at the same message."""
    cookies = "; ".join(f"a={number:05}/\"+<&'aaaaa" for number in range(300))
    asked = request(fields=(("Cookie", cookies),))
    secret = b"00007/\"+<&'aaaaa" * 4000
    messages = tuple(Message(at, at % 3 > 0, "text", b"%d " % at + (
        secret if at % 3 else b"hello")) for at in range(120))
    begun = time.process_time()
    made = answered(b"", asked=asked, messages=messages).messages
    assert time.process_time() - begun < 5
    assert made[1].data.startswith(b"1 [redacted:") and made[0] == messages[0]
    assert made[-1].data.startswith(b"[redacted:") and made[-3] == messages[-3]
    masked = MASKER.messages(asked)
    assert [masked(one) for one in messages if one.is_up] == [
        one for one in made if one.is_up]


def test_fields_have_one_bound():
    echoes = RecordedEchoes(
        [f"{number:05}/\"+<&'aaaaa" for number in range(740)], MASKER.value)
    begun = time.process_time()
    echoes.fields((("a", "00007"),) * 20_000)
    assert time.process_time() - begun < 3


def test_secrets_are_of_six_octets_or_more():
    assert LEAST == 6
    assert not RecordedEchoes(["12345", ""], MASKER.value)
    assert RecordedEchoes(["123456"], MASKER.value)
    assert RecordedEchoes(["ééé"], MASKER.value)
