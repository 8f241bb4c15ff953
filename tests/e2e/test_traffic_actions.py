"""The page "Traffic" in a real browser: every action, and its result."""

import contextlib
import json
import os
import subprocess
import sys
import types

import pytest

from tests.capture.flows import row
from tests.support.admin import TOKEN
from tests.support.archives import archive, entry
from tests.support.browser import needs_chromium
from tests.support.captures import wait_rows
from tests.support.client import PASSWORD, USER, build_request
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]


def test_a_flow_is_tagged_and_commented(page):
    page.fill(row(1))
    page.enter()
    page.wait_rows(1)
    number = page.open()
    page.tab("notes")
    page.browser.type("#tag", "odd")
    page.browser.type("#comment", "why twice?")
    page.browser.click("#save")
    page.wait_note("#save-note", "saved")
    wait_until(lambda: page.rows()[0][9] == "odd", "the tag in the list")
    page.browser.click("#close")
    page.open()
    page.tab("notes")
    assert page.browser.run("$('comment').value") == "why twice?"
    (listed,) = json.loads(page.operator.ask(
        "GET", "/flows", Authorization=f"Bearer {TOKEN}")[1])["flows"]
    assert (listed["id"], listed["tag"], listed["comment"]) == (
        number, "odd", "why twice?")


def test_hosts_and_slowest_flows_are_summed_up(page):
    page.fill(row(1, total_us=5_000), row(2, host="b.test", url="http://b.test/2",
                                          total_us=9_000_000, status=503), row(3))
    page.enter()
    page.wait_rows(3)
    page.browser.click("#summary")
    wait_until(lambda: "b.test" in page.text("#summary-hosts"), "the hosts")
    cells = page.browser.run(
        "[...document.querySelectorAll('#summary-hosts tbody tr')]"
        ".map(r => [...r.children].map(c => c.textContent))")
    assert cells == [["a.test", "2", "0", "320"], ["b.test", "1", "1", "160"]]
    cells = page.browser.run(
        "[...document.querySelectorAll('#summary-slowest tbody tr')]"
        ".map(r => [...r.children].map(c => c.textContent))")
    assert cells[0] == ["GET http://b.test/2", "9.00 s", "503"]
    page.browser.run("document.querySelector('#summary-slowest button').click()")
    wait_until(lambda: page.text("#detail-url") == "#2 GET http://b.test/2", "the flow")
    page.browser.click("#summary")
    wait_until(lambda: "b.test" in page.text("#summary-hosts"), "the hosts")
    page.browser.run("[...document.querySelectorAll('#summary-hosts button')]"
                     ".find(one => one.textContent === 'b.test').click()")
    page.wait_rows(1)
    assert page.browser.run("$('filter').value") == "~d b.test"
    assert page.urls() == ["http://b.test/2"]


def test_two_flows_are_compared(page):
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    page.fill(row(1, response_head=head, response_body='{"a":1,"b":2}'),
              row(2, response_head=head, response_body='{"a":1,"b":3}'))
    page.enter()
    page.wait_rows(2)
    assert compared(page, 1, 0) == (
        ["response body, by path", "response body"],
        ["2", "3", '-  "b": 2', '+  "b": 3'])
    page.browser.run("$('diff-dialog').close()")
    page.fill(row(3, response_body="a\n-- x\n"), row(4, response_body="a\n++ y\n"))
    page.wait_rows(4)
    assert compared(page, 1, 0) == (["response body"], ["--- x", "+++ y"])
    page.browser.run("$('diff-dialog').close()")
    page.fill(row(5, response_body="a\n++ y\n"))
    page.wait_rows(5)
    assert compared(page, 1, 0) == ([], []) and page.text("#diff") == "equal"
    assert page.browser.faults == []


def compared(page, one, other):
    """The parts in which the flows at these places differ, and the lines."""
    number = page.open(one)
    page.browser.click("#compare")
    assert "choose another" in page.text("#note")
    page.open(other)
    assert page.text("#compare") == f"diff with #{number}"
    page.browser.click("#compare")
    wait_until(lambda: page.browser.run("$('diff-dialog').open"), "the diff")
    return tuple(page.browser.run(
        f"[...document.querySelectorAll('{names}')].map(one => one.textContent)")
        for names in ("#diff h2", "#diff ins, #diff del"))


