"""Every page of the admin listener for every reader: axe's rules, at a desk and on a
phone, in both schemes; and each control reached by the keyboard alone.

axe's script is in the package axe_core_python, of requirements/test.txt.
"""

import contextlib
import json
import shutil
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.capture.flows import row
from tests.support.admin import TOKEN, administered
from tests.support.browser import Tab, needs_chromium
from tests.support.certificates import authority
from tests.support.flows import fill
from tests.support.live_page import sign_in
from tests.support.origin import echo
from tests.support.recordings import fill as record
from tests.support.recordings import made
from tests.support.traffic import ESCAPE, PHONE, POLICY, WIDE, faults
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                  # a browser asks its maker for this and that
]

AXE = find_spec("axe_core_python")
TAB = ("Tab", 9)
PAGES = {"live": "", "traffic": "traffic", "recordings": "recordings", "ca": "ca"}
# What the keyboard has to reach: it is there, and is in the order of Tab. In a group of
# tabs, one is; a table's cells are reached by arrows
CONTROLS = """[...document.querySelectorAll(
  'a[href], button, input, select, textarea, summary, [tabindex]')].filter(one =>
  one.checkVisibility({visibilityProperty: true}) && one.tabIndex >= 0 && !one.disabled
  && !one.closest('dialog:not([open])') && one.type !== 'file')"""
NAME = "one => one.id || one.textContent.trim().slice(0, 30) || one.href"
STOP = f"""(one => one === document.body ? null : [({NAME})(one),
  getComputedStyle(one).outlineStyle !== 'none'])(document.activeElement)"""


@pytest.fixture(scope="module")
def shown(loop_name, directory, chromium):
    """A proxy with something on each of its pages, and a browser that has a session."""
    if loop_name != "uvloop":            # once is enough, in a browser it takes seconds
        pytest.skip("the pages know no event loop")
    folder = directory("shown")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.toml").write_text(POLICY)
    shutil.copy(authority().own.certificate, folder / "ca.pem")
    database = folder / "flows.db"
    with contextlib.ExitStack() as opened:
        proxy, operator = administered(
            opened, directory("proxy"), loop_name,
            f'capture_file = "{database}"\npolicy = "{folder}/policy.toml"\n'
            f'recording_directory = "{folder}"\nca_certificate = "{folder}/ca.pem"\n'
            'capture_age = "0"\n')
        wait_until(database.exists, "the writer's file")
        fill(database, [
            row(n, url=f"http://a.test/{n}", status=200 + n, intercepted=n % 2,
                reason="response_truncated" if n % 9 == 0 else "ok")
            for n in range(1, 60)])
        record(folder, made(9), name="some")
        browser = opened.enter_context(Tab(chromium))
        browser.look(*WIDE, "light")
        browser.open(f"http://127.0.0.1:{operator.where}/traffic")
        sign_in(browser)
        yield types.SimpleNamespace(proxy=proxy, operator=operator, browser=browser)


def open_page(shown, name):
    """Opens it, and waits for what it shows."""
    browser = shown.browser
    browser.open(f"http://127.0.0.1:{shown.operator.where}/{PAGES[name]}")
    if name == "ca":
        return
    wait_until(lambda: browser.text("#state") == "live", lambda: browser.text("#state"))
    ready = {"live": "overview !== null", "traffic": "total() >= 59",
             "recordings": "!$('sessions').hidden"}[name]
    wait_until(lambda: browser.run(f"isSignedIn() && {ready}"), "its content")


