"""Filters and hooks that raise what is no Exception: workers and requests go on."""

import os
import signal

import pytest

from tests.e2e.conftest import with_policy
from tests.support.client import build_request
from tests.support.policies import LOCAL
from tests.support.users import basic
from tests.support.wait import wait_until

PRINTING = LOCAL.replace("[[rules]]", """
    [filters.p]
    code = "prints:Prints"

    [[rules]]
    filters = ["p"]
""", 1)

RAISES = """
    import asyncio

    class Failure(BaseException):
        pass

    FAULTS = {"/key": KeyboardInterrupt, "/fail": Failure, "/mute": GeneratorExit,
              "/cancel": asyncio.CancelledError}

    def fail(flow, hook):
        if hook == flow.request.headers.get("X-Hook"):
            raise FAULTS[flow.request.path]

    class Cancels:
        async def on_request_head(self, flow):
            if flow.request.path == "/request":
                asyncio.current_task().cancel()
            await asyncio.sleep(0)

        async def on_response_head(self, flow):
            if flow.request.path == "/response":
                asyncio.current_task().cancel()
            await asyncio.sleep(0)

    class AtOnce:
        async def on_request_head(self, flow):
            fail(flow, "request")

        async def on_response_head(self, flow):
            fail(flow, "response")

    class Later:
        async def on_request_head(self, flow):
            await asyncio.sleep(0)
            fail(flow, "late request")

        async def on_response_head(self, flow):
            await asyncio.sleep(0)
            fail(flow, "late response")

        async def on_end(self, flow):
            await asyncio.sleep(0)
            fail(flow, "end")

    class Whole:
        async def on_response_body(self, flow, body):
            fail(flow, "body")

    class Pieces:
        async def on_request_body(self, flow, pieces):
            async for piece in pieces:
                fail(flow, "piece")
                yield piece
"""
FILTERS = ["AtOnce", "Later", "Whole", "Pieces"]


def test_no_filter_ends_a_worker_or_makes_a_request_wait(
        start_policy, make_origin, dial):
    tables = "".join(f'[filters.{name}]\ncode = "raises:{name}"\n' for name in FILTERS)
    proxy = start_policy(
        f'{tables}[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
        f"filters = {FILTERS!r}\n", modules={"raises": RAISES})
    origin, worker = make_origin(), proxy.worker.pid
    for hook in ("request", "response", "late request", "late response", "end", "body",
                 "piece"):
        for path in ("/key", "/fail", "/mute", "/cancel"):
            reply = dial(proxy).ask("POST", origin.url(path), f"X-Hook: {hook}",
                                    "Content-Length: 2", body=b"up")
            assert reply.status == (200 if hook == "end" else 502), (hook, path)
    assert {record["reason"] for record in proxy.wait_log(28)} == {
        "ok", "filter_failed"}
    assert proxy.worker.pid == worker


def test_a_task_that_an_operator_s_code_cancels_ends_its_request(
        start_policy, make_origin, dial):
    """It waited for a deadline of its state, and told the log of a budget."""
    proxy = start_policy(PRINTING.replace("prints:Prints", "raises:Cancels"),
                         modules={"raises": RAISES})
    origin = make_origin()
    for path, status in (("/request", 502), ("/response", 502), ("/", 200)):
        assert dial(proxy).get(origin.url(path)).status == status
    assert proxy.stderr().count("failed in its task") == 2


LEAVES = """
    import asyncio, sys

    async def leave():
        sys.exit(3)

    class Leaves:
        async def on_request_head(self, flow):
            asyncio.create_task(leave())
"""


def test_a_task_of_a_filter_s_own_ends_no_worker(start_policy, make_origin, dial):
    """Its sys.exit ended the worker's loop, with all its connections."""
    proxy = start_policy(PRINTING.replace("prints:Prints", "leaves:Leaves"),
                         modules={"leaves": LEAVES})
    origin, worker = make_origin(), proxy.worker.pid
    client = dial(proxy)
    for _ in range(3):
        assert client.get(origin.url("/")).status == 200
    wait_until(lambda: "the event loop goes on" in proxy.stderr(),
               proxy.stderr)
    assert proxy.worker.pid == worker