def test_a_request_is_copied_as_a_command_that_repeats_it(
        page, make_origin, dial, tmp_path):
    """The commands are run: the origin gets the same request again."""
    heard = []

    def script(stream):
        asked = stream.read_request()
        heard.append((asked.raw, asked.body))
        stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    origin = make_origin(script)
    text = "it's \"a\" $body\n\\n ü".encode()
    with dial(page.proxy) as client:
        client.ask("POST", origin.url("/p?q=[1]&r={2}"), "Content-Type: text/plain",
                   "X-Quote: it's \"x\"", "Cookie: a=b", f"Content-Length: {len(text)}",
                   body=text)
    with dial(page.proxy) as client:
        client.ask("PUT", origin.url("/bytes"), "Content-Length: 4",
                   body=b"\x00\xff'\n")
    page.enter()
    page.wait_rows(2)
    before = list(heard)
    for i, wanted in ((1, before[0]), (0, before[1])):
        page.open(i)
        for name in ("curl", "httpx", "fetch"):
            page.browser.run(f"copyAs('{name}')")
            wait_until(lambda: page.browser.run("$('text-dialog').open"), "the text")
            command = page.browser.run("$('text').value")
            page.browser.run("$('text-dialog').close()")
            if i == 1:
                assert command.splitlines()[0].endswith("not kept: Cookie")
            if name == "curl":
                subprocess.run(["bash", "-c", command], check=True, timeout=20,
                               env=os.environ | {"no_proxy": "*"}, capture_output=True)
                again_head, again_body = heard[-1]
                assert again_body == wanted[1]
                assert again_head.split(b"\r\n")[0] == wanted[0].split(b"\r\n")[0]
                if i == 1:
                    assert b'X-Quote: it\'s "x"' in again_head
                    assert b"Content-Type: text/plain\r\n" in again_head
            elif name == "httpx":
                asked = run_httpx(command)
                assert asked["content"] == wanted[1]
                assert asked["url"].endswith(("/p?q=[1]&r={2}", "/bytes"))
            else:
                _, options = page.browser.run(
                    "(async () => { const fetch = async (url, options) => [url, {"
                    "...options, body: typeof options.body === 'string' ? options.body"
                    " : [...options.body]}];\n"
                    + command.replace("await fetch", "return await fetch") + "})()")
                body = options["body"]
                assert (body.encode() if isinstance(body, str) else bytes(body)
                        ) == wanted[1]
                assert options["method"] in ("POST", "PUT")
    assert len(heard) == 4 and page.browser.faults == []


def test_a_held_exchange_is_edited_on_the_page(page, make_origin, dial):
    origin, browser, client = make_origin(), page.browser, dial(page.proxy)
    page.enter()
    browser.click("#holds")
    wait_until(lambda: page.text("#hold-state") == "not armed", "the state")
    browser.click("#hold-arm")
    wait_until(lambda: page.text("#hold-state").startswith("armed for"), "armed")
    client.send(build_request("POST", origin.url("/old"), "X-One: 1",
                              "Content-Length: 3", body=b"old"))
    choose_held(page, "request: POST")
    browser.type("#hold-path", "/new")
    browser.type("#hold-fields", "X-Two: <b>2")
    decide(page, "#hold-collect")
    choose_held(page, "request: POST")
    assert browser.run("$('hold-body').value") == "old"
    assert browser.run("$('hold-path').disabled")
    browser.type("#hold-body", "newer")
    decide(page, "#hold-edit")
    choose_held(page, "response: POST")
    browser.type("#hold-status", "wrong")
    browser.click("#hold-edit")
    page.wait_note("#hold-note", "not a number")
    browser.type("#hold-status", "203")
    decide(page, "#hold-edit")
    assert client.read_response().status == 203
    (request,) = origin.requests
    assert (request.target, request.body) == ("/new", b"newer")
    assert (request.get("X-Two"), request.get("X-One")) == ("<b>2", None)
    client = dial(page.proxy)
    client.send(build_request("GET", origin.url("/next")))
    choose_held(page, "request: GET")
    decide(page, "#hold-abort")
    assert client.read_response().status == 403
    browser.click("#hold-disarm")
    wait_until(lambda: page.text("#hold-state") == "not armed", "the state")
    assert dial(page.proxy).get(origin.url("/last")).status == 200
    browser.type("#hold-methods", "put, POST")
    browser.type("#hold-paths", "/v1/**")
    browser.click("#hold-arm")
    wait_until(lambda: ": put POST /v1/**; 0 held" in page.text("#hold-state"), "armed")
    assert dial(page.proxy).get(origin.url("/v1/a")).status == 200
    client = dial(page.proxy)
    client.send(build_request("POST", origin.url("/v1/b"), "Content-Length: 0"))
    choose_held(page, "request: POST")
    decide(page, "#hold-pass")
    choose_held(page, "response: POST")
    decide(page, "#hold-pass")
    assert client.read_response().status == 200
    assert browser.faults == []


def decide(page, button):
    page.browser.click(button)
    page.wait_note("#hold-note", "done")


def choose_held(page, text):
    wait_until(lambda: text in page.text("#hold-list"), lambda: page.text("#hold-list"))
    page.browser.click("#hold-list button")
    wait_until(lambda: page.browser.run("!$('hold-form').hidden"), "the form")


