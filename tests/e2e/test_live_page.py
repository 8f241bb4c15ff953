"""The live page in a real browser: its content, and a tunnel that is cut from it."""

import contextlib
import threading

import pytest

from cutthrough.admin.endings import MOST_WATCHERS_EACH
from tests.support.admin import administered
from tests.support.browser import needs_chromium
from tests.support.client import USER
from tests.support.live_page import ASKS, rows, see_reset, sign_in
from tests.support.origin import echo
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                  # a browser asks its maker for this and that
]

WIDE, PHONE = (1280, 900), (390, 844)


@pytest.fixture
def page(directory, opened, browse, loop_name):
    """A proxy of two workers, its operator, and a browser that has its page open."""
    if loop_name != "uvloop":
        pytest.skip("the page knows no event loop")
    proxy, operator = administered(
        opened, directory("proxy"), loop_name, "workers = 2\n")
    browser = browse()
    browser.look(*WIDE, "light")
    browser.open(f"http://127.0.0.1:{operator.where}/")
    wait_until(lambda: browser.text("#state") == "live", lambda: str(browser.faults))
    return proxy, operator, browser


def test_a_tunnel_is_filtered_and_cut_from_the_page(page, make_origin, dial):
    proxy, operator, browser = page
    one, two = make_origin(echo), make_origin(echo, "127.0.0.2")
    first = dial(proxy).tunnel(one.authority)
    second = dial(proxy).tunnel(two.authority)
    for tunnel in (first, second):
        tunnel.send(b"x" * 5000)
        assert tunnel.read_exact(5000)
    with dial(proxy) as client:
        assert client.get("http://127.0.0.1:1/").status == 502
        assert client.get(make_origin().url()).status == 200
    wait_until(lambda: len(rows(browser)) == 2, lambda: str(rows(browser)))
    wait_until(lambda: "connection_refused" in browser.text("#endings")
               and "connection_refused" in browser.text("#reasons")
               and USER in browser.text("#users"), lambda: browser.text("main"))

    browser.type("#filter", two.authority)
    wait_until(lambda: len(rows(browser)) == 1, lambda: str(rows(browser)))
    assert rows(browser)[0][:5] == [
        USER, "127.0.0.1", "CONNECT", two.authority, "tunnel"]
    disabled = "document.querySelector('#rows button').ariaDisabled === 'true'"
    assert browser.run(disabled), "no token yet"
    browser.click("#rows button")
    assert "token" in browser.text("#answer") and not browser.run(ASKS)
    sign_in(browser)
    assert not browser.run(disabled)

    cut = threading.Event()
    watcher = threading.Thread(target=lambda: (see_reset(second), cut.set()))
    watcher.start()
    browser.click("#rows button")
    assert browser.run(ASKS)
    (there,) = operator.connections("host=127.0.0.2")
    asked = {name: browser.text(f"#ask-{name}") for name in ("id", "user", "host")}
    assert asked == {"id": there["id"], "user": USER, "host": two.authority}
    browser.click("#ask-yes")
    assert cut.wait(5), "the client sees the cut"
    watcher.join()
    wait_until(lambda: browser.text("#answer") == f"{there['id']} was cut",
               "the answer")
    assert not browser.run(ASKS)
    wait_until(lambda: rows(browser)[0][4] == "ended: cut", lambda: str(rows(browser)))
    browser.move("#chart")
    wait_until(lambda: rows(browser) == [["none open"]], lambda: str(rows(browser)))
    browser.type("#filter", "")
    wait_until(lambda: len(rows(browser)) == 1, lambda: str(rows(browser)))
    wait_until(lambda: "cut" in browser.text("#endings"), "its ending")
    first.send(b"still here")
    assert first.read_exact(10) == b"still here"
    assert proxy.wait_reason("cut")["host"] == "127.0.0.2"

    assert browser.faults == []
    assert {url.split("/")[2] for url in browser.requested if url[:5] != "data:"} == {
        f"127.0.0.1:{operator.where}"}, "no outside requests"