LOGINS = """
    import asyncio

    async def verify(name, password):
        if password == "task":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        raise asyncio.CancelledError if password == "cancel" else KeyboardInterrupt
"""


def test_a_login_is_answered_whatever_the_hook_raises(start_policy, make_origin, dial):
    proxy = start_policy(LOCAL, 'auth_hook = "logins:verify"\n',
                         modules={"logins": LOGINS})
    origin, worker = make_origin(), proxy.worker.pid
    for password in ("cancel", "key", "task"):
        reply = dial(proxy).get(origin.url(), auth=basic(f"ann:{password}"))
        assert reply.status == 503
    assert [record["reason"] for record in proxy.wait_log(3)] == [
        "policy_unavailable"] * 3
    assert proxy.worker.pid == worker


NAMES = """
    import asyncio

    async def find(host, port, user):
        if host == "task.example":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        raise asyncio.CancelledError if host == "cancel.example" else KeyboardInterrupt
"""


def test_a_name_is_answered_whatever_the_hook_raises(start_policy, make_origin, dial):
    proxy = start_policy(LOCAL, 'dns_hook = "names:find"\n', modules={"names": NAMES})
    origin, worker = make_origin(), proxy.worker.pid
    for host in ("cancel.example", "key.example", "task.example"):
        assert dial(proxy).get(f"http://{host}:{origin.port}/").status == 502
    assert [record["reason"] for record in proxy.wait_log(3)] == ["dns_error"] * 3
    assert proxy.worker.pid == worker


ENDLESS = {"task": """
    import asyncio

    async def find(host, port, user):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
""", "thread": """
    import asyncio
    import threading

    async def find(host, port, user):
        await asyncio.to_thread(threading.Event().wait)
"""}


@pytest.mark.parametrize("kind", ENDLESS)
def test_code_that_does_not_end_keeps_no_worker(start_policy, make_origin, dial, kind):
    """The worker, without connections, was killed at the end of `drain_timeout`."""
    proxy = start_policy(
        LOCAL, 'dns_hook = "names:find"\ndns_timeout = "100ms"\n'
        'drain_timeout = "1h"\n', modules={"names": ENDLESS[kind]})
    client = dial(proxy)
    assert client.get(f"http://a.example:{make_origin().port}/").status == 504
    client.close()
    proxy.process.terminate()
    proxy.process.wait(60)
    if kind == "thread":                # the task was left, with its call
        assert "ended without the operator's code" in proxy.stderr()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_short_end_is_a_clean_one(start_policy, make_origin, dial, kind, end):
    """The worker waited longer than the supervisor did, which killed it: "does not
    answer", and the exit status was 1."""
    proxy = start_policy(
        LOCAL, 'dns_hook = "names:find"\ndns_timeout = "100ms"\n'
        'drain_timeout = "2s"\n', modules={"names": ENDLESS[kind]})
    client = dial(proxy)
    assert client.get(f"http://a.example:{make_origin().port}/").status == 504
    proxy.signal(end)
    assert proxy.wait_exit() == 0
    assert "killed" not in proxy.stderr()


STUBBORN = """
    import asyncio, sys

    class Prints:
        async def on_request_head(self, flow):
            print("began", flow.request.path, file=sys.stderr, flush=True)
            for task in asyncio.all_tasks() if flow.request.path == "/all" else ():
                task.cancel()
            while flow.request.path == "/stay":
                try:
                    await asyncio.sleep(1)
                except BaseException:
                    pass
"""


@pytest.mark.parametrize("number", [1, 2])
def test_stubborn_code_is_left_at_the_end(start_policy, make_origin, dial, number):
    """Nothing ended it, in Python's finalization; behind the second signal the worker
    waited as long as for the first. It was killed."""
    proxy = start_policy(PRINTING, 'drain_timeout = "2s"\n',
                         modules={"prints": STUBBORN})
    client = dial(proxy)
    client.send(build_request("GET", make_origin().url("/stay")))
    wait_until(lambda: "began /stay" in proxy.stderr(), proxy.stderr)
    for at in (signal.SIGTERM, signal.SIGQUIT)[:number]:
        proxy.signal(at)
    assert proxy.wait_exit() == 0
    assert "killed" not in proxy.stderr()


