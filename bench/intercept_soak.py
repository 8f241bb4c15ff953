"""Many requests inside opened tunnels, all captured: `python -m bench intercept-soak`.

One worker and its writer of captures keep up to 10 000 exchanges, bodies included,
while requests come: on kept tunnels, and at the end of each tenth in new ones. A row
for each tenth has the resident memory of all processes and the size of the capture's
files. Exit status 1 if a request failed, or if the last tenth has more than
MOST_GROWTH_KIB above the second: the first one fills pools and the file.
"""

from __future__ import annotations

import contextlib
import time

from bench.children import Site
from bench.collect import resident_kib
from bench.intercept import Opener, start_ours
from bench.origin import Origin
from bench.rows import Row, format_row
from bench.running import Target

STEPS = 10
SECONDS = 2.0               # of one run of the client
NEW_SECONDS = 1.0
MOST_GROWTH_KIB = 16384


def run_soak(exchanges: int) -> int:
    """`exchanges`: in all."""
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(Origin())
        target = Target(Site(), origin.authority_of("tls"))
        trusted = origin.directory / "origin.pem"
        running = start_ours('capture = "full"', target, trusted)
        stack.callback(running.close)
        name = f"localhost:{target.authority.rpartition(':')[2]}"
        opener = Opener("cutthrough-full", running, name, "this tree")
        folder = running.directory
        assert folder is not None
        rows: list[Row] = []
        began = time.monotonic()
        for step in range(1, STEPS + 1):
            while opener.done < exchanges * step / STEPS:
                opener.request("kept", SECONDS)
            opener.request("new", NEW_SECONDS)
            rows.append({
                "exchanges": opener.done, "seconds": time.monotonic() - began,
                "rss_kib": resident_kib(running.tree()),
                "files_mib": sum(one.stat().st_size for one in folder.glob("flows.db*"))
                / 2**20})
            print(format_row("perf_intercept_soak", rows[-1]), flush=True)
    growth = int(rows[-1]["rss_kib"]) - int(rows[1]["rss_kib"])
    print(format_row("perf_intercept_soak_end", {
        "growth_kib": growth, "allowed_kib": MOST_GROWTH_KIB, "failed": opener.failed}))
    return 1 if opener.failed or growth > MOST_GROWTH_KIB else 0
