"""Floods of questions, to name servers and to the hook, of clients that do not wait.

No other client is refused for them, and nothing of them is left (R31, R32).
"""

import base64
import contextlib
import socket
import struct

import bcrypt
import pytest

from cutthrough.generation.hook import MOST_QUESTIONS
from cutthrough.net.dns.resolver import MOST_LOST, MOST_OPEN
from tests.support.admin import Operator
from tests.support.client import build_request
from tests.support.dns import NameServer, Silence
from tests.support.limits import retry_after
from tests.support.policies import LOCAL
from tests.support.wait import wait_until

RESET = struct.pack("ii", 1, 0)
BOB = "Basic " + base64.b64encode(b"bob:one").decode()
USERS = LOCAL + f"""
    [users.bob]
    password = "{bcrypt.hashpw(b"one", bcrypt.gensalt(4)).decode()}"
"""


@pytest.fixture
def names(opened):
    try:
        server = NameServer(Silence({"near.test": "127.0.0.1"}))
    except PermissionError:  # not root, and no capability in the namespace
        pytest.skip("port 53 of a loopback address may not be bound")
    return opened.enter_context(server)


@pytest.fixture
def start(start_policy, tmp_path):
    """A proxy, and an operator that reads its metrics."""
    def make(policy, config="", **more):
        path = tmp_path / "admin"
        proxy = start_policy(policy, f'admin = "unix:{path}"\n' + config, **more)
        wait_until(path.exists, "the socket")
        return proxy, Operator(str(path))
    return make