def run_httpx(command):
    """The arguments of the call that a piece of Python makes."""
    found = {}

    def request(method, url, **more):
        found.update(method=method, url=url, **more)

    stand_in = types.ModuleType("httpx")
    stand_in.request = request
    before = sys.modules.get("httpx")
    sys.modules["httpx"] = stand_in
    try:
        exec(command, {})
    finally:
        sys.modules.pop("httpx")
        if before is not None:
            sys.modules["httpx"] = before
    return found


def test_a_request_is_replayed_with_edits_through_the_proxy(page, make_origin, dial):
    heard = []

    def script(stream):
        asked = stream.read_request()
        heard.append((asked.raw, asked.body))
        stream.send(b"HTTP/1.1 201 Made\r\nContent-Type: application/json\r\n"
                    b"Content-Length: 10\r\n\r\n{\"ok\":[1]}")

    origin = make_origin(script)
    with dial(page.proxy) as client:
        client.ask("POST", origin.url("/first"), "X-Old: 1", "Content-Length: 3",
                   body=b"abc")
    page.enter()
    page.wait_rows(1)
    page.open()
    page.browser.click("#replay")
    wait_until(lambda: page.browser.run("$('send-fields').value") == "X-Old: 1",
               "the request's fields")
    page.browser.type("#send-url", origin.url("/second"))
    page.browser.type("#send-fields", "X-New: 2\nX-Old: 3")
    page.browser.type("#send-body", "changed")
    page.browser.click("#send-go")
    page.wait_note("#send-note", "407")
    assert len(heard) == 1, "the admin token is no user of the proxy"
    page.browser.type("#send-user", USER)
    page.browser.type("#send-password", PASSWORD)
    page.browser.click("#send-go")
    page.wait_note("#send-note", "201, ")
    assert '"ok": [' in page.text("#send-result")
    head, body = heard[1]
    assert head.startswith(b"POST /second HTTP/1.1\r\n") and body == b"changed"
    assert b"X-New: 2\r\n" in head and b"X-Old: 3\r\n" in head
    page.browser.run("$('send-dialog').close()")
    wait_until(lambda: any("/second" in url for url in page.urls()), "the replay")
    rows = wait_rows(page.database, 2)
    assert rows[-1]["user"] == USER and rows[-1]["rule"] == "seen"
    assert page.browser.faults == []


def test_a_request_is_composed(page, make_origin):
    page.enter()
    page.browser.click("#compose")
    page.browser.type("#send-url", make_origin().url("/new"))
    page.browser.type("#send-user", USER)
    page.browser.type("#send-password", PASSWORD)
    page.browser.type("#send-fields", "no field")
    page.browser.click("#send-go")
    page.wait_note("#send-note", "not a field: no field")
    page.browser.type("#send-fields", "")
    page.browser.click("#send-go")
    page.wait_note("#send-note", "200, ")
    page.wait_rows(1)


def test_flows_are_exported_and_deleted(page, directory):
    page.fill(*(row(n, host=f"h{n % 2}.test") for n in range(1, 7)))
    page.enter()
    page.wait_rows(6)
    folder = directory("saved")
    folder.mkdir(exist_ok=True)
    page.browser.send("Page.setDownloadBehavior", behavior="allow",
                      downloadPath=str(folder))
    page.apply("~d h1")
    page.wait_rows(3)
    page.browser.click("#har")
    file = folder / "flows.har"
    wait_until(file.exists, "the archive")
    assert len(wait_until(lambda: entries(file), "its content")) == 3
    page.browser.click("#remove")
    assert "~d h1" in page.text("#remove-what")
    page.browser.click("#remove-dialog button[autofocus]")
    page.browser.click("#remove")
    page.browser.click("#remove-yes")
    page.wait_rows(0)
    page.apply()
    page.wait_rows(3)
    page.open(0)
    page.browser.click("#remove-one")
    page.browser.click("#remove-yes")
    page.wait_note("#note", "1 deleted")
    wait_until(lambda: page.rows()[0][9] == "deleted", "a word in the list")
    assert page.browser.faults == []


def test_a_file_is_imported(page, tmp_path):
    """By the page's own control. The same file can be chosen again."""
    made, odd = tmp_path / "page.har", tmp_path / "odd"
    made.write_bytes(archive(entry()))
    odd.write_text("none")
    page.enter()
    for text in ("1 imported, 0 were there", "0 imported, 1 were there"):
        page.browser.choose("#import", made)
        page.wait_note("#filter-error", f"page.har: {text}, 0 refused")
    page.wait_rows(1)
    assert page.urls() == ["https://a.test/x?y=1"]
    page.browser.choose("#import", odd)
    page.wait_note("#filter-error", "odd: the file is neither an HTTP Archive")
    page.browser.run("importFile({name: 'long', size: 1e9})")
    page.wait_note("#filter-error", "long: longer than 64 MiB")
    assert "Traceback" not in page.proxy.stderr()


def entries(file):
    with contextlib.suppress(ValueError):
        return json.loads(file.read_text())["log"]["entries"]
    return None
