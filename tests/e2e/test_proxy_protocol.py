"""Load balancers in front: the PROXY header alone names the client (R40, R50)."""

import contextlib
import shutil
import time

import pytest

from tests.support.admin import TOKEN, TOLD, Operator
from tests.support.client import WRONG, Client, build_request
from tests.support.handovers import renew
from tests.support.haproxy import PROGRAM, HAProxy
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.proxy_headers import ANN, BOB, FLAGS, OPEN, V6
from tests.support.shedding import let_time_pass
from tests.support.stream import Closed
from tests.support.successors import end_family
from tests.support.wait import wait_until
from tests.wire.twin_proxy import MOST, SIGNATURE, build_binary, build_line, build_tlv

HEADERS = {
    "line": build_line(ANN), "binary": build_binary(ANN),
    "checksum and TLVs": build_binary(
        ANN, tlvs=build_tlv(0xEA, b"\x01vpce-08d2bf15fac5001c9"), checksum=True)}


@pytest.fixture
def behind(start_proxy):
    """A proxy that load balancers call."""
    return lambda *flags: start_proxy(*FLAGS, *flags)


@pytest.fixture
def proxy(keep_proxy):
    """One that load balancers call, for the tests that change nothing in it."""
    return keep_proxy(*FLAGS)


@pytest.fixture
def as_client(dial):
    """A connection on which the header of this client has been sent."""
    def connect(proxy: Proxy, source: str = ANN) -> Client:
        client = dial(proxy)
        client.send(build_binary(source))
        return client
    return connect


# The client of a connection


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_the_client_is_the_one_that_the_header_names(proxy, make_origin, dial, header):
    origin = make_origin()
    client = dial(proxy)
    client.send(header + build_request("GET", origin.url()))     # in one segment
    assert client.read_response().status == 200
    assert client.get(origin.url()).status == 200, "its next request"
    for record in proxy.wait_log(2):
        assert (record["client"], record["proxied_by"]) == (ANN, "127.0.0.1")
        assert record["bytes_up"] < 500


@pytest.mark.any_loop
def test_header_and_request_are_read_however_they_are_cut(behind, make_origin, dial):
    proxy, origin = behind(), make_origin()
    whole = build_binary(V6, checksum=True) + build_request("GET", origin.url())
    cuts = [(n,) for n in range(1, 80)] + [(5, 20, 60, 70, 90), tuple(range(1, 120))]
    for cut in cuts:
        with proxy.client() as client:
            for start, end in zip((0, *cut), (*cut, len(whole)), strict=True):
                client.send(whole[start:end])
            assert client.read_response().status == 200, cut
    records = proxy.wait_log(len(cuts))
    assert {(one["client"], one["reason"]) for one in records} == {(V6, "ok")}


def test_a_tunnel_is_the_client_s_and_its_early_bytes_arrive(
        behind, make_origin, dial):
    proxy, origin = behind("--admin", "127.0.0.1:0"), make_origin(echo)
    client = dial(proxy)
    head = build_request("CONNECT", origin.authority, host=origin.authority)
    client.send(build_line(V6, port=4711) + head + b"early")
    assert client.read_response("CONNECT").status == 200
    assert client.read_exact(5) == b"early"
    (one,) = Operator(int(TOLD.search(proxy.stderr())[1])).connections()
    assert (one["client"], one["proxied_by"]) == (V6, "127.0.0.1")
    client.close()
    assert proxy.wait_log(1, kind="tunnel")[0]["client"] == V6


@pytest.mark.any_loop
@pytest.mark.parametrize("header", [
    build_binary(command=0), build_binary(ANN, command=0), b"PROXY UNKNOWN\r\n",
    build_binary()], ids=["LOCAL", "LOCAL with addresses", "UNKNOWN", "UNSPEC"])
def test_a_header_that_names_nobody_leaves_the_connection_s_address(
        proxy, make_origin, dial, header):
    origin = make_origin()
    client = dial(proxy)
    client.send(header)
    assert client.get(origin.url()).status == 200
    (record,) = proxy.wait_log(1)
    assert record["client"] == "127.0.0.1" and "proxied_by" not in record


