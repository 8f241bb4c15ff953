"""What a reconnecting client costs: `python -m bench fleet-simulation --measure`.

CPU time of a whole handshake of TLS 1.3 with an ECDSA key, from eight connections at a
time, and of a password hash of the default kind; private memory of a connection with
TLS that rests.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from pathlib import Path

import bcrypt

from bench.children import Site
from bench.collect import describe_environment
from bench.origin import Origin
from bench.running import Running, Target
from bench.tls import KINDS, Server, make_certificate, start_ours

COST = 12
REPETITIONS, SECONDS, AT_REST = 5, 1.0, 500


def measure() -> dict[str, float]:
    hashes = []
    for _ in range(REPETITIONS):
        began = time.process_time()
        bcrypt.hashpw(b"secret", bcrypt.gensalt(COST))
        hashes.append(time.process_time() - began)
    with contextlib.ExitStack() as stack:
        target = Target(Site(), stack.enter_context(Origin()).authority)
        keys = Running([], target)
        stack.callback(keys.close)
        running = start_ours(make_certificate(keys.make_directory()), target)
        stack.callback(running.close)
        server = Server("cutthrough", running, target.authority)
        server.rest(AT_REST)
        server.shake(KINDS[2], SECONDS, warm=True)
        for _ in range(REPETITIONS):
            server.shake(KINDS[2], SECONDS)
    figures = {name: statistics.median(values)
               for name, values in server.figures.items()}
    return {"handshake_us": figures["us_1.3_full"],
            "kib_at_rest_tls": figures["kib_at_rest"],
            "hash_s": statistics.median(hashes)}


def write_costs(file: Path) -> None:
    file.write_text(json.dumps(
        {"environment": describe_environment(Site()), "command":
         "python -m bench fleet-simulation --measure", "figures": measure()},
        indent=1) + "\n")
