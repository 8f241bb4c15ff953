"""A body that this program sends in chunks of its own is captured without them
(R101)."""

import pytest

from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.client import build_request
from tests.support.filters import FILTERS
from tests.support.origin import answer
from tests.support.recordings import folder as folder

GENERATOR = """
    class Generator:
        async def on_request_body(self, flow, pieces):
            async for piece in pieces:
                yield piece.upper()

        async def on_response_body(self, flow, pieces):
            async for piece in pieces:
                yield piece.upper()
"""
SECRET = b'{"user": "me", "token": "s3cret-of-the-origin"}'
TEXT = b"abcdefgh" * 5
CHUNKED = "Transfer-Encoding: chunked"


def in_chunks(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def response(body: bytes, *fields: str) -> bytes:
    head = "".join(f"{field}\r\n" for field in (CHUNKED, *fields))
    return f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + in_chunks(body)


@pytest.fixture
def start(start_policy, database):
    def run(rule: str, filters: str = "", config: str = ""):
        return start_policy(
            f'{filters}\n[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
            f'capture = "full"\n{rule}\n', f'capture_file = "{database}"\n{config}',
            modules={"sieve": FILTERS + GENERATOR})
    return run


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/html", ""])
def test_a_secret_behind_a_filter_that_adds_a_field(
        start, make_origin, dial, database, kind):
    """The answer to a request with an added field is read for echoes (R82), and goes on
    in chunks of our own: with these it was no JSON, and kept as it was."""
    proxy = start('filters = ["Change"]',
                  '[filters.Change]\ncode = "sieve:Change"', 'redact_json = ["token"]')
    fields = [f"Content-Type: {kind}"] if kind else []
    origin = make_origin(answer(response(SECRET, *fields)))
    assert dial(proxy).get(origin.url("/old")).body == SECRET
    row = wait_rows(database, 1)[0]
    assert row["response_body"] == '{"user": "me", "token": "[redacted]"}'
    assert row["response_body_bytes"] == len(SECRET)


def test_bodies_of_a_filter_that_generates_them(start, make_origin, dial, database):
    proxy = start('filters = ["Generator"]',
                  '[filters.Generator]\ncode = "sieve:Generator"\nshown = true')
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\r\n"
        + TEXT))
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), "Content-Length: 40") + TEXT)
    assert client.read_response("POST").body == TEXT.upper()
    row = wait_rows(database, 1)[0]
    assert row["request_body"] == row["response_body"] == TEXT.upper().decode()
    assert row["request_body_bytes"] == row["response_body_bytes"] == len(TEXT)


def test_a_request_that_is_read_before_its_recording_is_looked_for(
        start, make_origin, dial, database, folder):
    proxy = start('recording = "cache"', config=f'recording_directory = "{folder}"\n')
    origin = make_origin(answer(response(TEXT, "Content-Type: text/plain")))
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), CHUNKED) + in_chunks(TEXT))
    assert client.read_response("POST").body == TEXT
    row = wait_rows(database, 1)[0]
    assert row["request_body"] == row["response_body"] == TEXT.decode()
    assert row["request_body_bytes"] == row["response_body_bytes"] == len(TEXT)