@pytest.mark.any_loop
def test_a_format_has_both_addresses(behind, make_origin, as_client):
    proxy = behind("--access-log-format", "%>a %>p %ct::proxied_by %>Hs")
    assert as_client(proxy).get(make_origin().url()).status == 200
    proxy.log = lambda **wanted: []         # its lines are no JSON
    wait_until(lambda: proxy.lines() == [f"{ANN} 50412 127.0.0.1 200"], proxy.lines)


@pytest.mark.any_loop
def test_a_health_check_that_only_connects_is_no_request(
        behind, make_origin, as_client, dial):
    proxy = behind()
    for header in (b"", build_binary(command=0)):
        client = dial(proxy)
        client.send(header)
        client.half_close()
        assert client.at_eof()
    assert as_client(proxy).get(make_origin().url()).status == 200
    assert [one["client"] for one in proxy.wait_log(1)] == [ANN]


# Limits and rules by the header's address


@pytest.mark.any_loop
@pytest.mark.parametrize("workers", ["1", "2"])
def test_connections_are_limited_by_the_header_s_address(
        behind, make_origin, as_client, workers):
    proxy = behind("--max-connections-per-client", "2", "--workers", workers)
    origin = make_origin(echo)
    held = [as_client(proxy).tunnel(origin.authority) for _ in range(2)]
    refused = as_client(proxy).read_response()
    assert (refused.status, refused.get("Connection")) == (429, "close")
    assert proxy.wait_reason("client_limit")["client"] == ANN
    # Each is of another client; the load balancer itself has no connection
    held += [as_client(proxy, f"198.51.100.{n}").tunnel(origin.authority)
             for n in range(8)]
    held.pop(0).close()
    wait_until(lambda: has_tunnel(as_client(proxy), origin), "room for another")


def has_tunnel(client: Client, origin) -> bool:
    with contextlib.suppress(OSError, Closed):
        return client.connect(origin.authority).status == 200
    return False


@pytest.mark.any_loop
def test_rules_ask_for_the_header_s_address(start_policy, make_origin, dial):
    proxy = start_policy(f"""
        default = "deny"
        [[rules]]
        action = "allow"
        clients = ["{ANN}"]
        hosts = ["127.0.0.1"]
        addresses = ["127.0.0.0/8"]
        """, 'proxy_protocol = ["127.0.0.1:0"]\nproxy_protocol_from = ["127.0.0.1"]\n')
    origin = make_origin()
    for source, status in ((ANN, 200), (f"::ffff:{ANN}", 200), (BOB, 403)):
        client = dial(proxy)
        client.send(build_line(source))
        assert client.get(origin.url()).status == status, source


@pytest.mark.any_loop
def test_wrong_credentials_hold_up_their_own_client_only(
        behind, make_origin, as_client):
    proxy, origin = behind(), make_origin()
    ask = build_request("GET", origin.url(), auth=WRONG)
    for _ in range(40):
        client, asked = as_client(proxy), time.monotonic()
        client.send(ask)
        assert client.read_response().status == 407
        if (held := time.monotonic() - asked) >= 2:
            break
    asked = time.monotonic()
    assert as_client(proxy, BOB).get(origin.url()).status == 200
    assert time.monotonic() - asked < held


@pytest.mark.any_loop
def test_room_is_made_by_the_client_that_has_most(behind, make_origin, as_client):
    # R32: all come from one load balancer, and one of them has four at rest
    proxy, origin = behind("--max-connections", "6"), make_origin()
    others = [as_client(proxy, f"198.51.100.{n}") for n in range(2)]
    many = [as_client(proxy) for _ in range(4)]
    for _ in range(2):                      # by the first answer the header is read
        for client in (*others, *many):     # without credentials
            assert client.get(origin.url(), auth=None).status == 407
        let_time_pass()                     # else a late client seems to rest longest
    assert as_client(proxy, BOB).get(origin.url()).status == 200
    assert many[0].at_eof(), "the oldest of the client with most"
    for client in (*others, *many[1:]):
        assert client.get(origin.url()).status == 200


@pytest.mark.any_loop
def test_a_connection_waits_for_its_header_at_rest(
        behind, make_origin, as_client, dial):
    proxy, origin = behind("--max-connections", "3"), make_origin()
    waiting = [dial(proxy) for _ in range(3)]
    waiting[2].send(build_binary(ANN)[:20])
    assert as_client(proxy, BOB).get(origin.url()).status == 200
    assert waiting[0].at_eof()
    waiting[2].send(build_binary(ANN)[20:])
    assert waiting[2].get(origin.url()).status == 200


