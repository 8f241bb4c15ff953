"""A hook in force: an operator's function, called after the rules."""

import contextlib
import textwrap

import pytest

from tests.support.client import build_request
from tests.support.origin import echo
from tests.support.policies import LOCAL
from tests.support.stream import Closed
from tests.support.wait import wait_until


@pytest.fixture
def start(start_policy):
    return start_policy


HOOK = """
    import cutthrough

    async def decide(request: cutthrough.Request) -> cutthrough.Decision:
        if request.method == "DELETE":
            raise RuntimeError("no database")
        print(request.host, flush=True)
        allow = not request.host.endswith(".2")
        return cutthrough.Decision(allow, "by the table", ttl=60)
"""


def test_a_hook_decides_about_what_the_rules_let_pass(start, make_origin, dial):
    proxy = start(LOCAL, hook=HOOK)
    origin, other = make_origin(), make_origin(host="127.0.0.2")
    echoing = make_origin(echo)
    client = dial(proxy)
    for _ in range(3):
        assert client.get(origin.url()).status == 200
    assert client.get(other.url()).status == 403
    assert client.get(other.url()).status == 403
    assert client.get("http://192.0.2.1/").status == 403
    asked = (proxy.log_path.parent / "stdout").read_text().split()
    assert asked == ["127.0.0.1", "127.0.0.2"], "once each, and not about the third"
    assert dial(proxy).tunnel(echoing.authority)


def test_a_hook_sees_the_method_behind_an_offer_to_upgrade(start, make_origin, dial):
    """It saw UPGRADE alone, and let a DELETE pass."""
    proxy, origin = start(LOCAL, hook="""
        import cutthrough

        async def decide(request):
            print(request.method, request.own_method, flush=True)
            return cutthrough.Decision(request.own_method != "DELETE")
    """), make_origin()
    offer = ("Connection: upgrade", "Upgrade: x")
    assert dial(proxy).ask("DELETE", origin.url(), *offer).status == 403
    assert dial(proxy).ask("DELETE", origin.url()).status == 403
    assert dial(proxy).get(origin.url(), *offer).status == 200
    assert dial(proxy).get(origin.url()).status == 200
    told = (proxy.log_path.parent / "stdout").read_text().splitlines()
    assert told == ["UPGRADE DELETE", "DELETE DELETE", "UPGRADE GET", "GET GET"]


def test_a_hook_that_fails_lets_nothing_pass(start, make_origin, dial):
    proxy, origin = start(LOCAL, hook=HOOK), make_origin()
    reply = dial(proxy).ask("DELETE", origin.url())
    assert reply.status == 503
    assert proxy.wait_log(1)[0]["reason"] == "policy_unavailable"
    assert "the policy hook failed (1 so far): RuntimeError: no database" in (
        proxy.stderr())
    assert not origin.received


def test_a_hook_that_hangs_is_waited_for_as_long_as_configured(
        start, make_origin, dial):
    proxy = start(LOCAL, 'policy_hook_timeout = "200ms"\n', hook="""
        import asyncio

        async def decide(request):
            await asyncio.sleep(60)
    """)
    assert dial(proxy).get(make_origin().url()).status == 503


ANSWERS = """
    import cutthrough

    async def decide(request):
        return cutthrough.Decision({}, ttl=60)
"""


def test_a_hook_whose_file_has_changed_decides_after_a_reload(start, make_origin, dial):
    """The module had been imported, and stayed as it was until the program's end."""
    proxy, origin = start(LOCAL, hook=ANSWERS.format(True)), make_origin()
    running = dial(proxy)
    assert running.get(origin.url()).status == 200
    file, before = proxy.log_path.parent / "decisions.py", proxy.worker.pid
    assert proxy.hup() == "generation 2: no changes"
    assert proxy.worker.pid == before
    file.write_text(textwrap.dedent(ANSWERS.format(False)))
    assert dial(proxy).get(origin.url()).status == 200, "not before a reload"
    assert proxy.hup() == "generation 3: the hook's code"
    # The one that drains closes a connection that has been idle for a second
    with contextlib.suppress(Closed):
        assert running.get(origin.url()).status == 403, "also in the one that drains"
    wait_until(lambda: [worker.pid for worker in proxy.workers()] != [before],
               "a new worker")
    wait_until(lambda: dial(proxy).get(origin.url()).status == 403, "it decides")


@pytest.mark.parametrize("text", ["def decide(:\n", "import sys\nsys.exit(3)\n"])
def test_a_hook_whose_file_cannot_be_used_refuses_the_reload(
        start, make_origin, dial, text):
    proxy, origin = start(LOCAL, hook=ANSWERS.format(True)), make_origin()
    file, before = proxy.log_path.parent / "decisions.py", proxy.worker.pid
    file.write_text(text)
    assert ("reload refused, generation 1 stays in force: policy_hook: "
            "decisions:decide: ") in (
        "cutthrough: " + proxy.hup())
    assert proxy.worker.pid == before
    proxy.worker.kill()
    wait_until(lambda: [worker.pid for worker in proxy.workers()] not in ([], [before]),
               "a successor")
    assert dial(proxy).get(origin.url()).status == 200, "of its generation"


def test_a_decision_under_way_is_no_answer_to_another_question(
        start, make_origin, dial):
    """A request for the same destination got that answer meanwhile, with any method and
    client address: if a GET waited, a POST passed, though the hook refuses it."""
    proxy, origin = start(LOCAL, hook="""
        import asyncio
        from cutthrough import Decision

        async def decide(request):
            await asyncio.sleep(0.2)
            return Decision(request.method == "GET")
    """), make_origin()
    first, second = dial(proxy), dial(proxy)
    first.send(build_request("GET", origin.url()))
    second.send(build_request("POST", origin.url(), "Content-Length: 0"))
    assert first.read_response().status == 200
    assert second.read_response().status == 403
    assert [request.method for request in origin.requests] == ["GET"]


def test_a_client_that_leaves_while_the_hook_decides_is_let_go(
        start, make_origin, dial):
    proxy = start(LOCAL, hook="""
        import asyncio

        async def decide(request):
            print("asked", flush=True)
            await asyncio.sleep(60)
    """)
    gone = dial(proxy)
    gone.send(build_request("GET", make_origin().url()))
    said = proxy.log_path.parent / "stdout"
    wait_until(lambda: "asked" in said.read_text(), "the question")
    gone.reset()
    proxy.wait_reason("client_reset")