@contextlib.contextmanager
def traffic(shown, make_origin, dial):
    """An open tunnel, a refusal and an answer, on the live page."""
    tunnel = dial(shown.proxy).tunnel(make_origin(echo).authority)
    tunnel.send(b"hello")
    assert tunnel.read_exact(5) == b"hello"
    with dial(shown.proxy) as client:
        assert client.get(make_origin().url()).status == 200
        assert client.get("http://127.0.0.1:1/").status == 502
    wait_until(lambda: shown.browser.run(
        "groups.size > 0 && $('rows').querySelector('button') !== null"), "rows")
    yield


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_fault(shown, make_origin, dial, name, scheme):
    """Rules of WCAG 2.2, levels A and AA, and axe's best practices."""
    assert AXE is not None and AXE.origin is not None
    browser, found = shown.browser, {}
    browser.look(*WIDE, scheme)
    open_page(shown, name)
    browser.run(Path(AXE.origin).with_name("axe.min.js").read_text())
    with contextlib.ExitStack() as stack:
        if name == "live":
            stack.enter_context(traffic(shown, make_origin, dial))
        for size in (WIDE, PHONE):
            browser.look(*size, scheme)
            found[f"{size[0]}"] = faults(shown)
        dialogs = {"live": ["ask", "drain-ask", "explain"], "traffic": ["keys-dialog"],
                   "recordings": [], "ca": []}[name]
        if name == "live":
            browser.run("document.querySelector('#groups button').click()")
            browser.run("$('explain').close()")
            browser.run("document.querySelector('#rows button').click()")
            browser.run("$('ask').close()")
        for dialog in dialogs:
            browser.run(f"$('{dialog}').showModal()")
            found[dialog] = faults(shown)
            browser.run(f"$('{dialog}').close()")
        if name == "ca":
            browser.run("document.querySelectorAll('details')"
                        ".forEach(one => { one.open = true; })")
            found["open"] = faults(shown)
    assert not any(found.values()), json.dumps(found, indent=1)
    assert browser.faults == []


def walk(browser):
    """The controls that Tab reaches, in order, and those whose focus is not seen."""
    browser.run("document.activeElement.blur()")
    stops: list[str] = []
    unseen = []
    for _ in range(200):
        browser.key(*TAB)
        stop = browser.run(STOP)
        if stop is None or (stops and stop[0] == stops[0]):
            break
        stops.append(stop[0])
        if not stop[1]:
            unseen.append(stop[0])
    return stops, unseen


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_alone_reaches_every_control(shown, make_origin, dial, name, size):
    browser = shown.browser
    browser.look(*size, "light")
    open_page(shown, name)
    with contextlib.ExitStack() as stack:
        if name == "live":
            stack.enter_context(traffic(shown, make_origin, dial))
            browser.run("look = async () => {}")     # the rows stay as they are
        stops, unseen = walk(browser)
        wanted = browser.run(f"{CONTROLS}.map({NAME})")
        assert len(wanted) > 3
        assert {*wanted} <= {*stops}, f"not reached: {sorted({*wanted} - {*stops})}"
        assert unseen == [], "their focus is not to be seen"
        if name == "traffic":
            walk_the_details(browser)
    assert browser.faults == []


def walk_the_details(browser):
    """From the list to a flow's details, through its tabs, and back."""
    browser.run("$('list').focus()")
    browser.key("ArrowDown", 40)
    wait_until(lambda: browser.run("!$('detail').hidden && flow !== null"), "a flow")
    browser.key("Enter", 13, "\r")
    reached = []
    for _ in range(12):
        browser.key(*TAB)
        reached.append(browser.run("document.activeElement.id"))
        if reached[-1] == "tab-request":
            break
    assert {"close", "replay", "copy", "compare", "one-har", "remove-one"} <= {*reached}
    for name in ("response", "timing", "messages", "decision", "notes"):
        browser.key("ArrowRight", 39)
        assert browser.run("document.activeElement.id") == f"tab-{name}"
        assert browser.run(f"$('tab-{name}').ariaSelected") == "true"
    browser.key(*TAB)
    assert browser.run("document.activeElement.id") == "panel"
    browser.key(*ESCAPE)
    assert browser.run("document.activeElement.id") == "list"
    assert browser.run("$('detail').hidden")


def test_a_session_is_begun_and_ended_by_the_keyboard(shown):
    browser = shown.browser
    browser.look(*WIDE, "light")
    open_page(shown, "recordings")
    browser.run("$('sign-out').focus()")
    browser.key("Enter", 13, "\r")
    wait_until(lambda: browser.run("!isSignedIn() && document.activeElement.id") ==
               "token", "the token's field")
    browser.send("Input.insertText", text=TOKEN)
    browser.key("Enter", 13, "\r")
    wait_until(lambda: browser.run("isSignedIn()"), "a session")
    assert browser.run("document.activeElement.id") == "sign-out"
