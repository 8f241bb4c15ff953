"""The page "Traffic" in a real browser: its list, and its view of a flow."""

import gzip
import json
import os
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from cutthrough.storage.stores import open_store
from tests.capture.flows import row
from tests.support.admin import TOKEN
from tests.support.browser import needs_chromium
from tests.support.captures import writer
from tests.support.client import USER
from tests.support.origin import answer
from tests.support.traffic import (
    DOWN,
    ENTER,
    ESCAPE,
    HOSTILE,
    PHONE,
    WIDE,
    faults,
    messages,
)
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]

AXE = find_spec("axe_core_python")


# The list


def test_nothing_is_shown_without_the_token(page):
    page.fill(row(1))
    assert page.text("#state") == "enter the admin token" and page.rows() == []
    page.browser.type("#token", "guess")
    page.browser.key(*ENTER)
    page.wait_note("#state", "this is no admin token")
    assert page.rows() == []
    page.browser.faults.clear()             # the console names the 401
    page.enter()
    page.wait_rows(1)
    assert page.browser.faults == []
    assert {url.split("/")[2] for url in page.browser.requested if url[:5] != "data:"
            } == {f"127.0.0.1:{page.operator.where}"}, "no outside requests"


def test_an_address_with_the_secrets_behind_it_opens_the_page(page):
    """As `cutthrough inspect` prints it."""
    page.fill(row(1))
    where = f"http://127.0.0.1:{page.operator.where}/traffic"
    secrets = f"token={TOKEN}&user=ann&password=a%2Bb"
    page.browser.send("Page.navigate", url=f"{where}#{secrets}")
    page.wait_rows(1)
    assert page.browser.run("location.href") == where
    assert page.browser.run("[$('send-user').value, $('send-password').value]") == [
        "ann", "a+b"]
    assert page.browser.faults == []


def test_flows_appear_as_they_are_captured(page, make_origin, dial):
    page.enter()
    origin = make_origin()
    with dial(page.proxy) as client:
        for path in ("/one", "/two"):
            assert client.get(origin.url(path)).status == 200
    page.wait_rows(2)
    assert [url.rpartition("/")[2] for url in page.urls()] == ["two", "one"]
    assert page.rows()[0][1:3] == ["GET", "200"] and page.rows()[0][8] == USER
    assert page.text("#count") == "2 flows"
    assert page.browser.faults == []


def test_words_are_searched(page):
    page.fill(row(1, response_body="a needle"), row(2))
    page.enter()
    page.apply(search="needle")
    page.wait_rows(1)
    assert "search" in page.text("#state")


def test_it_is_used_by_the_keyboard(page):
    page.fill(*(row(n, url=f"http://a.test/{n}") for n in range(1, 101)))
    page.enter()
    wait_until(lambda: page.text("#count") == "100 flows", "all")
    page.browser.run("$('list').focus()")
    page.browser.key(*DOWN)
    page.browser.key(*DOWN)
    page.wait_note("#detail-url", "http://a.test/99")
    page.browser.key("End", 35)
    page.wait_note("#detail-url", "http://a.test/1")
    active = "document.getElementById($('list').getAttribute('aria-activedescendant'))"
    wait_until(lambda: page.browser.run(f"{active}?.ariaRowIndex") == "101", "its row")
    page.browser.key(*ENTER)
    assert page.browser.run("document.activeElement.id") == "detail"
    page.browser.key(*ESCAPE)
    assert page.browser.run("document.activeElement.id") == "list"
    assert page.browser.run("$('detail').hidden")
    assert page.browser.faults == []


