"""The live page's cut in a real browser, while rows arrive and end all the time: the
tunnel in the question is cut, even if its row has moved."""

import itertools
import threading

import pytest

from tests.support.admin import administered
from tests.support.browser import needs_chromium
from tests.support.client import USER
from tests.support.live_page import ASKS, rows, see_reset, sign_in
from tests.support.origin import echo
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium asks if IPv6 has a route
]

BUTTON = "#rows tr[data-key='{}'] button"
FOCUSED = ("document.activeElement.getAttribute('aria-label')"
           " || document.activeElement.id")
# Looks at the proxy's state now, instead of in a second
LOOK = "(async () => { while (looking) await new Promise(requestAnimationFrame);" \
       " await look(); })()"
ENTER, TAB, ESCAPE = ("Enter", 13, "\r"), ("Tab", 9), ("Escape", 27)


@pytest.fixture
def page(directory, opened, browse, loop_name):
    if loop_name != "uvloop":
        pytest.skip("the page knows no event loop")
    proxy, operator = administered(
        opened, directory("proxy"), loop_name, "workers = 2\n")
    browser = browse()
    browser.look(1280, 900, "light")
    browser.open(f"http://127.0.0.1:{operator.where}/")
    wait_until(lambda: browser.text("#state") == "live", lambda: str(browser.faults))
    sign_in(browser)
    return proxy, operator, browser


class Traffic:
    """Tunnels of different sizes, so that each new one is sorted between the others."""

    def __init__(self, proxy, operator, origin, dial):
        self.proxy, self.operator = proxy, operator
        self.origin, self.dial = origin, dial
        self.by_id = {}
        self.sizes = itertools.cycle((40_000, 300, 9_000, 70_000, 1_000, 20_000))

    def begin(self):
        tunnel = self.dial(self.proxy).tunnel(self.origin.authority)
        size = next(self.sizes)
        tunnel.send(b"x" * size)
        assert tunnel.read_exact(size)
        new = {one["id"] for one in self.operator.connections("kind=tunnel")}
        (name,) = new - set(self.by_id)
        self.by_id[name] = tunnel
        return name

    def end(self, name):
        self.by_id[name].close()
        wait_until(lambda: not self.operator.connections(f"id={name}"), "its end")


@pytest.fixture
def traffic(page, make_origin, dial):
    proxy, operator, _ = page
    made = Traffic(proxy, operator, make_origin(echo), dial)
    for _ in range(6):
        made.begin()
    return made


def shown(browser) -> list[str]:
    return [cells[9] for cells in rows(browser)]


def states(browser) -> dict[str, str]:
    return {cells[9]: cells[4] for cells in rows(browser)}


def test_the_button_under_the_mouse_stays_its_connections(page, traffic):
    """Each row was replaced every second: after 1.3 s, 3 of 6 buttons belonged to
    another tunnel, and a click cut it at once."""
    _, operator, browser = page
    browser.run(LOOK)
    before = shown(browser)
    assert len(before) == 6
    wanted = before[2]
    place = browser.place(BUTTON.format(wanted))
    browser.move(BUTTON.format(wanted))
    browser.run("window.nodes = [...document.querySelectorAll('#rows tr')]")
    for ended in (before[0], before[4], None, None):
        traffic.begin()
        if ended:
            traffic.end(ended)
        browser.run(LOOK)
        assert shown(browser)[:6] == before, "new ones come at the end"
        assert browser.run("nodes.every((tr, i) => tr === $('rows').children[i])")
    told = states(browser)
    assert told[before[0]].startswith("ended") and told[before[4]].startswith("ended")
    browser.press(*place)
    assert browser.run(ASKS) and browser.text("#ask-id") == wanted
    browser.click("#ask-yes")
    wait_until(lambda: browser.text("#answer") == f"{wanted} was cut", "the answer")
    see_reset(traffic.by_id.pop(wanted))
    left = {one["id"] for one in operator.connections("kind=tunnel")}
    assert left == set(traffic.by_id) - {before[0], before[4]}, "nobody else"
    browser.move("#chart")
    wait_until(lambda: browser.run(LOOK) or set(shown(browser)) == left, "the rest")
    assert shown(browser) != sorted(shown(browser)) and browser.faults == []


def test_a_question_is_about_one_connection_whatever_comes(page, traffic):
    """While it is open, more connections come, the table is sorted, its own ends."""
    _, operator, browser = page
    browser.run(LOOK)
    first, second = shown(browser)[:2]
    browser.click(BUTTON.format(first))
    asked = [browser.text(f"#ask-{name}") for name in ("id", "user", "host", "client")]
    assert asked == [first, USER, traffic.origin.authority, "127.0.0.1"]
    for _ in range(3):
        traffic.begin()
        browser.run(LOOK)
        browser.run("document.querySelector('#heads button').click()")
        assert browser.text("#ask-id") == first and first in browser.text("#ask-yes")
    traffic.end(first)
    browser.run(LOOK)
    assert "ended" in browser.text("#ask-state") and "nothing to cut" in browser.text(
        "#ask-note")
    browser.click("#ask-yes")
    assert browser.run(ASKS), "there is nothing to be said yes to"
    browser.click("#ask-no")
    assert not browser.run(ASKS)
    assert second in {one["id"] for one in operator.connections("kind=tunnel")}
    assert len(operator.connections("kind=tunnel")) == 8 and browser.faults == []


