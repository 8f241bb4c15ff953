"""Faults of a rule, in force: latency, bandwidth, lost connections, a status; for plain
requests and for tunnels."""

import time

import pytest

from tests.support.client import build_request
from tests.support.origin import answer, echo, flood
from tests.support.socks import SocksClient

pytestmark = pytest.mark.any_loop

BODY = bytes(range(256)) * 1024                 # 256 KiB
SOCKS = '[[listeners]]\naddress = "127.0.0.1:0"\nprotocols = ["socks5"]\n'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


@pytest.fixture
def start(start_policy):
    def start(faults: str, rule: str = 'addresses = ["127.0.0.0/8"]', config: str = ""):
        return start_policy(f"[faults.bad]\n{faults}\n[[rules]]\naction = \"allow\"\n"
                            f'{rule}\nfaults = "bad"\n'
                            '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]',
                            config)
    return start


@pytest.mark.parametrize("rule", [
    'hosts = ["127.0.0.1"]', 'addresses = ["127.0.0.0/8"]', 'hosts = ["localhost"]'])
def test_latency_comes_before_a_request_and_a_tunnel(start, make_origin, dial, rule):
    """By name, by address, and by a name if its address decides."""
    rule += '\naddresses = ["127.0.0.0/8"]' if "localhost" in rule else ""
    proxy, origin, echoing = start('latency = "300ms"', rule), make_origin(), (
        make_origin(echo))
    host = "localhost" if "localhost" in rule else "127.0.0.1"
    client = dial(proxy)
    for _ in range(2):                          # the second by a pooled connection
        began = time.monotonic()
        assert client.get(f"http://{host}:{origin.port}/").status == 200
        assert time.monotonic() - began >= 0.29
    assert len(origin.connections) == 1
    began = time.monotonic()
    tunnel = dial(proxy).tunnel(f"{host}:{echoing.port}")
    assert time.monotonic() - began >= 0.29
    tunnel.send(b"through")
    assert tunnel.read_exact(7) == b"through"
    assert [line["reason"] for line in proxy.wait_log(2)] == ["ok"] * 2


def test_a_rule_without_faults_has_none(start, make_origin, dial):
    proxy, origin = start("status = 503", 'paths = ["/bad"]\n'
                          'addresses = ["127.0.0.0/8"]'), make_origin()
    client = dial(proxy)
    assert client.get(origin.url("/bad")).status == 503
    assert client.get(origin.url("/good")).status == 200


def test_a_client_that_goes_in_a_latency_ends_it(start, make_origin, dial):
    proxy, origin = start('latency = "60s"'), make_origin()
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    client.reset()
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"
    assert not origin.connections


def test_bandwidth_paces_a_response(start, make_origin, dial):
    proxy, origin = start('bandwidth = "256KiB"'), make_origin(answer(WHOLE))
    began = time.monotonic()
    assert dial(proxy).get(origin.url()).body == BODY
    assert time.monotonic() - began >= 0.7      # an eighth of a second's bytes at once


def test_bandwidth_paces_a_tunnel(start, make_origin, dial):
    proxy, echoing = start('bandwidth = "256KiB"'), make_origin(echo)
    tunnel = dial(proxy).tunnel(echoing.authority)
    began = time.monotonic()
    tunnel.send(BODY)
    assert tunnel.read_exact(len(BODY)) == BODY
    assert time.monotonic() - began >= 0.7


def test_limit_data_ends_a_response_after_so_many_bytes(start, make_origin, dial):
    proxy, origin = start("limit_data = 5000"), make_origin(answer(WHOLE))
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    got = client.read_rest()
    assert len(got) == 5000 and got.startswith(b"HTTP/1.1 200")
    line = proxy.wait_log(1)[0]
    assert (line["reason"], line["status"]) == ("fault_reset", 200)


def test_what_is_shorter_than_limit_data_is_whole(start, make_origin, dial):
    proxy, origin = start("limit_data = 5000"), make_origin()
    client = dial(proxy)
    assert [client.get(origin.url()).body for _ in range(2)] == [b"ok"] * 2


def test_limit_data_resets_a_tunnel_after_so_many_bytes(start, make_origin, dial):
    proxy, origin = start("limit_data = 5000"), make_origin(flood)
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"go")
    assert tunnel.read_exact(5000) == bytes(5000)
    with pytest.raises(ConnectionResetError):
        tunnel.read_exact(1)
    assert proxy.wait_log(1)[0]["reason"] == "fault_reset"


def test_reset_peer_comes_in_place_of_an_answer(start, make_origin, dial):
    proxy, origin = start("reset_peer = true"), make_origin()
    for request in (build_request("GET", origin.url()),
                    build_request("CONNECT", origin.authority, host=origin.authority)):
        client = dial(proxy)
        client.send(request)
        with pytest.raises(ConnectionResetError):
            client.read_exact(1)
    assert [line["reason"] for line in proxy.wait_log(2)] == ["fault_reset"] * 2
    assert not origin.connections


def test_a_status_is_answered_and_the_connection_goes_on(start, make_origin, dial):
    proxy, origin = start("status = 429"), make_origin()
    client = dial(proxy)
    for method in ("GET", "HEAD", "GET"):
        reply = client.ask(method, origin.url())
        assert (reply.status, reply.error) == (429, "proxy_internal_response")
        assert reply.get("Connection") is None
    assert dial(proxy).connect(origin.authority).status == 429
    lines = proxy.wait_log(4)
    assert {(line["reason"], line["status"]) for line in lines} == {
        ("fault_status", 429)}
    assert not origin.connections


def test_a_socks_client_gets_its_code(start, make_origin, opened):
    proxy, origin = start("status = 429", config=SOCKS), make_origin()
    client = opened.enter_context(SocksClient(proxy.port))
    assert client.log_in() == 0
    assert client.request(origin.authority) == 1
    assert proxy.wait_log(1)[0]["reason"] == "fault_status"


def test_limits_and_faults_hold_together(start_policy, make_origin, dial):
    proxy = start_policy("""
        [faults.bad]
        limit_data = 5000
        [limits.default]
        requests_per_second = 1
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        faults = ["bad"]
    """)
    origin = make_origin()
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    assert client.get(origin.url()).status == 429
    assert [line["reason"] for line in proxy.wait_log(2)] == ["ok", "rate_limited"]


def test_the_hook_comes_before_the_faults(start_policy, make_origin, dial):
    proxy = start_policy("""
        [faults.bad]
        status = 503
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        faults = "bad"
    """, hook="""
        from cutthrough import Decision

        async def decide(request):
            return Decision(request.method == "GET", ttl=0)
    """)
    origin = make_origin()
    assert dial(proxy).get(origin.url()).status == 503
    assert dial(proxy).ask("PUT", origin.url()).status == 403