def test_who_has_scrolled_away_keeps_the_rows_in_view(page):
    page.fill(*(row(n, url=f"http://a.test/{n}") for n in range(1, 201)))
    page.enter()
    wait_until(lambda: page.text("#count") == "200 flows", "all")
    page.browser.run("$('list').scrollTop = 24 * 100")
    middle = ("[...document.elementsFromPoint(200, 400)].find(one => "
              "one.closest('.row'))?.closest('.row').flow?.url")
    wait_until(lambda: page.browser.run(middle), "a row")
    before = page.browser.run(middle)
    page.fill(*(row(n) for n in range(300, 350)))
    wait_until(lambda: page.text("#count") == "250 flows", "more")
    assert page.browser.run(middle) == before


def test_captured_requests_that_are_lost_are_counted(page, make_origin, dial):
    """Before, only metrics and an alert showed them."""
    page.enter()
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000))
    client = dial(page.proxy)
    assert client.get(origin.url()).status == 200
    page.wait_rows(1)
    assert page.text("#lost") == ""
    stopped = writer(page.proxy)
    stopped.suspend()
    try:
        for _ in range(100):                # 40 MB, more than the ring
            assert client.get(origin.url()).status == 200
    finally:
        stopped.resume()
    # A ring without room for bodies has some for ends: they are partial
    wait_until(lambda: page.text("#lost").endswith(" partial"),
               lambda: page.text("#lost"))

    def told():
        counts = json.loads(page.operator.ask(
            "GET", "/flows/counts", Authorization=f"Bearer {TOKEN}")[1])
        assert counts.keys() == {
            "captured", "dropped", "unwritten", "failed", "partial"}
        shown = [f"{counts[name]:,} {name}" for name in (
            "dropped", "unwritten", "failed", "partial") if counts[name]]
        return page.text("#lost") == ", ".join(shown)

    wait_until(told, lambda: page.text("#lost"))
    assert page.browser.faults == []


@pytest.mark.skipif(not os.environ.get("CUTTHROUGH_BROWSER"),
                    reason="`make browser` measures it: other load makes it fail (R94)")
def test_a_hundred_thousand_rows_scroll_while_five_hundred_a_second_come(page, capsys):
    """A browser draws at most 60 frames a second. Other load on the machine changes the
    frames' times, but hardly the main thread's work."""
    for first in range(1, 100_001, 10_000):
        page.fill(*(row(n, url=f"http://h{n % 50}.test/path/{n}",
                        host=f"h{n % 50}.test")
                    for n in range(first, first + 10_000)), index=False)
    page.enter()
    begun = time.monotonic()
    wait_until(lambda: page.text("#count") == "100,000 flows",
               lambda: page.text("#count"), 60)
    loaded = time.monotonic() - begun
    stop = threading.Event()

    def arrive():
        store = open_store(str(page.database), 0, 0, 0.0)
        number = 200_000
        while not stop.wait(0.1):
            store.write([row(n, url=f"http://new.test/{n}")
                         for n in range(number, number + 50)])
            number += 50
        store.close()

    def metrics():
        found = page.browser.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in found}

    page.browser.send("Performance.enable")
    thread = threading.Thread(target=arrive)
    thread.start()
    report = []
    try:
        for name, step in (("at the top", "0"), ("scrolling", "37")):
            before = metrics()
            frames = page.browser.run(
                "new Promise(done => { const times = [], list = $('list'); let last;"
                " const begun = performance.now();"
                " const next = now => { if (last) times.push(now - last); last = now;"
                f" if ({step}) list.scrollTop += {step};"
                " if (now - begun < 5000) requestAnimationFrame(next);"
                " else done(times); };"
                " requestAnimationFrame(next); })")
            after = metrics()
            frames.sort()
            work = 1000 * (after["TaskDuration"] - before["TaskDuration"]) / len(frames)
            report.append(
                f"{name}: {len(frames) / sum(frames) * 1000:.1f} frames/s, median "
                f"{frames[len(frames) // 2]:.1f} ms, p95 "
                f"{frames[len(frames) * 95 // 100]:.1f}, max {frames[-1]:.1f}; main "
                f"thread {work:.2f} ms a frame")
            assert work < 16, report
            assert frames[len(frames) // 2] < 40, report
    finally:
        stop.set()
        thread.join()
    with capsys.disabled():
        print(f"\n100 000 rows in {loaded:.1f} s; {'; '.join(report)}")
    arrived = page.browser.run("newer.length")
    assert arrived > 2000 and page.browser.faults == []
    assert page.browser.run("document.querySelectorAll('#space .row').length") < 100
    page.browser.run("$('list').scrollTop = 1e9")
    wait_until(lambda: page.urls()[-1] == "http://h1.test/path/1", "the oldest")


# One flow


def test_a_flow_shows_its_parts(page, make_origin, dial):
    reply = b'{"a": [1, {"b": null}]}'
    zipped = gzip.compress(reply)
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"Content-Encoding: gzip\r\n\r\n%s" % (len(zipped), zipped)))
    page.enter()
    dial(page.proxy).ask(
        "POST", origin.url("/form"), "Content-Length: 11",
        "Content-Type: application/x-www-form-urlencoded", body=b"a=b+c&d=%41")
    page.wait_rows(1)
    page.open()
    assert page.text("#panel").startswith("POST /form HTTP/1.1\n")
    assert page.view("request", "form") == "a: b c\nd: A\n"
    assert page.view("request", "text") == "a=b+c&d=%41"
    assert page.view("request", "hex").startswith("00000000  61 3d 62 2b")
    assert page.tab("response").startswith("HTTP/1.1 200 OK\n")
    assert page.view("response", "json") == json.dumps(
        json.loads(reply), indent=2) + "\n"
    timing = page.tab("timing")
    assert "wait for the first byte" in timing and "connect" in timing
    widths = page.browser.run(
        "[...document.querySelectorAll('#waterfall i')].map(one => one.offsetWidth)")
    assert len(widths) >= 4 and max(widths) > 50
    decision = page.tab("decision")
    assert "rule\tseen" in decision and f"user\t{USER}" in decision
    assert "not looked at" in decision
    assert "No messages" in page.tab("messages")
    assert page.browser.faults == []


