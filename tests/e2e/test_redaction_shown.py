"""Secrets that have passed are in no answer to a model, and on no page."""

import json

import pytest

from tests.support.admin import TOKEN
from tests.support.browser import needs_chromium
from tests.support.client import PASSWORD, USER
from tests.support.mcp_tools import ask, served
from tests.support.secrets import BODIES, Secretive, leaks, serve
from tests.support.traffic import WIDE, Page
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


REPLAYED = (1, 2, 4, 9)


@pytest.fixture
def filled(loop_name, directory, opened, tmp_path, make_origin, dial):
    """A proxy through which secrets have passed."""
    def run(mode="record"):
        made = Secretive(opened, directory("proxy"), loop_name, tmp_path / "made", mode)
        made.fill(dial, make_origin(serve))
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "password").write_text(PASSWORD)
        return made
    return run


# Tools without arguments that are needed; those that change say what they miss
NAMED_ALONE = (
    "open_flows", "statistics", "failures", "reads", "export_har", "metrics",
    "held_messages", "show_held", "decide_held", "arm_breakpoints", "replay_misses",
    "sessions", "proxy_status", "trace_connection", "send_request", "stop_capture",
    "start_capture", "trust_stores")


async def anew(client, number):
    """What a replay needs: a URL and a body without stand-ins."""
    url = (await ask(client, "show_flow", id=number))["url"]
    return {"id": number, "url": url.replace("[redacted]", "other"), "body": "a"}


async def answers_of(client):
    """Answers of the tools that show flows, by tool and arguments."""
    said = {}

    async def take(name, **given):
        result = await client.call_tool(name, given)
        said[f"{name} {given}"] = "".join(one.text for one in result.content).encode()
        return result

    await take("list_flows")
    await take("search_flows", words="token")
    await take("hosts")
    await take("slowest_flows")
    for number in range(1, len(BODIES) + 1):
        await take("show_flow", id=number)
        for side in ("request", "response"):
            await take("read_body", id=number, side=side)
        if number in REPLAYED:
            await take("replay_flow", id=number)
            await take("replay_flow", **await anew(client, number))
    return said


@pytest.mark.parametrize("mode", ["record", "cache"])
async def test_no_secret_is_in_an_answer_to_a_model(filled, tmp_path, mode):
    """R79, R82: by the admin listener, replays of both kinds of recordings too."""
    made = filled(mode)
    log = made.folder / "access"
    async with served(
            "--admin", f"127.0.0.1:{made.operator.where}", "--token-file",
            tmp_path / "token", "--allow-writes", "--user", USER, "--log", log,
            "--password-file", tmp_path / "password", "-c", made.proxy.config_file
            ) as client:
        said = await answers_of(client)
        found = await ask(client, "replay_flow", **await anew(client, 1))
        assert json.loads(found["body"])["password"] == "[redacted]"
        for name, given in (
                *((name, {}) for name in NAMED_ALONE),
                ("copy_flow", {"id": 1}), ("read_messages", {"id": 1}),
                ("diff_flows", {"id": 1, "other": 2}), ("connections", {}),
                ("recordings", {"session": "default"}), ("suggest", {}),
                ("delete_flow", {"id": 2}),
                ("tag_flow", {"id": 1, "tag": "a"}), ("cut_connection", {"id": "0-1"}),
                ("explain", {"method": "GET", "target": "http://127.0.0.1/"})):
            result = await client.call_tool(name, given)
            said[name] = "".join(one.text for one in result.content).encode()
        tools = {one.name for one in (await client.list_tools()).tools}
        assert {name.split()[0] for name in said} == tools
    assert not leaks(said)


async def test_a_replay_without_a_listener_is_redacted_by_the_configuration(
        filled, tmp_path):
    """R79: before, credentials alone went."""
    made = filled()
    words = ("--db", made.database, "--allow-writes", "--user", USER, "--password-file",
             tmp_path / "password", "--proxy", f"127.0.0.1:{made.proxy.port}")
    async with served(*words, "-c", made.proxy.config_file) as client:
        said = await answers_of(client)
        found = await ask(client, "replay_flow", **await anew(client, 1))
        assert json.loads(found["body"])["password"] == "[redacted]"
    async with served(*words) as client:
        found = await ask(client, "replay_flow", **await anew(client, 1))
        assert found["status"] == 200 and "start with -c" in found["body"]
        said["without -c"] = json.dumps(found).encode()
    assert not leaks(said)


# Texts, attributes, values and storage
EVERYTHING = """(() => {
  const texts = [document.documentElement.outerHTML, location.href, document.title,
    JSON.stringify(history.state), document.cookie];
  for (const one of document.querySelectorAll('input, textarea, select'))
    if (one.id !== 'token' && one.type !== 'password') texts.push(one.value);
  for (const store of [localStorage, sessionStorage])
    for (let i = 0; i < store.length; i++)
      texts.push(store.key(i) + '=' + store.getItem(store.key(i)));
  return texts.join('\\n');
})()"""


@needs_chromium
@pytest.mark.dials_out                       # Chromium checks if IPv6 has a route
def test_no_secret_is_on_a_page(filled, browse, loop_name):
    """R79: in each view of each flow, in attributes, fields and storage."""
    if loop_name != "uvloop":
        pytest.skip("the page knows no event loop: once is enough")
    made = filled()
    browser = browse()
    browser.look(*WIDE, "light")
    where = f"http://127.0.0.1:{made.operator.where}"
    browser.open(f"{where}/traffic")
    page = Page(made.proxy, made.operator, browser, made.database)
    page.enter()
    page.wait_rows(len(BODIES))
    seen = {"list": browser.run(EVERYTHING)}
    for i in range(len(BODIES)):
        number = page.open(i)
        tabs = browser.run("[...document.querySelectorAll('[id^=tab-]')]"
                           ".filter(one => !one.hidden).map(one => one.id.slice(4))")
        assert len(tabs) >= 3
        for tab in tabs:
            page.tab(tab)
            seen[f"{number} {tab}"] = browser.run(EVERYTHING)
            for side in ("request", "response"):
                names = browser.run(
                    f"[...document.querySelectorAll('#{side}-body .bar button')]"
                    ".map(one => one.textContent)")
                for name in names:
                    page.view(side, name)
                    seen[f"{number} {tab} {side} {name}"] = browser.run(EVERYTHING)
    assert any("[redacted]" in text for text in seen.values())
    for name in ("recordings", ""):
        browser.open(f"{where}/{name}")
        wait_until(lambda: browser.run("document.readyState") == "complete", name)
        seen[f"/{name}"] = browser.run(EVERYTHING)
    assert not leaks({name: text.encode() for name, text in seen.items()})
    assert browser.faults == []
