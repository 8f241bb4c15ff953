"""Filters of tunnels: `on_connect` sees a CONNECT, answers it, or changes its 200."""

import pytest

from tests.support.certificates import localhost
from tests.support.client import build_request
from tests.support.filters import RULE
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.http2_listener import reach as reach
from tests.support.inside import ask, config, enter, okay, over_tls
from tests.support.origin import echo
from tests.support.parents import http, parent
from tests.support.socks import NOT_ALLOWED, SOCKS5
from tests.support.socks import call as call
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FILTERS = """
    import asyncio
    import json
    import sys

    def say(*words):
        print(*words, file=sys.stderr, flush=True)

    class Look:
        async def on_connect(self, flow):
            request = flow.request
            say("saw", json.dumps([
                request.method, request.url, request.host, request.port, request.path,
                dict(request.headers), flow.user, flow.client, flow.rule]))

        async def on_end(self, flow):
            say("ended", flow.outcome, flow.response.status)

    class Other:
        async def on_request_head(self, flow):
            flow.request.headers["X-Other"] = "1"

        async def on_end(self, flow):
            say("other ended", flow.request.method)

    class Fields:
        async def on_connect(self, flow):
            flow.response.headers["X-Way"] = flow.request.host
            flow.response.headers["Content-Length"] = "5"
            flow.response.headers["Connection"] = "close"

    class Later:
        async def on_connect(self, flow):
            await asyncio.sleep(0.01)
            flow.response.headers.add("X-Way", "later")

    class Answer:
        async def on_connect(self, flow):
            flow.respond(451, b"x" * 300_000, {"X-Why": "law"})

    class Refuse:
        async def on_connect(self, flow):
            flow.refuse("not to " + flow.request.host)

    class Opens:
        async def on_connect(self, flow):
            flow.respond(200, b"")

    class Renames:
        async def on_connect(self, flow):
            flow.response.status = 201

    class Moves:
        async def on_connect(self, flow):
            flow.request.port = 1

    class Swells:
        async def on_connect(self, flow):
            flow.response.headers["X"] = "x" * 9000

    class Hangs:
        async def on_connect(self, flow):
            say("hang began")
            try:
                await asyncio.sleep(600)
            finally:
                say("hang ended")
"""


@pytest.fixture
def start(start_policy):
    def begin(*classes: str, keys: str = "", rule: str = 'hosts = ["127.0.0.1"]',
              more: str = "", options: str = ""):
        tables = "".join(f'[filters.{name}]\ncode = "sieve:{name}"\n{keys}\n'
                         for name in classes)
        return start_policy(
            f'{tables}\n[[rules]]\nname = "seen"\naction = "allow"\n{rule}\n'
            f'addresses = ["127.0.0.0/8"]\nfilters = {list(classes)!r}\n{more}\n{RULE}',
            options, modules={"sieve": FILTERS})
    return begin


def wait_for(proxy, text: str) -> None:
    wait_until(lambda: text in proxy.stderr(), text)


def test_a_connect_is_seen_with_its_fields_and_without_those_of_the_hop(
        start, make_origin, dial):
    proxy, origin = start("Look", "Other"), make_origin(echo)
    client = dial(proxy)
    client.send(build_request(
        "CONNECT", origin.authority, "User-Agent: test", "X-A: 1",
        "Proxy-Connection: keep-alive, x-b", "X-B: 2", host="other.test"))
    reply = client.read_response("CONNECT")
    assert reply.raw == b"HTTP/1.1 200 Connection established\r\n\r\n"
    client.send(b"hello")
    assert client.read_exact(5) == b"hello"
    wait_for(proxy, "ended ok 200")
    assert (f'saw ["CONNECT", "{origin.authority}", "127.0.0.1", {origin.port}, "", '
            '{"User-Agent": "test", "X-A": "1"}, "user", "127.0.0.1", "seen"]'
            ) in proxy.stderr()
    client.close()
    (line,) = proxy.wait_log(1)
    assert (line["kind"], line["reason"], line["rule"]) == ("tunnel", "ok", "seen")
    assert "other ended" not in proxy.stderr(), "it has no function for tunnels"


def test_plain_requests_do_not_come_to_it(start, make_origin, dial):
    proxy, origin = start("Look", "Other"), make_origin()
    assert dial(proxy).get(origin.url()).status == 200
    assert origin.requests[0].get("X-Other") == "1"
    wait_for(proxy, "other ended GET")
    assert "saw" not in proxy.stderr()


@pytest.mark.parametrize("rule", ['hosts = ["127.0.0.1"]', ""],
                         ids=["by host", "by address"])
def test_fields_of_the_200_come_from_filters_in_their_order(
        start, make_origin, dial, rule):
    proxy, origin = start("Fields", "Later", rule=rule), make_origin(echo)
    client = dial(proxy)
    reply = client.connect(origin.authority, early=b"early")
    assert reply.raw == (b"HTTP/1.1 200 Connection established\r\n"
                         b"X-Way: 127.0.0.1\r\nX-Way: later\r\n\r\n")
    assert client.read_exact(5) == b"early"