def test_a_tunnels_tls_and_an_event_streams_messages(page):
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    page.fill(
        row(1, kind="tunnel", method="CONNECT", url="a.test:443", protocol="tls",
            sni="a.test", alpn="h2", ja4="t13d1516h2_8daaf6152771_02713d6af862",
            request_head=None, response_head=None, request_body=None,
            response_body=None),
        row(2, response_head=head, response_body=
            "id: 7\nevent: add\ndata: one\ndata: two\n\n: nothing\n\ndata: <b>\n\n"))
    page.enter()
    page.wait_rows(2)
    page.open(0)
    assert messages(page) == [["7", "add", "one\ntwo"], ["7", "message", "<b>"]]
    page.open(1)
    decision = page.tab("decision")
    assert "server name\ta.test" in decision and "JA4\tt13d1516h2_" in decision
    assert "its content is not captured" in page.tab("response")


def test_what_is_captured_is_never_run(page):
    """Everything that an origin or a client chooses, as HTML and as a script."""
    page.fill(
        row(1, url=f"http://a.test/{HOSTILE}", host=HOSTILE, user=HOSTILE,
            rule=HOSTILE, reason="ok", request_head=f"GET /{HOSTILE} HTTP/1.1\r\n"
            f"X: {HOSTILE}\r\n\r\n", request_body=HOSTILE,
            response_head="HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
            f"Y: {HOSTILE}\r\n\r\n", response_body=f"<html>{HOSTILE}"),
        row(2, response_head="HTTP/1.1 200 OK\r\nContent-Type: image/svg+xml\r\n\r\n",
            response_body=f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE}</svg>"))
    page.enter()
    page.wait_rows(2)
    for i in (1, 0):
        page.open(i)
        for name in ("request", "response", "timing", "messages", "decision", "notes"):
            page.tab(name)
            for side in ("request", "response"):
                if name != side or page.browser.run(f"flow.{side}_body") == "none":
                    continue
                wait_until(lambda side=side: page.browser.run(
                    f"!!document.querySelector('#{side}-body .shown')"), "a body")
                for view in page.browser.run(
                        f"[...document.querySelectorAll('#{side}-body .bar button')]"
                        ".map(one => one.textContent)"):
                    page.view(side, view)
    page.open(1)
    page.tab("response")
    assert HOSTILE in page.view("response", "text")
    page.browser.click("#compare")
    page.open(0)
    page.browser.click("#compare")
    wait_until(lambda: page.browser.run("$('diff-dialog').open"), "the diff")
    for tag in ("script", "img", "svg"):
        wanted = 1 if tag == "script" else 0
        assert page.browser.run(f"document.querySelectorAll('{tag}').length") == wanted
    assert page.browser.run("typeof pwned") == "undefined"
    assert page.browser.faults == []
    refused = page.browser.send(
        "Runtime.evaluate", expression="document.body.innerHTML = '<b>x'")
    assert "TrustedHTML" in json.dumps(refused), "nor could the page itself"


def test_a_body_opened_as_a_page_is_saved_and_not_shown(page):
    """The address of a body, without the token, shows nothing at all."""
    page.fill(row(1, response_body=HOSTILE))
    error = page.browser.visit(
        f"http://127.0.0.1:{page.operator.where}/flows/1/response-body")
    assert error == "" and page.text("body").strip() == (
        "flows require the admin token")


# For every reader


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_both_schemes(page, scheme):
    page.fill(*(row(n, url=f"http://a.test/{n}", status=200 + n) for n in range(1, 90)))
    page.enter()
    wait_until(lambda: page.text("#count") == "89 flows", "all")
    for width, height in (WIDE, PHONE):
        page.browser.look(width, height, scheme)
        page.open()
        assert page.browser.run("document.documentElement.scrollWidth <= innerWidth")
        page.browser.click("#close")
    back, ink = page.browser.run(
        "[getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.body).color]")
    assert (back < ink) == (scheme == "dark")
    assert page.browser.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(page, scheme):
    """Rules of WCAG 2.2, levels A and AA, and axe's best practices."""
    assert AXE is not None and AXE.origin is not None
    page.browser.look(*WIDE, scheme)
    page.fill(*(row(n, url=f"http://a.test/{n}", status=200 + n) for n in range(1, 90)))
    page.browser.run(Path(AXE.origin).with_name("axe.min.js").read_text())
    found = {"empty": faults(page)}
    page.enter()
    wait_until(lambda: page.text("#count") == "89 flows", "all")
    page.browser.run("$('filter').focus()")
    found["list"] = faults(page)
    page.browser.key(*ESCAPE)               # the hints are above the list
    page.open()
    for name in ("request", "response", "timing", "messages", "decision", "notes"):
        page.tab(name)
        found[name] = faults(page)
    page.fill(row(90, response_body="<h3>x<table><tr><td>y", response_head=
                  "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"))
    wait_until(lambda: page.text("#count") == "90 flows", "the page of HTML")
    page.open()
    page.tab("response")
    page.view("response", "preview")
    found["preview"] = faults(page)
    page.browser.click("#compose")
    found["send"] = faults(page)
    page.browser.run("$('send-dialog').close()")
    page.browser.run("copyAs('curl')")
    wait_until(lambda: page.browser.run("$('text-dialog').open"), "the text")
    found["copy"] = faults(page)
    page.browser.run("$('text-dialog').close()")
    page.browser.click("#holds")
    wait_until(lambda: page.text("#hold-state") == "not armed", "the state")
    found["breakpoints"] = faults(page)
    page.browser.run("$('hold-form').hidden = false")
    found["held"] = faults(page)
    page.browser.run("$('hold-dialog').close()")
    page.browser.click("#remove")
    found["remove"] = faults(page)
    assert not any(found.values()), json.dumps(found, indent=1)
