"""How long a breakpoint holds: deadlines, workers, reloads, ways in."""

import os
import select
import signal

import pytest

from tests.support.breakpoints import FREE, send, starter
from tests.support.certificates import client_context
from tests.support.http2 import Peer
from tests.support.inside import config as inside
from tests.support.inside import enter, okay, over_tls
from tests.support.wait import takes_less, wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    return starter(start_policy)


def test_it_goes_on_unchanged_at_the_deadline(start, make_origin, dial):
    """Longer than the deadlines of the states that it is held in."""
    proxy, desk = start("both", 'breakpoint_timeout = "2s"\n'
                        'response_timeout = "300ms"\nbody_timeout = "300ms"\n'
                        'idle_timeout = "300ms"\nmin_rate_grace = "300ms"\n')
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "POST", origin.url("/a"), "Content-Length: 3", body=b"old")
    desk.decide(desk.wait_one("request"), "edit", hold_body=True)
    desk.wait_one("request", "here")
    reply = client.read_response()
    assert (reply.status, reply.body) == (200, b"ok")
    assert origin.requests[0].body == b"old"
    desk.wait_counts(held=3, edited=1, expired=2)
    assert proxy.wait_log(1)[0]["reason"] == "ok"


def test_what_nobody_decides_about_is_refused_if_so_configured(
        start, make_origin, dial):
    """The same word in reply, log and metric."""
    proxy, desk = start("request", 'breakpoint_timeout = "2s"\n'
                        'breakpoint_undecided = "refuse"\n')
    origin = make_origin()
    desk.arm()
    clients = [dial(proxy) for _ in range(100)]
    for client in clients:
        send(client, "GET", origin.url())
    replies = [client.read_response() for client in clients]
    assert [(one.status, one.error) for one in replies] == [
        (403, "http_request_denied")] * 100
    assert not origin.requests
    lines = proxy.wait_log(100)
    assert {line["reason"] for line in lines} == {"breakpoint_undecided"}
    assert [line["hook"] for line in lines].count(
        "breakpoint: nobody decided in 2 s") == 32
    desk.wait_counts(held=32, expired=32, skipped=68)
    assert desk.operator.metrics()['denied_total{reason="breakpoint_undecided"}'] == 100


def the_answered(clients):
    """The only one of them."""
    poller = select.poll()
    for client in clients:
        poller.register(client.sock, select.POLLIN)
    ((number, _),) = poller.poll(5000)
    return next(client for client in clients if client.sock.fileno() == number)


def test_a_thousand_are_held_at_once(start, make_origin, dial):
    """By one worker, while others are served; a reload leaves them."""
    proxy, desk = start("request", 'breakpoint_messages = 1000\n'
                        'breakpoint_timeout = "90s"\n',
                        rule=f'methods = ["POST"]\n{FREE}')
    origin = make_origin()
    desk.arm(90)
    clients = [dial(proxy) for _ in range(1001)]
    (worker,) = proxy.workers()
    before = worker.memory_info().rss
    for client in clients:
        send(client, "POST", origin.url(f"/{'x' * 500}"), "Content-Length: 3",
             body=b"old")
    held = desk.wait(1000)
    each = (worker.memory_info().rss - before) / 1000
    assert each < 64 << 10, f"{each} bytes"
    assert dial(proxy).get(origin.url("/other")).body == b"ok"
    passed = the_answered(clients)
    assert passed.read_response().status == 200, "there was no room for it"
    takes_less(1.0, desk.state, "a list of them")
    proxy.policy.write_text(proxy.policy.read_text().replace('"held"', '"still"'))
    assert desk.ask("POST", "/reload")[0] == 200
    for one, action in zip(held, ("pass", "edit", "abort"), strict=False):
        desk.decide(one, action, **({"path": "/new"} if action == "edit" else {}))
    desk.wait(997)
    takes_less(0.5, lambda: dial(proxy).get(origin.url("/other")), "another request")
    desk.arm(0)
    found = [client.read_response().status for client in clients
             if client is not passed]
    assert sorted(found) == [200] * 999 + [403]
    assert len(origin.requests) == 1002
    desk.wait_counts(held=1000, passed=1, edited=1, aborted=1, expired=997, skipped=1)


@pytest.mark.parametrize("end", ["disarm", "drain"])
def test_it_is_not_refused_if_the_holding_itself_ends(start, make_origin, dial, end):
    proxy, desk = start("request", 'breakpoint_undecided = "refuse"\n')
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    desk.wait_one("request")
    if end == "disarm":
        desk.arm(0)
    else:
        proxy.process.send_signal(signal.SIGTERM)
    assert client.read_response().status == 200


def test_disarming_lets_go_what_is_held(start, make_origin, dial):
    proxy, desk = start("both")
    origin, clients = make_origin(), [dial(proxy) for _ in range(3)]
    desk.arm()
    for client in clients:
        send(client, "GET", origin.url())
    desk.wait(3)
    desk.arm(0)
    assert [client.read_response().status for client in clients] == [200] * 3
    desk.wait_counts(held=3, expired=3)


def test_the_arming_ends_by_itself(start, make_origin, dial):
    proxy, desk = start("request")
    origin, client = make_origin(), dial(proxy)
    desk.arm(0.5)
    send(client, "GET", origin.url())
    assert client.read_response().status == 200
    assert dial(proxy).get(origin.url()).status == 200
    assert desk.state()["armed_s"] == 0


