"""The live page in a real browser: the program, its room and its last hour, refusals,
and what an operator tells it."""

import json
import shlex
import socket
import time

import pytest

from cutthrough.cli.main import main
from tests.support.admin import AUTHORIZED, administered
from tests.support.browser import needs_chromium
from tests.support.client import PASSWORD, USER
from tests.support.live_page import rows, sign_in
from tests.support.origin import echo
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                  # a browser asks its maker for this and that
]

POLICY = """
default = "deny"
[[rules]]
name = "no-ads"
action = "deny"
hosts = ["ads.test"]
[[rules]]
name = "here"
action = "allow"
addresses = ["127.0.0.0/8"]
"""
IDLE = "document.querySelector('main').classList.contains('idle')"


@pytest.fixture
def page(directory, opened, browse, loop_name, tmp_path):
    if loop_name != "uvloop":
        pytest.skip("the page knows no event loop")
    (tmp_path / "policy.toml").write_text(POLICY)
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'workers = 2\npolicy = "{tmp_path}/policy.toml"\nmax_connections_total = 50\n')
    browser = browse()
    browser.look(1280, 900, "light")
    browser.open(f"http://127.0.0.1:{operator.where}/")
    wait_until(lambda: browser.text("#state") == "live", lambda: str(browser.faults))
    return proxy, operator, browser


def test_what_it_is_and_how_much_room_it_has(page, make_origin, dial):
    proxy, operator, browser = page
    wait_until(lambda: browser.text("#identity"), "the overview")
    assert socket.gethostname() in browser.text("#identity")
    assert " · up " in browser.text("#identity")
    assert browser.text("#facts").startswith(
        f"listener\n127.0.0.1:{proxy.port} · http\nconfiguration\ngeneration 1, since ")
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    tunnel.send(b"x" * 1000)
    assert tunnel.read_exact(1000)
    wait_until(lambda: browser.text("#meters").startswith("connections\n1 of 50"),
               lambda: browser.text("#meters"))
    assert "descriptors of the fullest worker" in browser.text("#meters")
    wait_until(lambda: len(rows(browser, "#workers")) == 2, "both workers")
    overview = json.loads(operator.get("/overview"))
    assert overview["state"] == "serving"
    assert 0 < time.time() - overview["started"] < 600
    assert overview["max_connections"] == 50 and overview["captures"] is False
    assert browser.faults == []


def test_an_idle_program_says_what_to_try_and_shows_no_empty_panels(
        page, make_origin, dial):
    proxy, _, browser = page
    wait_until(lambda: browser.run(IDLE), "no request yet")
    assert browser.text("#idle-command") == (
        f"curl -x http://USER@127.0.0.1:{proxy.port} http://example.com/")
    shown = ("[...document.querySelectorAll('main > section')]"
             ".filter(one => one.offsetParent).map(one => one.id)")
    assert browser.run(shown) == ["idle", "capacity", "program"]
    with dial(proxy) as client:
        assert client.get(make_origin().url()).status == 200
    wait_until(lambda: not browser.run(IDLE), "the request")
    wait_until(lambda: "ended" in browser.run(shown), lambda: str(browser.run(shown)))
    assert "lives" not in browser.run(shown) and "refused" not in browser.run(shown)


def test_the_hour_is_there_when_the_page_is_opened(page, make_origin, dial):
    """It began when the page was opened, and had two minutes without a time."""
    proxy, operator, browser = page
    with dial(proxy) as client:
        for _ in range(30):
            assert client.get(make_origin().url()).status == 200
    wait_until(lambda: any(row[3] for row in json.loads(
        operator.get("/history"))["rows"]), "a row of ten seconds")
    browser.send("Page.reload")
    wait_until(lambda: browser.run("typeof hour !== 'undefined' && hour.length > 0"),
               "the hour")
    wait_until(lambda: browser.run("document.querySelectorAll('#chart .line').length"),
               "lines")
    assert browser.run("hour.reduce((n, row) => n + row.requests, 0)") >= 30
    ticks = browser.run("[...document.querySelectorAll('#chart text')]"
                        ".map(one => one.textContent).filter(one => /:/.test(one))")
    assert len(ticks) >= 5 and all(tick.endswith("0") for tick in ticks)
    browser.run("$('chart').focus()")
    browser.key("ArrowLeft", 37)
    wait_until(lambda: browser.run("document.querySelector('#chart .cursor') !== null"),
               "a cursor")
    assert browser.text("#at").count(":") == 3
    browser.click("#series button:nth-child(2)")
    assert "requests" in browser.text("#at") and browser.faults == []
    assert operator.ask("GET", "/history?after=x")[0] == 400
    last = json.loads(operator.get("/history"))["rows"][-1][0]
    assert all(row[0] > last for row in json.loads(
        operator.get(f"/history?after={last}"))["rows"])