def test_code_that_cancels_all_tasks_ends_no_worker(start_policy, make_origin, dial):
    proxy = start_policy(PRINTING, modules={"prints": STUBBORN})
    origin, worker, client = make_origin(), proxy.worker.pid, dial(proxy)
    for path in ("/all", "/", "/all", "/"):
        client.get(origin.url(path))         # that of /all itself may fail
    assert client.get(origin.url("/")).status == 200
    assert "cancels its tasks" in proxy.stderr()
    assert proxy.worker.pid == worker
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0


def test_a_thread_of_a_module_keeps_neither_worker_nor_program(
        start_policy, make_origin, dial):
    """Both had imported the module, and Python waited for its thread: the worker was
    killed at the end of `drain_timeout`, and the program stayed."""
    proxy = start_policy(
        LOCAL, 'dns_hook = "names:find"\ndrain_timeout = "1h"\n', executed=True,
        modules={"names": """
            import threading

            threading.Thread(target=threading.Event().wait).start()

            def find(host, port, user):
                return ["127.0.0.1"]
        """})
    client = dial(proxy)
    assert client.get(f"http://a.example:{make_origin().port}/").status == 200
    client.close()
    proxy.process.terminate()
    assert proxy.process.wait(60) == 0
    assert proxy.stderr().count("ended without the operator's code") == 2


FORGES = """
    class Forges:
        def __del__(self):
            raise ValueError("x\\ncutthrough: forged")

    class Prints:
        async def on_request_head(self, flow):
            Forges()
"""


def test_what_nobody_can_raise_is_one_message_of_the_log(
        start_policy, make_origin, dial):
    """Python wrote its text as it was, and as often as it came (R37)."""
    proxy = start_policy(PRINTING, modules={"prints": FORGES})
    client, url = dial(proxy), make_origin().url()
    for _ in range(20):
        assert client.get(url).status == 200
    said = proxy.stderr().splitlines()
    assert sum("has no handler, in Forges.__del__: ValueError" in line
               for line in said) == 10
    assert "cutthrough: forged" not in said


PRINTS = """
    class Prints:
        async def on_request_head(self, flow):
            print("x" * 5000)
"""


def test_a_filter_that_prints_waits_for_no_reader(
        loop_name, directory, make_origin, dial):
    """It waited for room in a pipe, and every connection of its worker with it."""
    folder = directory("proxy")
    os.mkfifo(folder / "stdout")
    # Nobody reads it. Its capacity is 64 KiB, and the filter prints more
    reader = os.open(folder / "stdout", os.O_RDWR | os.O_NONBLOCK)
    try:
        with with_policy(folder, loop_name, PRINTING, modules={"prints": PRINTS},
                         executed=True) as proxy:
            client, url = dial(proxy), make_origin().url()
            assert {client.get(url).status for _ in range(40)} == {200}
            assert os.read(reader, 5001) == b"x" * 5000 + b"\n"
            client.close()
    finally:
        os.close(reader)


FORKS = """
    import os
    import signal

    class Forks:
        async def on_request_head(self, flow):
            if flow.request.path == "/fork":
                self.child = os.fork()
                if self.child == 0:
                    signal.pause()
                flow.respond(200)
            elif flow.request.path == "/end":
                os.kill(self.child, signal.SIGTERM)
                _, status = os.waitpid(self.child, 0)
                flow.respond(200, str(os.waitstatus_to_exitcode(status)).encode())
"""


def test_a_fork_of_a_worker_has_none_of_its_sockets_and_signals(
        start_policy, make_origin, dial):
    """Clients did not see the end of their connections; SIGTERM replaced the worker,
    and the fork went on."""
    proxy = start_policy(
        PRINTING.replace("prints:Prints", "forks:Forks"), 'keepalive_timeout = "1s"\n',
        modules={"forks": FORKS})
    idle, url, worker = dial(proxy), make_origin().url(), proxy.worker.pid
    assert idle.get(url).status == 200
    assert dial(proxy).get(f"{url}fork").status == 200
    assert idle.at_eof()
    assert dial(proxy).get(f"{url}end").body == b"-15"
    assert proxy.worker.pid == worker
    assert "has a signal to end" not in proxy.stderr()
