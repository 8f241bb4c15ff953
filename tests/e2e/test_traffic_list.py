"""The page "Traffic" in a real browser: what a row of its list shows."""

import pytest

from tests.capture.flows import row
from tests.support.browser import needs_chromium
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]


def cells_in_view(page, number):
    """The columns of a row that are to be seen, in order."""
    return page.browser.run(
        f"[...$('flow-{number}').children].filter(one => one.offsetParent)"
        ".map(one => one.className.split(' ')[0])")


def test_the_url_has_the_room_that_empty_columns_do_not_need(page):
    """With its details open it was `https://localhost:…` beside empty columns."""
    page.browser.look(1440, 900, "light")
    url = "https://localhost:8443/v1/orders/42/items"
    page.fill(row(1, url=url, user="", client=None))
    page.enter()
    page.wait_rows(1)
    number = page.open()
    assert cells_in_view(page, number) == [
        "time", "method", "status", "url", "bytes", "ms"]
    assert page.browser.run(
        "[...document.querySelectorAll('#space .url')].every("
        "one => one.scrollWidth <= one.clientWidth)")
    assert page.browser.text(f"#flow-{number} .url").replace("\n", "") == (
        "localhost:8443/v1/orders/42/items"), "https is usual"
    page.fill(row(2, url=url), row(3, reason="response_truncated"))
    page.wait_rows(3)
    assert cells_in_view(page, number) == [
        "time", "method", "status", "url", "reason", "bytes", "ms"]
    page.browser.click("#close")
    assert cells_in_view(page, number) == [
        "time", "method", "status", "url", "reason", "type", "bytes", "ms", "user"]


def test_a_row_has_the_reason_of_its_ending(page):
    """A 200 was red, and nothing said why."""
    page.fill(row(1, reason="response_truncated"), row(2, status=404), row(3))
    page.enter()
    page.wait_rows(3)
    assert [cells[2:5:2] for cells in page.rows()] == [
        ["200", ""], ["404", ""], ["200", "response_truncated"]]
    number = page.open(2)
    classes = page.browser.run(f"$('flow-{number}').className")
    assert "error" not in classes.split(), "its status is none of an error"
    assert "response_truncated: the " in page.text("#ending")
    assert "origin" in page.browser.run(
        f"document.querySelector('#flow-{number} .reason').title")
    page.browser.click("#close")
    page.open(1)
    assert page.text("#ending").startswith("404 ·")


def test_the_connect_of_an_opened_tunnel_is_folded_into_its_requests(page):
    """Half of the list were CONNECTs that say nothing."""
    tunnel = {"method": "CONNECT", "url": "a.test:443", "request_head": None,
              "response_head": None, "response_body": None}
    page.fill(
        row(1, **tunnel, intercepted=1, client_port=7000),
        row(2, url="https://a.test/x", intercepted=1, client_port=7000),
        row(3, **tunnel), row(4, **tunnel, intercepted=1, reason="client_reset"),
        row(5, **tunnel, intercepted=1, kind="tunnel"))
    page.enter()
    page.wait_rows(4)
    assert [cells[1] for cells in page.rows()] == ["CONNECT"] * 3 + ["GET"]
    assert page.text("#count") == "4 flows"
    assert page.text("#connects") == "+ 1 CONNECT"
    page.open(3)
    page.tab("decision")
    page.browser.run("[...document.querySelectorAll('#panel button')].at(-1).click()")
    page.wait_note("#detail-url", "#1 CONNECT")
    page.browser.click("#connects")
    page.wait_rows(5)
    assert page.rows()[4][1] == "CONNECT" and page.text("#count") == "5 flows"
    page.browser.click("#connects")
    page.wait_rows(4)
    page.fill(*(row(n, **tunnel, intercepted=1) for n in range(6, 200)))
    page.fill(*(row(n, url=f"http://a.test/{n}") for n in range(200, 300)))
    wait_until(lambda: page.text("#count") == "104 flows", lambda: page.text("#count"))
    page.browser.run("choose(50)")
    middle = page.browser.run("flowOf(seqAt(50)).url")
    page.browser.run("foldConnects(true)")
    assert page.browser.run("flowOf(byId.get(chosen)).url") == middle
    assert page.browser.run("chosenIndex()") == 50 and page.browser.faults == []


def test_a_tunnel_by_socks_is_folded_as_that_of_a_connect(page):
    """It had a row, and its requests did not name it. A request inside that has such a
    method has a row."""
    page.fill(*(row(port, method=method, url="a.test:443", intercepted=1,
                    client_port=port, request_head=None, response_head=None,
                    response_body=None)
                for port, method in enumerate(("SOCKS5", "SOCKS4", "TUNNEL"), 1)),
              *(row(port + 3, method="TUNNEL", url="https://a.test/x", intercepted=1,
                    client_port=port) for port in (1, 2, 3)))
    page.enter()
    page.wait_rows(3)
    assert page.text("#connects") == "+ 3 CONNECT"
    page.open(2)
    page.tab("decision")
    page.browser.run("[...document.querySelectorAll('#panel button')].at(-1).click()")
    page.wait_note("#detail-url", "#1 SOCKS5")
    assert page.browser.faults == []


def test_the_newest_200_000_stay_whenever_they_came(page):
    """Those that came while the page was open were never let go."""
    page.fill(*(row(n, url=f"http://a.test/{n}") for n in range(1, 31)))
    page.enter()
    page.wait_rows(30)
    browser = page.browser
    # As the stream brings them; every third one is the CONNECT of an opened tunnel
    browser.run("""
      const come = (from, n) => addNewer(Array.from({length: n}, (_, i) => ({
        id: from + i, request: `1-${from + i}`, time: "2026-01-01T10:00:00.000",
        method: i % 3 ? "GET" : "CONNECT", intercepted: 1, kind: "request",
        client: "127.0.0.1", client_port: 1000 + Math.floor(i / 3), status: 200,
        reason: "ok", url: i % 3 ? `http://b.test/${from + i}` : "b.test:443",
        host: "b.test", bytes: 5,
        ms: 1})));""")
    browser.run("come(1000, 210000)")
    assert browser.run("[newer.length, older.length, byId.size]") == [
        200_000, 0, 200_000]
    assert browser.run("total() + folded") == 200_000
    assert browser.run("connects.size") <= 66_668
    assert browser.run("flowOf(seqAt(0)).id") == 210_999
    assert browser.run("flowOf(seqAt(total() - 1)).id") == 11_000
    wait_until(lambda: page.text("#count").startswith("newest 133,3"),
               lambda: page.text("#count"))
    # A row is found, changed and chosen by its number, after others have left
    browser.run("choose(indexOf(byId.get(11_000)), false)")
    wait_until(lambda: browser.run("$('flow-11000') !== null"), "the oldest row")
    browser.run("changeFlow(11_000, {tag: 'here'})")
    wait_until(lambda: "here" in browser.run("$('flow-11000').textContent"), "the tag")
    browser.run("come(300000, 3000)")
    assert browser.run("byId.has(11_000)") is False
    browser.run("foldConnects(true)")
    assert browser.run("total()") == browser.run("newer.length") <= 202_000
    browser.run("foldConnects(false)")
    assert browser.run("total() + folded") == browser.run("newer.length")
    assert browser.faults == []