def test_one_that_ends_between_question_and_answer_cuts_nobody(page, traffic):
    _, operator, browser = page
    browser.run(LOOK)
    wanted = shown(browser)[0]
    browser.click(BUTTON.format(wanted))
    browser.run("look = async () => {}")     # the page does not know the end yet
    traffic.end(wanted)
    browser.click("#ask-yes")
    wait_until(lambda: browser.text("#answer") == f"{wanted} had already ended",
               lambda: browser.text("#answer"))
    assert len(operator.connections("kind=tunnel")) == 5


def test_a_double_click_is_no_answer(page, traffic):
    """Its second click may meet the button that the question has put there."""
    _, operator, browser = page
    browser.run(LOOK)
    browser.click("#rows tr:first-child button")
    browser.press(*browser.place("#ask-yes"), count=2)
    assert browser.run(ASKS)
    assert len(operator.connections("kind=tunnel")) == 6


def test_it_is_done_by_the_keyboard_and_the_focus_stays(page, traffic):
    """The focus fell to the page each second: no button could be pressed by a key."""
    _, operator, browser = page
    browser.run(LOOK)
    order = shown(browser)
    browser.run("document.querySelector('#kind').focus()")
    heads = "[...$('heads').querySelectorAll('button')]"
    for _ in range(1 + browser.run(f"{heads}.filter(one => one.offsetParent).length")):
        browser.key(*TAB)
    assert browser.run(FOCUSED).startswith(f"cut {order[0]}, {USER}, ")
    browser.key("ArrowDown", 40)
    for _ in range(2):
        traffic.begin()
        browser.run(LOOK)
        assert browser.run(FOCUSED).startswith(f"cut {order[1]}, ")
    assert shown(browser)[:6] == order
    browser.key(*ENTER)
    assert browser.run(ASKS) and browser.run(FOCUSED) == "ask-no", "no is the first"
    browser.key(*ESCAPE)
    assert not browser.run(ASKS)
    assert browser.run(FOCUSED).startswith(f"cut {order[1]}, ")
    browser.key(*ENTER)
    browser.key(*TAB)
    assert browser.run(FOCUSED) == "ask-yes"
    tunnel = traffic.by_id.pop(order[1])
    gone = threading.Thread(target=see_reset, args=(tunnel,))
    gone.start()
    browser.key(*ENTER)
    wait_until(lambda: browser.text("#answer") == f"{order[1]} was cut", "the answer")
    gone.join(5)
    assert not gone.is_alive()
    browser.run(LOOK)
    assert browser.run(FOCUSED).startswith(f"cut {order[1]}, ")
    assert states(browser)[order[1]].startswith("ended")
    browser.key(*ENTER)
    assert not browser.run(ASKS) and "ended" in browser.text("#answer")
    browser.key("ArrowDown", 40)
    assert browser.run(FOCUSED).startswith(f"cut {order[2]}, ")
    assert len(operator.connections("kind=tunnel")) == 7 and browser.faults == []


def test_a_worker_that_does_not_answer_has_ended_nothing(page, traffic):
    _, _, browser = page
    browser.run(LOOK)
    browser.run("look = async () => {}")     # from now on only the test feeds the page
    hear = "takeConnections({{connections: [], unanswered: {}}}); showConnections()"
    browser.run(hear.format("['worker 0 (pid 1)', 'worker 1 (pid 2)']"))
    assert set(states(browser).values()) == {"no answer"}
    browser.run(hear.format("[]"))
    assert {state[:5] for state in states(browser).values()} == {"ended"}
    assert browser.faults == []


def test_a_tunnels_life_is_no_requests_latency(page, traffic, make_origin, dial):
    """One tunnel of an hour made the median of all requests an hour."""
    proxy, _, browser = page
    with dial(proxy) as client:
        assert client.get(make_origin().url()).status == 200
        assert client.get("http://127.0.0.1:1/").status == 502
    for name in list(traffic.by_id):
        traffic.end(name)
    proxy.wait_log(8)
    wait_until(lambda: browser.run("phases.tunnel.length") == 6, "their ends")
    assert browser.run("phases.request.length") == 1
    assert browser.run("phases.first_byte_ms.length") == 1
    wait_until(lambda: browser.text("#lifetimes").startswith("ended\n6\nmedian\n"),
               lambda: browser.text("#lifetimes"))
    names = [cells[0] for cells in rows(browser, "#latency")]
    assert names[-1] == "whole request" and not any("tunnel" in one for one in names)
