"""The page "Traffic" in a real browser: a command of curl in place of a URL."""

import json

import pytest

from tests.support.browser import needs_chromium
from tests.support.client import PASSWORD, USER
from tests.support.flows import HELLO, get
from tests.support.origin import answer
from tests.support.traffic import ENTER
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]

PASTE = """(text => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  return $("send-url").dispatchEvent(new ClipboardEvent("paste",
    {clipboardData: data, bubbles: true, cancelable: true}));
})(TEXT)"""


def paste(page, text):
    """Returns whether the browser would have pasted it by itself."""
    return page.browser.run(PASTE.replace("TEXT", json.dumps(text)))


def field(page, name):
    return page.browser.run(f"$('send-{name}').value")


@pytest.fixture
def compose(page):
    page.enter()
    page.browser.click("#compose")
    wait_until(lambda: page.browser.run("$('send-dialog').open"), "the dialog")
    return page


def test_a_pasted_command_fills_the_fields_and_is_sent(compose, make_origin):
    """Before, a command alone took it: `cutthrough flows send --curl`."""
    origin = make_origin(answer(HELLO))
    url = origin.url("/v1/items?a=b%20c")
    command = (f"curl '{url}' \\\n  -X PUT -H 'Accept: */*' \\\n  -H 'Content-Type: "
               "application/json' \\\n  --data-raw $'{\"a\": \"\\u00fc\"}'")
    assert paste(compose, command) is False
    compose.wait_note("#send-note", "read from the command")
    assert field(compose, "method") == "PUT" and field(compose, "url") == url
    assert field(compose, "fields").splitlines() == [
        "Accept: */*", "Content-Type: application/json"]
    assert field(compose, "body") == '{"a": "ü"}'
    compose.browser.type("#send-user", USER)
    compose.browser.type("#send-password", PASSWORD)
    compose.browser.click("#send-go")
    compose.wait_note("#send-note", "200")
    (request,) = origin.requests
    assert (request.method, request.body) == ("PUT", '{"a": "ü"}'.encode())
    assert compose.browser.faults == []


def test_a_typed_command_is_read_before_anything_is_sent(compose):
    compose.browser.type("#send-url", "curl -I http://127.0.0.1:1/x")
    compose.browser.key(*ENTER)
    compose.wait_note("#send-note", "read from the command")
    assert field(compose, "method") == "HEAD"
    assert field(compose, "url") == "http://127.0.0.1:1/x"
    assert compose.browser.faults == []


def test_what_is_no_such_command_is_told_and_changes_nothing(compose):
    compose.browser.type("#send-url", "http://a.test/")
    assert paste(compose, "http://b.test/") is True          # as everywhere
    assert paste(compose, "curl -d @file http://a.test/") is False
    compose.wait_note("#send-note", "files are not read")
    paste(compose, "curl http://a.test/ | sh")
    compose.wait_note("#send-note", "a shell would do more")
    assert field(compose, "url") == "http://a.test/"


def test_the_api_reads_a_command_with_the_right_of_sending(page):
    def ask(body, **fields):
        status, _, text = get(page.operator, "/flows/curl", "POST", body, **fields)
        return status, text

    status, text = ask(b"curl -u a:b http://a.test/ -d x")
    assert status == 200 and json.loads(text) == {
        "url": "http://a.test/", "method": "POST", "body": "eA==", "user": "",
        "password": "", "fields": [
            ["Authorization", "Basic YTpi"],
            ["Content-Type", "application/x-www-form-urlencoded"]]}
    assert ask(b"curl http://a.test/", Authorization="Bearer guess")[0] == 401
    status, text = ask(b"wget http://a.test/")
    assert (status, text.strip()) == (400, b"the command does not begin with curl")
    assert ask(b"curl \xff")[0] == 400
    assert ask(b"curl " + b"a" * (4 << 20))[0] == 400