def test_a_name_that_a_rule_about_addresses_lets_pass_is_seen(start, make_origin, dial):
    proxy = start("Fields", rule="", options='dns_overrides = ["a.test=127.0.0.1"]\n')
    origin = make_origin(echo)
    reply = dial(proxy).connect(f"a.test:{origin.port}")
    assert reply.get("X-Way") == "a.test"


def test_it_answers_in_the_origins_place(start, make_origin, dial):
    proxy, origin = start("Look", "Answer"), make_origin(echo)
    client = dial(proxy)
    reply = client.connect(origin.authority)
    assert (reply.status, len(reply.body)) == (451, 300_000)
    assert reply.get("X-Why") == "law" and reply.get("Connection") == "close"
    assert client.at_eof()
    (line,) = proxy.wait_log(1)
    assert (line["reason"], line["status"]) == ("filter_answered", 451)
    assert not origin.connections
    wait_for(proxy, "ended filter_answered 451")


def test_it_refuses(start, make_origin, dial):
    proxy, origin = start("Refuse"), make_origin(echo)
    reply = dial(proxy).connect(origin.authority)
    assert reply.status == 403 and b"not to 127.0.0.1" in reply.body
    (line,) = proxy.wait_log(1)
    assert line["reason"] == "filter_refused"
    assert line["hook"].startswith("Refuse: not to")
    assert not origin.connections


@pytest.mark.parametrize("name", ["Opens", "Renames", "Moves", "Swells"])
def test_what_it_may_not_do_is_a_fault(start, make_origin, dial, name):
    proxy, origin = start(name), make_origin(echo)
    assert dial(proxy).connect(origin.authority).status == 502
    assert proxy.wait_log(1)[0]["reason"] == "filter_failed"
    wait_for(proxy, f"the filter {name} failed in on_connect")
    assert not origin.connections


@pytest.mark.parametrize("name", ["Opens", "Renames", "Moves", "Swells"])
def test_a_fault_may_pass_without_its_changes(start, make_origin, dial, name):
    proxy, origin = start("Fields", name, keys='on_fault = "pass"'), make_origin(echo)
    reply = dial(proxy).connect(origin.authority)
    assert reply.raw.count(b"\r\n") == 3 and reply.get("X-Way") == "127.0.0.1"


def test_a_budget_ends_it(start, make_origin, dial):
    proxy = start("Hangs", keys='budget = "20ms"')
    origin = make_origin(echo)
    assert dial(proxy).connect(origin.authority).status == 504
    assert proxy.wait_log(1)[0]["reason"] == "filter_timeout"


def test_a_client_that_leaves_cancels_it(start, make_origin, dial):
    proxy = start("Hangs", keys='budget = "1m"')
    client = dial(proxy)
    client.send(build_request("CONNECT", make_origin(echo).authority))
    wait_for(proxy, "hang began")
    client.reset()
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"
    wait_for(proxy, "hang ended")


def test_a_tunnel_by_socks_is_seen_and_refused(start, make_origin, call):
    """No way in goes past a filter of tunnels (R41)."""
    proxy, origin = start("Look", options=SOCKS5), make_origin(echo)
    client = call(proxy).socks_tunnel(origin.authority, b"x")
    assert client.read_exact(1) == b"x"
    wait_for(proxy, f'saw ["CONNECT", "{origin.authority}"')
    for name in ("Refuse", "Answer"):
        proxy = start(name, options=SOCKS5)
        client = call(proxy)
        client.log_in()
        assert client.request(origin.authority) == NOT_ALLOWED
        assert proxy.wait_log(1)[0]["reason"] == "filter_refused"
    assert len(origin.connections) == 1


def test_a_client_of_http2_gets_the_fields_and_an_answer(start, make_origin, reach):
    origin = make_origin(echo)
    peer = reach(start("Fields", options=table(localhost(), **BOTH)))
    answer = peer.wait_head(peer.connect(origin.authority, LOGIN))
    assert answer.status == 200 and dict(answer.fields)["x-way"] == "127.0.0.1"
    peer = reach(start("Answer", options=table(localhost(), **BOTH)))
    answer = peer.wait(peer.connect(origin.authority, LOGIN))
    assert (answer.status, len(answer.body)) == (451, 300_000)


def test_through_a_parent(start, make_origin, dial):
    way = make_origin(http)
    proxy = start("Fields", rule="", options='route = "corp"\n' + parent(way))
    reply = dial(proxy).connect("127.0.0.1:4711")
    assert reply.get("X-Way") == "127.0.0.1"
    assert way.requests[0].get("X-Way") is None


def test_an_intercepted_tunnel_is_seen_and_its_requests_too(
        start, make_origin, dial):
    proxy = start("Look", "Fields", "Other", rule='tls = "intercept"', options=config())
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ok"
    assert origin.requests[0].get("X-Other") == "1"
    assert proxy.stderr().count("saw") == 1
    wait_for(proxy, "other ended GET")
