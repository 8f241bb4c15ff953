"""A worker prepares a generation, then commits it or leaves no trace of it (R73)."""

import asyncio
import contextlib
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cutthrough.config.settings import load
from cutthrough.generation import operator_code
from cutthrough.generation.checks import complete
from cutthrough.generation.generation import Generation
from cutthrough.generation.policy_files import load_policy
from cutthrough.net.listener import listen
from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.context import TlsContext
from cutthrough.tape.ring import RING_BYTES, Ring
from cutthrough.tape.ring_room import size_for
from cutthrough.worker import parent_checks as checks
from cutthrough.worker import (
    parts,
    recordings,
    tls_interception,
    tls_listeners,
    transaction,
)
from cutthrough.worker import tls_parents as parents
from cutthrough.worker.worker import Pages, Worker
from tests.support.certificates import authority, localhost
from tests.support.client import PASSWORD, USER, build_request

CODE = """
class Change:
    async def on_request_head(self, flow):
        return None

class Hooks:
    def on_record(self, recording):
        return recording

async def decide(request):
    import cutthrough
    return cutthrough.Decision(allow=True, ttl={ttl})
"""


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """Everything that a generation can be made of."""
    own = authority().own
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / "ca.pem").write_bytes(own.certificate.read_bytes())
    (tmp_path / "ca" / "ca.key").write_bytes(own.key.read_bytes())
    (tmp_path / "ca" / "ca.key").chmod(0o600)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kept_code", raising=False)    # another test's
    monkeypatch.setattr(operator_code, "_executed", {})
    return tmp_path


def make(folder: Path, number: int) -> Generation:
    """Generation 1 denies everything; each of the others differs in every part."""
    made = localhost()
    action = "deny" if number == 1 else "allow"
    (folder / "kept_code.py").write_text(CODE.format(ttl=number))
    (folder / "policy.toml").write_text(f"""
[limits.default]
connections = {100 + number}
[filters.change]
code = "kept_code:Change"
[[rules]]
action = "{action}"
addresses = ["127.0.0.0/8"]
{'filters = ["change"]' if number > 1 else ""}
[[rules]]
action = "allow"
hosts = ["x{number}.example"]
recording = "record"
capture = "full"
""")
    (folder / "config.toml").write_text(f"""
user = "{USER}"
password = "{PASSWORD}"
access_log = "off"
policy = "{folder}/policy.toml"
policy_hook = "kept_code:decide"
recording_directory = "{folder}/recordings"
recording_hooks = "kept_code:Hooks"
capture_file = "{folder}/capture.db"
intercept_ca = "{folder}/ca"
intercept_http2 = "{'auto' if number == 1 else 'off'}"
head_timeout = "{number}s"
max_line = {8000 + number}
[[listeners]]
address = "127.0.0.1:0"
pac = true
pac_direct = ["d{number}.example"]
[[listeners]]
address = "127.0.0.2:0"
protocols = ["tls", "http"]
certificates = ["{made.certificate}"]
certificate_keys = ["{made.key}"]
[parents.p{number}]
url = "http://127.0.0.1:9"
check = "c{number}.example:443"
check_tls = {"true" if number > 1 else "false"}
standby = 1
[parents.q{number}]
url = "https://localhost:9"
ca = "{authority().own.certificate}"
server_name = "q{number}.example"
[sources.s{number}]
addresses = ["127.0.0.{number}"]
[recording_routes.r{number}]
hosts = ["x{number}.example"]
""")
    config = load([], {}, str(folder / "config.toml"))
    return complete(Generation(number, config, load_policy(config)))


@contextlib.asynccontextmanager
async def running(files: Path) -> Any:
    first = make(files, 1)
    sockets = [*listen(("127.0.0.1", 0)), *listen(("127.0.0.2", 0))]
    reads, wakes = os.pipe2(os.O_NONBLOCK)
    ring = Ring(mmap.mmap(-1, RING_BYTES), wakes, size_for(1))
    worker = Worker(first, Pages(ring=ring), slot=0, listeners=sockets)
    await worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        for sock in sockets:
            sock.close()
        os.close(reads)
        os.close(wakes)
        await worker.resolver.close()


