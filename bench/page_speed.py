"""How quick the page /traffic is in Chromium, with the flows of a large database.

Times are from the event, which a script sends, until the page has what it asks for and
is laid out; `drawn` is until the frame after that. Frames are those of
requestAnimationFrame, of which a browser without a screen has 60 a second at most;
`work` is the main thread's time for each; at `rest` they are the machine's own.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.children import BenchError
from bench.debuggers import make_ours
from bench.micro.capture import make_json
from bench.rows import Row
from bench.running import Target
from cutthrough.storage.stores import open_store
from tests.capture.flows import row as flow_row
from tests.support.browser import PROGRAM, Browser

HOSTS, BODY_BYTES, TIMES, FILTERS = 50, 50_000, 30, 10
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
SELECTION = """
const shown = [...document.querySelectorAll("#space .row:not([hidden])")]
  .sort((a, b) => a.at - b.at).slice(0, 25);
for (let i = 0; i < TIMES; i++) {
  const node = shown[i * 7 % shown.length], mark = `#${node.flow.id} `;
  times.push(await timed(() => node.click(), () => node.classList.contains("chosen")
    && !$("detail").hidden && $("detail-url").textContent.startsWith(mark)));
}
"""
FILTER = """
for (let i = 0; i < TIMES; i++) {
  const host = `h${i % HOSTS}.test`;
  $("filter").value = `~d ^h${i % HOSTS}\\\\.test`;
  times.push(await timed(() => $("tools").requestSubmit(), () => {
    const nodes = [...document.querySelectorAll("#space .row:not([hidden])")];
    return nodes.length > 20 && nodes.every(node => node.flow?.host === host);
  }));
  await seen(() => complete_ && $("count").textContent === "ALL flows");
}
"""
BODY = """
choose(0);
await seen(() => $("detail-url").textContent.includes("/large"));
for (let i = 0; i < TIMES; i++) {
  $("tab-request").click();
  times.push(await timed(() => $("tab-response").click(), () => {
    const body = document.querySelector("#response-body .shown");
    return body && !body.ariaBusy && body.textContent.length >= BYTES;
  }));
}
"""
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
        before = self._work()
        times = sorted(self.browser.run(
            SCROLLING.replace("STEP", str(step))
            .replace("SECONDS", str(SCROLL_SECONDS * 1000))))
        work = (self._work() - before) / len(times) * 1e3
        return {"frames_per_second": len(times) / sum(times) * 1e3,
                "p95_ms": times[len(times) * 95 // 100], "max_ms": times[-1],
                "work_ms": work, "pixels_a_frame": step}

    def _work(self) -> float:
        """Seconds of the main thread."""
        metrics: list[dict[str, Any]] = self.browser.send(
            "Performance.getMetrics")["metrics"]
        values = {metric["name"]: metric["value"] for metric in metrics}
        return float(values["TaskDuration"])

    def time(self, script: str, **values: int) -> Row:
        for name, value in {"TIMES": TIMES, **values}.items():
            script = script.replace(name, f"{value:,}" if name == "ALL" else str(value))
        times = self.browser.run(
            f"(async () => {{ const times = []; {TOOLS} {script} return times; }})()")
        there, drawn = (sorted(column) for column in zip(*times, strict=True))
        # The least is the page's and the proxy's own, if the machine has other work too
        return {"ms": statistics.median(there), "least_ms": there[0],
                "max_ms": there[-1],
                "drawn_ms": statistics.median(drawn), "times": len(times)}


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
        browser.send("Performance.enable")
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
        for name, script, values in (
                ("selection", SELECTION, {}), ("body", BODY, {"BYTES": BODY_BYTES}),
                ("filter", FILTER,
                 {"TIMES": FILTERS, "HOSTS": HOSTS, "ALL": rows // HOSTS})):
            row = page.time(script, **values)
            note("perf_inspect_page", {"measure": name, **row, "most_ms": GOALS[name]})
        if browser.faults:
            raise BenchError(f"the page: {browser.faults[0]}")