def test_refusals_are_grouped_and_explained(page, make_origin, dial, capsys):
    proxy, _, browser = page
    for _ in range(3):
        with dial(proxy) as client:
            assert client.connect("ads.test:443").status == 403
    with dial(proxy) as client:
        assert client.get("http://127.0.0.1:1/a'b").status == 502

    def groups():
        return [cells[:5] for cells in rows(browser, "#groups tbody")]

    wait_until(lambda: groups() == [
        ["destination_denied", USER, "ads.test:443", "no-ads", "3"],
        ["connection_refused", USER, "127.0.0.1:1", "here", "1"]],
        lambda: str(groups()))
    wait_until(lambda: "destination_denied 3" in browser.text("#reasons"), "the sum")
    browser.click("#groups tr:nth-child(1) button")
    assert browser.text("#explain-title") == "destination_denied"
    assert browser.text("#explain-meaning") == "a rule forbids this destination"
    assert "no-ads" in browser.text("#explain-facts")
    # The command is one, and says the same
    words = shlex.split(browser.text("#explain-command"))[1:]
    assert main([*words, "-c", str(proxy.config_file)]) == 1
    assert "no-ads" in capsys.readouterr().out
    browser.click("#explain-close")
    browser.click("#groups tr:nth-child(2) button")
    words = shlex.split(browser.text("#explain-command"))[1:]
    assert words[-2:] == ["GET", "http://127.0.0.1:1/a'b"]
    browser.click("#explain-close")
    # While the pointer is among them, the rows stand still
    browser.move("#groups tr:nth-child(2) button")
    with dial(proxy) as client:
        assert client.get("http://127.0.0.1:2/").status == 502
    wait_until(lambda: browser.run("groups.size") == 3, "a third group")
    browser.run("showEndings()")
    assert len(groups()) == 2
    browser.move("#chart")
    browser.run("document.activeElement.blur(); showEndings()")
    assert len(groups()) == 3 and browser.faults == []


def test_it_is_reloaded_and_drained_with_the_token(page):
    proxy, _, browser = page
    off = "['reload', 'drain'].map(id => $(id).ariaDisabled)"
    assert browser.run(off) == ["true", "true"]
    browser.click("#reload")
    assert browser.text("#program-note") == "give the admin token above"
    sign_in(browser)
    assert browser.run(off) == ["false", "false"]
    text = proxy.config_file.read_text()
    proxy.config_file.write_text(text.replace(PASSWORD, "another password"))
    browser.click("#reload")
    wait_until(lambda: browser.text("#program-note") == "generation 2: password",
               lambda: browser.text("#program-note"))
    wait_until(lambda: "generation 2, since" in browser.text("#facts"), "the overview")
    proxy.config_file.write_text("workers = 0\n")
    browser.click("#reload")
    wait_until(lambda: browser.text("#program-note").startswith("reload refused"),
               lambda: browser.text("#program-note"))
    proxy.config_file.write_text(text)
    browser.click("#drain")
    assert browser.run("$('drain-ask').open")
    browser.click("#drain-no")
    assert browser.run("!$('drain-ask').open") and proxy.process.poll() is None
    browser.click("#drain")
    browser.click("#drain-yes")
    assert proxy.process.wait(60) == 0


def test_the_log_level_is_changed_with_the_token(page, make_origin, dial):
    proxy, operator, browser = page
    choose = ("(to => { $('log-level').value = to; $('log-level').dispatchEvent("
              "new Event('change')); })")
    wait_until(lambda: browser.run("$('log-level').value") == "info", "the level")
    browser.run(f"{choose}('debug')")
    assert browser.text("#program-note") == "give the admin token above"
    assert browser.run("$('log-level').value") == "info"
    sign_in(browser)
    browser.run(f"{choose}('debug')")
    wait_until(lambda: browser.text("#program-note") == "the workers log at debug",
               lambda: browser.text("#program-note"))
    with dial(proxy) as client:
        assert client.get(make_origin().url()).status == 200
    wait_until(lambda: "reason=ok" in proxy.stderr(), proxy.stderr)
    # As another page, or a command, has set it
    assert operator.ask("POST", "/log-level?level=info", **AUTHORIZED)[0] == 200
    browser.run("readLevel()")
    wait_until(lambda: browser.run("$('log-level').value") == "info", "the level")
    assert browser.faults == []


def test_on_a_phone_a_row_has_its_age_and_its_bytes(page, make_origin, dial):
    proxy, _, browser = page
    browser.look(390, 844, "dark")
    origin = make_origin(echo)
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"x" * 5000)
    assert tunnel.read_exact(5000)
    wait_until(lambda: "5.0 kB" in browser.text("#rows"), lambda: browser.text("#rows"))
    # A row that is made anew is nowhere for a moment
    shown = {"host", "user", "state", "age", "bytes_up", "bytes_down"}
    wait_until(lambda: shown <= {*browser.run(
        "[...document.querySelectorAll('#rows tr:first-child td')].filter(one =>"
        " one.offsetParent).map(one => one.className.split(' ')[0])")}, "the cells")
    boxes = browser.run(
        "[...document.querySelectorAll('#rows tr:first-child td')].filter(one =>"
        " one.offsetParent).map(one => one.getBoundingClientRect())"
        ".map(box => [box.left, box.right])")
    assert all(0 <= left and right <= 390 for left, right in boxes)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