def state_of(worker: Worker) -> dict[str, Any]:
    """The worker's state of a generation, and the state of the process's tables."""
    context, made = worker.context, worker.parts
    free = tls.put(TlsContext())
    tls.remove(free)
    state: dict[str, Any] = {
        name: repr(getattr(context, name)) for name in (
            "observer", "answer_cache", "player", "room", "recording", "sources",
            "standbys", "pacs")}
    for part in (made.tls, made.interception, made.tls_parents, made.checks,
                 made.standby, made.rows, made.recordings):
        state |= {f"{type(part).__name__}.{name}": repr(value)
                  for name, value in vars(part).items()
                  if name not in ("results", "_checks_written", "_written")}
    if context.player is not None:
        state["settings"] = repr(vars(context.player)["_settings"])
    return state | {
        "generation": worker.generation.number, "free number": free,
        "parents": len(context.parents.standings), "streams": worker.leaks()["streams"],
        "sources": repr(made.sources.by_number), "code": id(sys.modules["kept_code"])}


async def status(worker: Worker) -> int:
    port = worker._listeners[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(build_request("GET", "http://127.0.0.1:1/"))
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


class Fault(Exception):
    """Of no kind that any code expects."""


def calls(worker: Worker, generation: Generation, fails_at: int = 0) -> int:
    """Prepares the generation, and raises Fault at this call of a function. Returns how
    many were called. Those that note steps to be undone cannot fail."""
    count = 0

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call") and frame.f_code.co_filename not in NOTES:
            count += 1
            if count == fails_at:
                raise Fault

    sys.setprofile(on_event)
    try:
        made = worker.prepare(generation)
    finally:
        sys.setprofile(None)
    made.discard()
    return count


# The last call is this module's own, which ends the counting
NOTES = (transaction.__file__, contextlib.__file__, __file__)

STEPS: list[tuple[Any, str]] = [
    (parts, "make_snapshot"), (parts, "Limiter"), (parts, "make_pac"),
    (parts, "prepare_records"), (parts, "costly_codes"), (parts, "SourceNumbers"),
    (tls_interception, "make_interceptor"), (tls_listeners, "make_server"),
    (parents, "make_client"), (checks, "make_checker"), (checks, "identity"),
    (recordings, "make_hooks")]


@pytest.mark.parametrize("module, name", STEPS, ids=[name for _, name in STEPS])
def test_a_part_that_fails_leaves_every_other_part_as_it_was(
        files, monkeypatch, module, name):
    async def main() -> None:
        async with running(files) as worker:
            second = make(files, 2)
            before = state_of(worker)

            def fail(*_: object, **__: object) -> None:
                raise Fault(name)

            monkeypatch.setattr(module, name, fail)
            if name == "SourceNumbers":
                monkeypatch.setattr(type(worker.parts.sources), "copy", fail)
            with pytest.raises(Fault):
                worker.swap(second)
            assert state_of(worker) == before
            assert await status(worker) == 403, "its rules are the old ones"

    asyncio.run(main())


def spread(count: int, most: int = 400) -> Iterator[int]:
    """Every number up to `count`, or `most` of them."""
    return iter(range(1, count + 1, max(1, count // most)))


def test_a_fault_at_any_call_leaves_everything_as_it_was(files):
    async def main() -> None:
        async with running(files) as worker:
            second = make(files, 2)
            calls(worker, second)            # modules are imported
            before = state_of(worker)
            count = calls(worker, second)
            assert count > 200
            failed = 0
            for n in spread(count):
                with contextlib.suppress(Exception):
                    failed += 1
                    calls(worker, second, n)
                    failed -= 1
                assert state_of(worker) == before, f"call {n} of {count}"
            assert failed > 50
            assert await status(worker) == 403
            worker.swap(second)
            assert await status(worker) == 502, "nobody listens there"

    asyncio.run(main())


def test_a_commit_puts_every_part_in_force(files):
    async def main() -> None:
        async with running(files) as worker:
            before = state_of(worker)
            worker.swap(make(files, 2))
            after = state_of(worker)
            same = {name for name in before if before[name] == after[name]}
            assert not same & {
                "generation", "pacs", "settings", "sources", "standbys", "code",
                "TlsInterception._digest", "ParentRows._in_force"}
            assert await status(worker) == 502

    asyncio.run(main())