def test_several_workers_hold_several(start, make_origin, dial):
    proxy, desk = start("request", "workers = 2\n")
    origin = make_origin()
    desk.arm()
    clients = [dial(proxy) for _ in range(12)]
    for n, client in enumerate(clients):
        send(client, "GET", origin.url(f"/{n}"))
    held = desk.wait(12)
    assert {one["worker"] for one in held} == {0, 1}
    for one in held:
        action = "abort" if int(one["path"][1:]) % 2 else "pass"
        desk.decide(one, action)
    assert [client.read_response().status for client in clients] == [200, 403] * 6
    assert desk.try_to_decide(held[0], "pass") == (404, "not held any more\n")


def test_a_worker_that_dies_takes_along_its_own(start, make_origin, dial):
    proxy, desk = start("request", "workers = 2\n")
    origin = make_origin()
    desk.arm()
    clients = [dial(proxy) for _ in range(12)]
    for client in clients:
        send(client, "GET", origin.url())
    held = desk.wait(12)
    pid = int(held[0]["id"].split("-")[0])
    own = [one for one in held if one["id"].startswith(f"{pid}-")]
    os.kill(pid, signal.SIGKILL)
    left = desk.wait(12 - len(own))
    for one in own:
        assert desk.try_to_decide(one, "pass")[0] == 404
    for one in left:
        desk.decide(one)
    # Its successor is armed too
    wait_until(lambda: proxy.stderr().count("starting a replacement") == 1, "death")
    wait_until(lambda: pid not in workers(proxy) and len(workers(proxy)) == 2, "a new")
    later = []

    def both_hold():
        if len(later) < 50:
            later.append(dial(proxy))
            send(later[-1], "GET", origin.url())
        return {one["worker"] for one in desk.state()["held"]} == {0, 1}
    wait_until(both_hold, lambda: str(desk.state()))
    desk.arm(0)
    assert [client.read_response().status for client in later] == [200] * len(later)


def workers(proxy):
    return [child.pid for child in proxy.workers()]


def test_a_reload_without_the_key_holds_no_more(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/first"))
    held = desk.wait_one("request")
    proxy.policy.write_text(FREE)
    status, text = desk.ask("POST", "/reload")
    assert status == 200, text
    assert dial(proxy).get(origin.url("/second")).status == 200
    # A held request stays with the generation that it began with
    desk.decide(held, "edit", path="/edited")
    desk.decide(desk.wait_one("response"), "edit", status=203)
    assert client.read_response().status == 203
    assert [one.target for one in origin.requests] == ["/second", "/edited"]


def test_a_drain_lets_go_what_is_held(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    desk.wait_one("request")
    proxy.process.send_signal(signal.SIGTERM)
    assert client.read_response().status == 200


def test_a_client_that_goes_is_not_held(start, make_origin, dial):
    proxy, desk = start("both")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url())
    desk.wait_one("request")
    client.reset()
    desk.wait(0)
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"
    client = dial(proxy)
    send(client, "GET", origin.url())
    desk.decide(desk.wait_one("request"))
    desk.wait_one("response")
    client.reset()
    desk.wait(0)


def test_more_than_a_worker_holds_pass(start, make_origin, dial):
    proxy, desk = start("request")
    origin = make_origin()
    desk.arm()
    clients = [dial(proxy) for _ in range(32)]
    for client in clients:
        send(client, "GET", origin.url())
    desk.wait(32)
    assert dial(proxy).get(origin.url()).status == 200
    desk.wait_counts(held=32, skipped=1)
    desk.arm(0)
    assert [client.read_response().status for client in clients] == [200] * 32


def test_a_tunnel_is_not_held(start, make_origin, dial):
    proxy, desk = start("both", 'connect_ports = "any"\n')
    origin = make_origin()
    desk.arm()
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert tunnel.read_response().status == 200
    desk.wait_counts()


@pytest.mark.parametrize("version", ["h2", "http/1.1"])
def test_requests_inside_an_interception_are_held(start, make_origin, dial, version):
    if version == "h2":
        pytest.importorskip("cutthrough.http2.transport")
    proxy, desk = start("both", inside(), 'tls = "intercept"\n')
    origin = make_origin(over_tls(okay))
    desk.arm()
    context = client_context()
    context.set_alpn_protocols([version])
    client = enter(proxy, dial(proxy), origin.port, context=context)
    if version == "h2":
        peer = Peer(client.sock)
        peer.flush()
        streams = [peer.get(f"https://a.example/{n}") for n in range(2)]
        peer.flush()
        for one in desk.wait(2):
            desk.decide(one, "edit", path=one["path"] + "/edited")
        for one in desk.wait(2):
            assert one["side"] == "response" and one["url"].startswith("https://")
            if one["path"] == "/0/edited":
                desk.decide(one, "abort")
            else:
                desk.decide(one, "edit", status=203, body=b"edited")
        first, second = (peer.wait(stream) for stream in streams)
        assert first.status == 403
        assert (second.status, second.body) == (203, b"edited")
    else:
        send_inside(client, origin)
        desk.decide(desk.wait_one("request"), "edit", path="/edited")
        desk.decide(desk.wait_one("response"), "edit", body=b"edited")
        assert client.read_response().body == b"edited"
    assert {one.target for one in origin.requests} <= {
        "/0/edited", "/1/edited", "/edited"}


def send_inside(client, origin):
    client.send(f"GET / HTTP/1.1\r\nHost: a.example:{origin.port}\r\n\r\n".encode())
