"""How quick the page /traffic is in Chromium, with the flows of a large database.

Times are from the event, which a script sends, until the page has what it asks for and
is laid out; `drawn` is until the frame after that. Frames are those of
requestAnimationFrame, of which a browser without a screen has 60 a second at most; at
`rest` they are the machine's own. `script`, `style`, `layout` and `task` (all of them)
are CPU time of the page's main thread for each act or frame, and `browser` of all
processes for a frame: other programs of the machine count little in it.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.children import BenchError
from bench.collect import cpu_times
from bench.debuggers import make_ours
from bench.micro.capture import make_json
from bench.rows import Row
from bench.running import Target
from cutthrough.storage.stores import open_store
from tests.capture.flows import row as flow_row
from tests.support.browser import PROGRAM, Browser

HOSTS, BODY_BYTES, TIMES, FILTERS = 50, 50_000, 30, 10
# Of Chromium's metrics, by our names
WORK = {"ScriptDuration": "script", "RecalcStyleDuration": "style",
        "LayoutDuration": "layout", "TaskDuration": "task"}
SCROLL_SECONDS, WHEEL_PIXELS, FRAMES = 5, 37, 60
WAIT_SECONDS = 120.0
#: The most milliseconds, by measure
GOALS = {"selection": 12.0, "filter": 45.0, "body": 60.0}
# All that is kept, and no writer that deletes or compresses beside the page
UNBOUNDED = {f"CUTTHROUGH_CAPTURE_{name}": "0" for name in ("AGE", "COUNT", "BYTES")}

#: `seen`: until this is true, after a change of the page; `timed`: from `act` until
#: `is_there`, then until it is drawn.
TOOLS = """
const seen = test => new Promise((done, fail) => {
  if (test()) return done();
  const end = then => { watch.disconnect(); then(); };
  const watch = new MutationObserver(() => { if (test()) end(done); });
  watch.observe(document.body,
    {subtree: true, childList: true, characterData: true, attributes: true});
  setTimeout(() => end(() => fail(new Error("not seen: " + test))), 60000);
});
const pause = ms => new Promise(done => setTimeout(done, ms));
const timed = async (act, isThere) => {
  await pause(50 + 50 * Math.random());      // at any time between two frames
  const begun = performance.now();
  act();
  await seen(isThere);
  document.body.offsetHeight;
  const there = performance.now() - begun;
  await new Promise(done => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  }));
  return [there, performance.now() - begun];
};
"""


class Act(NamedTuple):
    """What is timed, what comes before, and what is waited for afterwards. `N` is the
    number of the time."""

    timed: str
    before: str
    after: str = ""


SELECTION = Act("""
  () => node.click(), () => node.classList.contains("chosen") && !$("detail").hidden
    && $("detail-url").textContent.startsWith(`#${node.flow.id} `)
""", """
  const shown = [...document.querySelectorAll("#space .row:not([hidden])")]
    .sort((a, b) => a.at - b.at).slice(0, 25), node = shown[N * 7 % shown.length];
""")
FILTER = Act("""
  () => $("tools").requestSubmit(), () => {
    const nodes = [...document.querySelectorAll("#space .row:not([hidden])")];
    return nodes.length > 20 && nodes.every(node => node.flow?.host === "hN.test");
  }
""", """
  $("filter").value = "~d ^hN\\\\.test";
""", """
  await seen(() => complete_ && $("count").textContent === "ALL flows");
""")
BODY = Act("""
  () => $("tab-response").click(), () => {
    const body = document.querySelector("#response-body .shown");
    return body && !body.ariaBusy && body.textContent.length >= BYTES;
  }
""", """
  if (!$("detail-url").textContent.includes("/large")) choose(0);
  await seen(() => $("detail-url").textContent.includes("/large"));
  $("tab-request").click();