@contextlib.contextmanager
def callers(proxy, n, target="n%d.test:443"):
    """So many clients that have asked and wait; they are closed by a reset."""
    with contextlib.ExitStack() as stack:
        found = []
        for i in range(n):
            sock = stack.enter_context(
                socket.create_connection(("127.0.0.1", proxy.port)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            authority = target % i if "%" in target else target
            sock.sendall(build_request("CONNECT", authority, host=authority))
            found.append(sock)
        yield found


def waiting(operator, state, n):
    wait_until(lambda: operator.metrics()[f'connections{{state="{state}"}}'] == n,
               lambda: f"{n} connections in {state}: {operator.metrics()}")


def test_names_that_nobody_answers_of_clients_that_reset_are_dropped(
        start, names, make_origin, dial):
    """45 000 such questions in 15 s stayed open, took 300 MB and hung the worker."""
    origin = make_origin()
    proxy, operator = start(
        USERS, f'resolvers = ["{names.address}"]\ndns_timeout = "20s"\n'
        "dns_cache_entries = 100000\n")
    for turn in range(5):
        with callers(proxy, 300, f"n{turn}-%d.test:443"):
            waiting(operator, "resolve", 300)
            reply = dial(proxy).get(f"http://near.test:{origin.port}/", auth=BOB)
            assert reply.status == 200
    dropped = 'dns_queries_total{result="dropped"}'
    wait_until(lambda: operator.metrics()[dropped] == 1500, "1500 dropped")
    wait_until(lambda: operator.metrics()["dns_open_questions"] < 300, "places free")
    assert operator.metrics()['dns_queries_total{result="refused"}'] == 0


@pytest.mark.any_loop
def test_questions_of_clients_that_reset_are_not_asked_again(start, names):
    """The name server got all 600 a second time, though no client waited for one."""
    proxy, operator = start(
        USERS, f'resolvers = ["{names.address}"]\ndns_timeout = "9s"\n')
    with callers(proxy, 600):
        waiting(operator, "resolve", 600)
    waiting(operator, "resolve", 0)
    asked = list(names.asked)
    with callers(proxy, 1, "last%d.test:443"):
        wait_until(lambda: names.asked.count("last0.test") > 1, "its second try")
    assert len(set(asked) & set(names.asked[len(asked):])) <= MOST_LOST


def test_names_that_nobody_answers_take_the_share_of_one_user(
        start, names, make_origin, dial):
    origin = make_origin()
    proxy, operator = start(
        USERS, f'resolvers = ["{names.address}"]\ndns_timeout = "20s"\n')
    with callers(proxy, MOST_OPEN // 2):
        waiting(operator, "resolve", MOST_OPEN // 2)
        client = dial(proxy)
        refused = client.get("http://one.more.test/")
        assert (refused.status, retry_after(refused)) == (429, 1)
        reply = dial(proxy).get(f"http://near.test:{origin.port}/", auth=BOB)
        assert reply.status == 200
        proxy.wait_reason("question_limit")
        wait_until(lambda: operator.metrics()["dns_open_questions"] == MOST_OPEN // 2,
                   "the gauge")
        refusals = 'dns_queries_total{result="refused"}'
        wait_until(lambda: operator.metrics()[refusals] == 1, "one refusal")


HANGS = """
    import asyncio
    from cutthrough import Decision

    async def decide(request):
        if request.port == 9:
            await asyncio.sleep(60)
        return Decision(request.port != 8, "by port", limits="wide" if request.port == 7
                        else "")
"""


def test_questions_to_the_hook_of_clients_that_reset_refuse_nobody(
        start, make_origin, dial):
    """1 056 of them, of one user: all clients were 503 until they had been answered."""
    origin = make_origin()
    proxy, operator = start(
        USERS, 'policy_hook_timeout = "60s"\n', hook=HANGS)
    dropped = 'hook_questions_total{result="dropped"}'
    for turn in range(3):
        with callers(proxy, 400, f"n{turn}-%d.test:9"):
            waiting(operator, "decide", 400)
            assert dial(proxy).get(origin.url(), auth=BOB).status == 200
        wait_until(lambda n=turn: operator.metrics()[dropped] == 400 * n + 400,
                   "these dropped")
        wait_until(lambda: operator.metrics()["hook_open_questions"] == 0, "none left")
    assert operator.metrics()['hook_questions_total{result="refused"}'] == 0


def test_questions_to_the_hook_take_the_share_of_one_user(start, make_origin, dial):
    origin = make_origin()
    proxy, operator = start(
        USERS, 'policy_hook_timeout = "60s"\n', hook=HANGS)
    with callers(proxy, MOST_QUESTIONS // 2, "n%d.test:9"):
        waiting(operator, "decide", MOST_QUESTIONS // 2)
        refused = dial(proxy).connect("one.more.test:9")
        assert (refused.status, retry_after(refused)) == (429, 1)
        assert dial(proxy).get(origin.url(), auth=BOB).status == 200
        assert proxy.wait_reason("question_limit")["host"] == "one.more.test"


LIMITS = """
    [limits.default]
    requests_per_second = 0.01
    burst = 3
    [limits.wide]
    requests_per_second = 0.01
    burst = 3
    tunnels = 1
"""


def test_the_limits_of_a_user_are_asked_before_the_hook(start, dial):
    """They came last, so the hook was asked even for a user beyond all of them."""
    proxy, operator = start(USERS + LIMITS, hook=HANGS)
    for expected in (403, 403, 403, 429, 429):
        assert dial(proxy).get("http://127.0.0.1:8/").status == expected
    assert [line["reason"] for line in proxy.wait_log(5)] == [
        *["destination_denied"] * 3, *["rate_limited"] * 2]
    asked = 'hook_questions_total{result="asked"}'
    wait_until(lambda: operator.metrics()[asked] == 3, "3 questions")


def test_limits_that_the_hook_names_are_charged_in_place_of_the_first(start, dial):
    """The request counts once, and the connection is counted under the named ones. Of
    the first limits' three tokens one is taken, which is not one of the named ones'."""
    proxy, operator = start(USERS + LIMITS, hook=HANGS)
    with callers(proxy, 1, "n%d.test:9"):       # one token, for as long as it is asked
        waiting(operator, "decide", 1)
        statuses = [dial(proxy).get("http://127.0.0.1:7/").status for _ in range(4)]
    assert statuses == [502, 502, 502, 429]


def test_a_request_that_its_rules_refuse_takes_no_token(start, dial):
    proxy, operator = start(USERS + LIMITS, hook=HANGS)
    for _ in range(5):
        assert dial(proxy).get("http://192.0.2.1:8/").status == 403
    assert dial(proxy).get("http://127.0.0.1:8/").status == 403
    assert operator.metrics()['ended_total{reason="rate_limited"}'] == 0