# Refusals


REFUSED = {
    "a request": build_request("GET", "http://127.0.0.1:1/"),
    "a CONNECT": build_request("CONNECT", "127.0.0.1:1", host="127.0.0.1:1"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(90),
    "garbage": bytes(range(255, 0, -1)) * 8,
    "a line that is too long": b"PROXY UNKNOWN " + b"x" * 100,
    "a wrong checksum": build_binary(ANN, tlvs=build_tlv(3, b"abcd")),
    "a length beyond the bound": SIGNATURE + b"\x21\x11\xff\xff" + bytes(MOST),
    "TLVs that claim too much": build_binary(ANN, tlvs=b"\x04\xff\xff"),
    "LF alone": build_line(ANN).replace(b"\r\n", b"\n"),
}


@pytest.mark.any_loop
@pytest.mark.parametrize("octets", REFUSED.values(), ids=REFUSED)
def test_what_begins_without_a_valid_header_is_refused(proxy, dial, octets):
    client = dial(proxy)
    client.send(octets)
    reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (400, "close")
    assert reply.error == "http_request_error" and b"bad_proxy_header" in reply.body
    client.half_close()
    assert client.at_eof()
    record = proxy.wait_reason("bad_proxy_header", status=400)
    assert (record["client"], record["host"]) == ("127.0.0.1", None)


@pytest.mark.any_loop
def test_a_second_header_is_no_request(behind, dial):
    proxy = behind()
    for second in (build_line(BOB), build_binary(BOB)):
        client = dial(proxy)
        client.send(build_line(ANN) + second)
        assert client.read_response().status == 400
    records = proxy.wait_log(2, reason="bad_request")
    assert {record["client"] for record in records} == {ANN}


@pytest.mark.any_loop
def test_a_listener_that_is_not_named_takes_no_header(start_proxy, make_origin):
    # One program, and one address each: the option decides, never the bytes
    proxy = start_proxy("--listen", "127.0.0.2:0", "--proxy-protocol", "127.0.0.2:0",
                        "--proxy-protocol-from", "127.0.0.1", *OPEN)
    origin = make_origin()
    plain, balanced = proxy.ports
    for header in (build_line(ANN), build_binary(ANN)):
        with Client(plain) as client:
            client.send(header + build_request("GET", origin.url()))
            assert client.read_response().status == 400
    proxy.wait_log(2, reason="bad_request", client="127.0.0.1")
    with Client(plain) as client:
        assert client.get(origin.url()).status == 200
    with Client(balanced, "127.0.0.2") as client:
        client.send(build_line(ANN))
        assert client.get(origin.url()).status == 200


def test_only_listed_networks_may_call(loop_name, directory, opened, make_origin):
    # R40: a header from elsewhere could name any client
    config = ('proxy_protocol = ["127.0.0.1:0"]\nproxy_protocol_from = ["{}"]\n'
              'address_floor = "off"\n')
    proxy = opened.enter_context(Proxy(
        directory("proxy"), loop=loop_name, config=config.format("127.0.0.2/31")))
    origin = make_origin()

    def ask(source: str) -> int:
        with Client(proxy.port, source=source) as client:
            client.send(build_binary(ANN) + build_request("GET", origin.url()))
            return client.read_response().status

    assert [ask(f"127.0.0.{n}") for n in (1, 2, 3, 4)] == [403, 200, 200, 403]
    records = proxy.wait_log(2, reason="sender_denied")
    assert [one["client"] for one in records] == ["127.0.0.1", "127.0.0.4"]
    worker = proxy.worker.pid
    proxy.reload(config.format("127.0.0.4"))
    assert [ask(f"127.0.0.{n}") for n in (2, 4)] == [403, 200]
    assert proxy.worker.pid == worker, "the running worker has taken it over"


# Time


def test_a_header_that_does_not_come_ends_with_head_timeout(behind, dial):
    proxy = behind("--head-timeout", "300ms")
    mute, partial, claiming = dial(proxy), dial(proxy), dial(proxy)
    partial.send(b"PROXY TCP4 203.0")
    longer = build_binary(ANN)
    claiming.send(longer[:15] + b"\xff" + longer[16:])
    assert mute.at_eof()
    for client in (partial, claiming):
        assert client.read_response().status == 408
    assert len(proxy.wait_log(2, reason="head_timeout", client="127.0.0.1")) == 2
    assert len(proxy.log()) == 2, "without a byte there is nothing to log"


def test_bytes_do_not_extend_the_header_s_time(behind, dial):
    proxy = behind("--head-timeout", "1s")
    client = dial(proxy)
    client.sock.settimeout(0.05)
    with contextlib.suppress(ConnectionError):      # the proxy has had enough of it
        for octet in b"PROXY UNKNOWN " + b"x" * 93:
            client.send(bytes((octet,)))
            with contextlib.suppress(TimeoutError):
                client.sock.recv(1, 2)              # MSG_PEEK
                break
    client.sock.settimeout(10)
    assert client.read_response().status == 408


def test_after_the_header_a_client_that_asks_for_nothing_is_closed(behind, as_client):
    proxy = behind("--head-timeout", "300ms")
    assert as_client(proxy).at_eof()
    partial = as_client(proxy)
    partial.send(b"GET http://127")
    assert partial.read_response().status == 408
    assert proxy.wait_reason("head_timeout")["client"] == ANN


@pytest.mark.any_loop
def test_a_caller_that_goes_within_its_header_is_logged(behind, dial):
    proxy = behind()
    for end, reason in ((Client.half_close, "client_closed"),
                        (Client.reset, "client_reset")):
        client = dial(proxy)
        client.send(b"PROXY TC")
        end(client)
        assert proxy.wait_reason(reason)["client"] == "127.0.0.1"


# Reloads


def test_a_tunnel_keeps_its_client_through_a_reload(
        loop_name, directory, opened, make_origin, dial):
    options = (f'proxy_protocol = ["127.0.0.1:0"]\naddress_floor = "off"\n'
               f'connect_ports = "any"\n'
               f'proxy_protocol_from = ["127.0.0.1"]\nadmin = "127.0.0.1:0"\n'
               f'admin_token = "{TOKEN}"\n')
    proxy = opened.enter_context(
        Proxy(directory("proxy"), loop=loop_name, config=options))
    opened.callback(end_family, str(proxy._config))
    origin = make_origin(echo)
    client = dial(proxy)
    client.send(build_binary(V6, 4711, build_tlv(2, b"a.test")))
    client.tunnel(origin.authority)
    renew(proxy, 3, options)
    client.send(b"still there")
    assert client.read_exact(11) == b"still there"
    operator = Operator(int(TOLD.findall(proxy.stderr())[-1]))
    (one,) = operator.connections(f"client={V6}")
    assert (one["client"], one["proxied_by"]) == (V6, "127.0.0.1")
    assert operator.cut(f"client={V6}") == 1
    record = proxy.wait_reason("cut")
    assert (record["client"], record["proxied_by"]) == (V6, "127.0.0.1")
    assert record["proxy_tlvs"] == {"authority": "a.test"}


# The one that the protocol comes from


@pytest.mark.skipif(not PROGRAM, reason="HAProxy is not installed")
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.any_loop
def test_haproxy_s_headers_are_read(behind, make_origin, directory, opened):
    proxy, origin = behind(), make_origin()
    echoing = make_origin(echo)
    options = {
        "v1": "send-proxy", "v2": "send-proxy-v2 check inter 50ms",
        "tlvs": "send-proxy-v2 proxy-v2-options crc32c,authority,unique-id",
        "tls": "send-proxy-v2-ssl-cn"}
    front = HAProxy(directory("haproxy"), proxy.port, options)
    opened.callback(front.close)
    for n, port in enumerate(front.ports.values()):
        source = f"127.0.0.{11 + n}"
        with Client(port, source=source) as client:
            assert client.get(origin.url()).status == 200
        with Client(port, source=source) as client:
            client.tunnel(echoing.authority)
            client.send(b"x" * 100_000)
            assert client.read_exact(100_000) == b"x" * 100_000
        for kind in ("request", "tunnel"):
            (record,) = proxy.wait_log(1, client=source, kind=kind, reason="ok")
            assert record["proxied_by"] == "127.0.0.1"
    assert not proxy.log(client="127.0.0.1"), "its health checks are no requests"