def test_columns_sort(page, make_origin, dial):
    proxy, _, browser = page
    origin = make_origin(echo)
    for size in (20, 3000, 100):
        tunnel = dial(proxy).tunnel(origin.authority)
        tunnel.send(b"x" * size)
        assert tunnel.read_exact(size)
    wait_until(lambda: len(rows(browser)) == 3, lambda: str(rows(browser)))

    def downs() -> list[str]:
        return [cells[7] for cells in rows(browser)]

    assert downs() == ["3.0 kB", "100 B", "20 B"], "the busiest first"
    browser.click("#heads th:nth-child(8) button")
    assert downs() == ["20 B", "100 B", "3.0 kB"]
    assert browser.run("document.querySelector('#heads th:nth-child(8)').ariaSort") == (
        "ascending")
    assert browser.faults == []


def test_a_wrong_token_is_told(page, make_origin, dial):
    proxy, operator, browser = page
    dial(proxy).tunnel(make_origin(echo).authority)
    wait_until(lambda: len(rows(browser)[0]) > 1, "a row")
    browser.type("#token", "guess")
    browser.key("Enter", 13, "\r")
    wait_until(lambda: browser.text("#answer") == "this is no admin token",
               "the refusal")
    browser.click("#rows button")
    assert not browser.run(ASKS)
    assert len(operator.connections("kind=tunnel")) == 1


def test_what_the_wire_named_is_text(page, make_origin, dial):
    """A user name comes from a client; as HTML it would be a script of ours."""
    proxy, _, browser = page
    with dial(proxy) as client:
        client.get(make_origin().url("/<img/src=x/onerror=alert(1)>"))
        client.send(b"GET http://<b>x</b>/ HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_until(lambda: rows(browser, "#endings"), "an ending")
    assert browser.run("document.querySelectorAll('img, #endings b').length") == 0
    assert browser.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_both_schemes(page, make_origin, dial, scheme):
    proxy, _, browser = page
    origin, plain = make_origin(echo), make_origin()
    for size in (70_000, 20_000, 900):
        tunnel = dial(proxy).tunnel(origin.authority)
        tunnel.send(b"x" * size)
        assert tunnel.read_exact(size)
    with dial(proxy) as client:
        for _ in range(20):
            assert client.get(plain.url("/page")).status == 200
        client.get("http://127.0.0.1:1/")
    wait_until(lambda: len(rows(browser)) == 3 and len(rows(browser, "#endings")) > 10,
               "rows")
    sign_in(browser)
    for width, height in (WIDE, PHONE):
        browser.look(width, height, scheme)
        assert browser.run(
            "document.documentElement.scrollWidth <= innerWidth"), f"{width} wide"
        browser.click("#rows button")
        assert browser.run(ASKS) and browser.run(
            "(b => b.left >= 0 && b.right <= innerWidth && b.top >= 0"
            " && b.bottom <= innerHeight)($('ask').getBoundingClientRect())")
        browser.click("#ask-no")
    back, ink = browser.run(
        "[getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.body).color]")
    assert (back < ink) == (scheme == "dark")
    assert browser.faults == []


def test_endings_come_again_by_themselves(page, make_origin, dial):
    """One refusal was final for the browser, and the page did not show it."""
    proxy, operator, browser = page
    address, url = browser.run("location.href"), make_origin().url()
    browser.open("about:blank")              # it had a place itself

    def end_one():
        """A watcher's end is seen when there is an event for it."""
        with dial(proxy) as client:
            assert client.get(url).status == 200

    def watcher():
        end_one()
        made = operator.connection()
        made.request("GET", "/events")
        if made.getresponse().status == 200:
            return made
        made.close()
        return None

    with contextlib.ExitStack() as watching:
        for _ in range(MOST_WATCHERS_EACH):
            watching.callback(wait_until(watcher, "a place").close)
        browser.open(address)
        wait_until(lambda: "reconnecting" in browser.text("#watching"), "a word of it")
        wait_until(lambda: browser.text("#state") == "live", "all else is live")
    wait_until(lambda: end_one() or browser.text("#watching") == "", "it watches")
    end_one()
    wait_until(lambda: rows(browser, "#endings"), "an ending")
