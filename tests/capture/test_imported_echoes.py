"""What an answer repeats of its request's credentials is in no imported row (R59)."""

import base64
import io

import pytest

from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.formats.imported import make_redactor, make_row
from cutthrough.exchange.formats.reader import read
from tests.capture.dumps import dump, state
from tests.support.archives import archive, entry, request, response

TOKEN = "s3cret-token"
HEADERS = [{"name": "Authorization", "value": f"Bearer {TOKEN}"},
           {"name": "Cookie", "value": "id=0123456789abcdef"}]


def row(data: bytes, *, keep: bool = False) -> dict[str, object]:
    redactor = make_redactor(keep_credentials=keep)
    (found,) = read(io.BytesIO(data), redactor)
    return dict(zip(COLUMNS, make_row(found, redactor), strict=True))


def content(text: str, **more: object) -> dict[str, object]:
    return {"size": len(text), "mimeType": "text/plain", "text": text} | more


@pytest.mark.parametrize("echo", [
    response(content=content(f"You are {TOKEN}, 0123456789abcdef.")),
    response(content=content(
        base64.b64encode(f"\0{TOKEN}".encode()).decode(), encoding="base64",
        mimeType="application/octet-stream")),
    response(headers=[{"name": "X-Token", "value": TOKEN}]),
    response(statusText=f"No {TOKEN}"),
    response(_trailers=[{"name": "X-Token", "value": f"Bearer {TOKEN}"}])])
def test_an_archive(echo):
    data = archive(entry(request=request(headers=HEADERS), response=echo))
    made = repr(row(data))
    assert TOKEN not in made and "0123456789abcdef" not in made
    assert "[redacted]" in made
    if "encoding" not in echo["content"]:
        assert TOKEN in repr(row(data, keep=True))


@pytest.mark.parametrize("encoding", [None, "base64"])
def test_a_batch_in_an_archive(encoding):
    """R59. Credentials of the requests in it were kept."""
    text = (f"--b\r\n\r\nGET / HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\né\r\n"
            "--b--")
    kind, more = "multipart/mixed; boundary=b", {}
    if encoding:
        text, more = base64.b64encode(text.encode()).decode(), {"encoding": encoding}
    data = archive(entry(response=response(
        headers=[{"name": "Content-Type", "value": kind}],
        content=content(text, mimeType=kind, **more))))
    assert TOKEN not in repr(row(data))
    kept = row(data, keep=True)["response_body"]
    assert TOKEN in (kept.decode() if isinstance(kept, bytes) else kept)


def test_messages_of_a_websocket():
    one = entry(request=request(headers=HEADERS), _webSocketMessages=[
        {"type": "receive", "time": 1.5, "opcode": 1, "data": f"hello {TOKEN}"}])
    assert TOKEN not in repr(row(archive(one)))


def test_a_dump():
    flow = state()
    flow["request"]["headers"] = [[b"Authorization", f"Bearer {TOKEN}".encode()]]
    flow["response"]["headers"] = [[b"X-Token", TOKEN.encode()]]
    flow["response"]["content"] = f"You are {TOKEN}.".encode()
    made = row(dump(flow))
    assert TOKEN not in repr(made)
    assert made["response_body"] == "You are [redacted]."
