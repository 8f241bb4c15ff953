"""Messages by the API, and on the page."""

import json

import pytest

from tests.capture.flows import row
from tests.support.browser import needs_chromium
from tests.support.flows import database as database
from tests.support.flows import fill, get, reads
from tests.support.flows import filled as filled
from tests.support.flows import start as start
from tests.support.traffic import HOSTILE, messages
from tests.support.traffic import page as page

pytestmark = pytest.mark.any_loop


def test_messages_are_read_on_their_own(filled, database):
    _, operator = filled
    found = [{"at_us": 1, "side": "request", "kind": "text", "bytes": 2, "text": "hi"}]
    stream = ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    fill(database, [
        row(20, kind="tunnel", status=101, messages=json.dumps(found)),
        row(21, response_head=stream, response_body="data: a\n\n")])
    assert json.loads(get(operator, "/flows/11")[2])["messages"] == 1
    assert json.loads(get(operator, "/flows/11/messages")[2]) == found
    assert json.loads(get(operator, "/flows/12/messages")[2]) == [
        {"side": "response", "kind": "event", "text": "a"}]
    assert get(operator, "/flows/1/messages")[2] == b"[]"
    assert get(operator, "/flows/99/messages")[0] == 404
    assert reads(database)[-1] == ("127.0.0.1", "messages", "99", 0)


@needs_chromium
@pytest.mark.dials_out
def test_the_messages_of_a_websocket_are_shown(page):
    head = ("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\n\r\n")
    many = [{"at_us": 1_700_000_000_000_000 + n, "side": "request", "kind": "text",
             "bytes": 7, "text": '{"a":1}'} for n in range(600)]
    many[0] = many[0] | {"side": "response", "kind": "binary", "bytes": 2, "base64":
                         "/0E=", "state": "truncated"}
    many[1] = many[1] | {"kind": "close", "code": 1000, "text": HOSTILE}
    page.fill(row(1), row(
        2, kind="tunnel", status=101, response_head=head, response_body=None,
        intercepted=1, client_tls_version="1.3", client_cipher="TLS_AES_128_GCM_SHA256",
        peer_tls_version="1.2", messages=json.dumps(many), messages_state="malformed"))
    page.enter()
    page.apply("~websocket")
    page.wait_rows(1)
    page.open(0)
    found = messages(page)
    assert "600 messages, malformed" in page.text("#panel")
    assert found[0][:4] == ["received", "22:13:20.000", "binary", "2 B"]
    assert "ff 41" in found[0][4] and found[0][4].endswith("truncated")
    assert found[1][2] == "close" and found[1][4] == "code 1000" + HOSTILE
    assert found[2][4] == '{\n  "a": 1\n}'
    assert len(found) == 500
    page.browser.click("#panel > div > button")
    assert len(messages_now(page)) == 600
    decision = page.tab("decision")
    assert "intercepted\tyes" in decision
    assert "version with the client\t1.3" in decision
    assert page.browser.run("window.pwned") is None
    assert page.browser.faults == []


def messages_now(page):
    return page.browser.run("[...document.querySelectorAll('#messages tbody tr')]"
                            ".map(r => r.textContent)")