""")
SCROLLING = """
new Promise(done => {
  const times = [], list = $('list'), begun = performance.now();
  let last;
  const next = now => {
    if (last) times.push(now - last);
    last = now;
    list.scrollTop += STEP;
    if (now - begun < SECONDS) requestAnimationFrame(next); else done(times);
  };
  requestAnimationFrame(next);
})
"""


def fill(database: Path, rows: int) -> None:
    """The newest flow has a body of JSON; all words are in the index."""
    store = open_store(str(database), 0, 0, 0.0)
    for first in range(1, rows, 10_000):
        store.write([
            flow_row(n, url=f"http://h{n % HOSTS}.test/path/{n}",
                     host=f"h{n % HOSTS}.test")
            for n in range(first, min(first + 10_000, rows))])
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    text = "[" + make_json(BODY_BYTES).decode().rpartition(",\n")[0] + "]"
    store.write([flow_row(rows, url="http://h0.test/large", host="h0.test",
                          response_head=head, response_body=text)])
    while store.index(1000):
        pass
    store.close()


class Page:
    def __init__(self, browser: Browser, rows: int) -> None:
        self.browser, self.rows = browser, rows

    def wait(self, script: str) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while not self.browser.run(script):
            if time.monotonic() > until:
                raise BenchError(f"the page: {script} is not true")
            time.sleep(0.05)                 # between looks at the page

    def go_up(self) -> None:
        self.browser.run("$('list').scrollTop = 0")
        self.wait("[...document.querySelectorAll('#space .row')].some(node => "
                  "!node.hidden && node.at === 0)")

    def scroll(self, step: float) -> Row:
        """`step`: of pixels a frame, from the top on."""
        self.go_up()
        before, all_before = self._spent(), self._spent_by_all()
        times = sorted(self.browser.run(
            SCROLLING.replace("STEP", str(step))
            .replace("SECONDS", str(SCROLL_SECONDS * 1000))))
        return {"frames_per_second": len(times) / sum(times) * 1e3,
                "p95_ms": times[len(times) * 95 // 100], "max_ms": times[-1],
                **self._work(before, self._spent(), len(times)),
                "browser_ms": (self._spent_by_all() - all_before) / len(times) * 1e3,
                "pixels_a_frame": step}

    def _spent_by_all(self) -> float:
        """Seconds of CPU of all processes of the browser, those that draw too."""
        root = psutil.Process(self.browser.pid)
        return cpu_times([root, *root.children(recursive=True)]).total

    def _spent(self) -> list[float]:
        """Seconds of CPU of the main thread, in the order of WORK."""
        metrics: list[dict[str, Any]] = self.browser.send(
            "Performance.getMetrics")["metrics"]
        values = {metric["name"]: metric["value"] for metric in metrics}
        return [float(values[name]) for name in WORK]

    def _work(self, before: list[float], after: list[float], count: int) -> Row:
        return {f"{name}_ms": (now - then) / count * 1e3 for name, now, then in zip(
            WORK.values(), after, before, strict=True)}

    def _do(self, script: str, values: dict[str, int]) -> Any:
        for name, value in values.items():
            script = script.replace(name, f"{value:,}" if name == "ALL" else str(value))
        return self.browser.run(f"(async () => {{ {TOOLS} {script} }})()")

    def time(self, act: Act, count: int = TIMES, **values: int) -> Row:
        times, spent = [], [0.0] * len(WORK)
        for number in range(count):
            before = self._spent()
            times.append(self._do(
                f"{act.before} return await timed({act.timed});",
                values | {"N": number}))
            spent = [sum(parts) for parts in zip(
                spent, self._spent(), map(float.__neg__, before), strict=True)]
            if act.after:
                self._do(act.after, values)
        there, drawn = (sorted(column) for column in zip(*times, strict=True))
        # The least is the page's and the proxy's own, if the machine has other work too
        return {"ms": statistics.median(there), "least_ms": there[0],
                "max_ms": there[-1],
                "drawn_ms": statistics.median(drawn),
                **self._work([0.0] * len(WORK), spent, count), "times": count}


def measure_page(target: Target, trusted: Path, rows: int,
                 note: Callable[[str, Row], None]) -> None:
    if PROGRAM is None:
        print("the page: chromium is not installed")
        return
    ours = make_ours(target, trusted, UNBOUNDED)
    with contextlib.ExitStack() as stack:
        stack.callback(ours.running.close)
        (ours.directory / "state").mkdir(0o700)
        fill(ours.directory / "state/flows.db", rows)
        ours.start_page()
        token = (ours.directory / "state/token").read_text().strip()
        home = ours.directory / "browser"
        home.mkdir()
        browser = stack.enter_context(Browser(home))
        browser.look(1280, 900, "light")
        browser.send("Performance.enable", timeDomain="threadTicks")
        began = time.monotonic()
        browser.send("Page.navigate", url=(
            f"http://127.0.0.1:{ours.running.admin_port}/traffic#token={token}"))
        page = Page(browser, rows)
        page.wait("typeof complete_ !== 'undefined' && complete_ && "
                  f"$('count').textContent === {json.dumps(f'{rows:,} flows')}")
        note("perf_inspect_page", {"measure": "load", "rows": rows,
                                   "ms": (time.monotonic() - began) * 1e3})
        whole = rows * 24 / (SCROLL_SECONDS * FRAMES)
        for name, step in (("rest", 0), ("wheel", WHEEL_PIXELS), ("bar", round(whole))):
            note("perf_inspect_page", {"measure": f"scroll-{name}",
                                       **page.scroll(step)})
        page.go_up()
        for name, act, count, values in (
                ("selection", SELECTION, TIMES, {}),
                ("body", BODY, TIMES, {"BYTES": BODY_BYTES}),
                ("filter", FILTER, FILTERS, {"ALL": rows // HOSTS})):
            row = page.time(act, count, **values)
            note("perf_inspect_page", {"measure": name, **row, "most_ms": GOALS[name]})
        if browser.faults:
            raise BenchError(f"the page: {browser.faults[0]}")
