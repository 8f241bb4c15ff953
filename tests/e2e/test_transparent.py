"""Transparent listeners: the kernel names the destination, a name may narrow it."""

import contextlib
import re
import socket
import ssl
import subprocess
import sys

import pytest

from tests.support.intercepting import CLIENTS, OTHERS, SERVERS
from tests.support.origin import Origin, echo, okay
from tests.support.proxy import ROOT
from tests.support.stream import Stream
from tests.support.transparent import WAYS, request
from tests.support.transparent import scene as scene

pytestmark = pytest.mark.any_loop
HOSTS = """default = "deny"
[[rules]]
action = "deny"
hosts = ["bad.test"]
[[rules]]
action = "allow"
hosts = ["here.test", "both.test", "other.test"]
"""
PARENT = """[parents.corp]
url = "http://127.0.0.1:3128"
"""


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("how", WAYS)
def test_http_goes_where_the_kernel_says(scene, how, family):
    stage = scene(how)
    origin, server = stage.origin(family=family), SERVERS[family]
    with Stream(stage.router.dial(server, 80)) as client:
        for _ in range(2):                      # one connection, two requests
            client.send(request("here.test", target="/a?b"))
            assert client.read_response().status == 200
    first = origin.requests[0]
    assert first.target == "/a?b" and first.get("Host") == "here.test"
    assert len(origin.connections) == 1, "the second request takes the idle connection"
    for record in stage.proxy.wait_log(2):
        assert (record["host"], record["port"], record["peer"], record["client"]) == (
            "here.test", 80, server, CLIENTS[family])
        assert (record["method"], record["user"]) == ("GET", None)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("how", WAYS)
def test_other_bytes_become_a_tunnel(scene, how, family):
    stage = scene(how)
    stage.origin(echo, family, 443)
    with Stream(stage.router.dial(SERVERS[family], 443)) as client:
        client.send(b"\x00\x01 no protocol that anybody knows")
        assert client.read_exact(10) == b"\x00\x01 no prot"
    (record,) = stage.proxy.wait_log(1, kind="tunnel")
    assert (record["method"], record["host"], record["port"], record["peer"]) == (
        "TUNNEL", SERVERS[family], 443, SERVERS[family])
    assert record["reason"] == "ok" and record["bytes_up"] > 20


# Bytes that an origin may read as a request


@pytest.mark.parametrize(("first", "status"), [
    (b"FOO / HTTP/1.1\r\nHost: here.test\r\n\r\n", 200),
    (b"foo! /x HTTP/1.1\r\nHost: here.test\r\n\r\n", 200),
    (b"\r\nBREW /pot HTTP/1.1\r\nHost: here.test\r\n\r\n", 200),
    (b"get / http/1.1\r\nHost: here.test\r\n\r\n", 400),
    (b" GET / HTTP/1.1\r\nHost: here.test\r\n\r\n", 400),
    (b"\t\r\nGET / HTTP/1.1\r\nHost: here.test\r\n\r\n", 400),
    (b"FOO\t/\tHTTP/1.1\r\nHost: here.test\r\n\r\n", 400),
    (b"GET\0 / HTTP/1.1\r\nHost: here.test\r\n\r\n", 400),
    (b"GET /\r\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)])
@pytest.mark.parametrize("is_split", [False, True])
def test_what_looks_like_http_is_no_tunnel(scene, first, status, is_split):
    """R78: the second request was not judged."""
    stage = scene("redirect")
    origin = stage.origin()
    with Stream(stage.router.dial(SERVERS[4], 80)) as client:
        for data in first.splitlines(keepends=True) if is_split else [first]:
            client.send(data)
        assert client.read_response().status == status
        if status == 200:
            client.send(request("bad.test", target="/secret"))
            assert client.read_response().status == 403
    assert [one.target for one in origin.requests] == (
        [first.split()[1].decode()] if status == 200 else [])
    assert not stage.proxy.log(kind="tunnel")


@pytest.mark.parametrize(
    "blank", [b"\x0b", b"\x0c", b"\x1c", b"\x1f", b"\x85", b"\xa0"])
def test_no_white_space_before_a_request_opens_a_tunnel(scene, blank):
    """R78: Python's http.server skips each of them, and served what came behind."""
    stage = scene("redirect")
    origin = stage.origin()
    with Stream(stage.router.dial(SERVERS[4], 80)) as client:
        client.send(blank)
        client.send(request("bad.test", target="/secret"))
        assert client.read_response().status == 400
    assert not origin.requests and not stage.proxy.log(kind="tunnel")


def test_text_that_is_no_http_becomes_a_tunnel_at_the_end_of_its_line(scene):
    stage = scene("redirect")
    stage.origin(echo, 4, 443)
    with Stream(stage.router.dial(SERVERS[4], 443)) as client:
        for data in b"PI", b"NG\r\n":
            client.send(data)
        assert client.read_exact(6) == b"PING\r\n"
    stage.proxy.wait_log(1, kind="tunnel")


# The name


@pytest.mark.parametrize("how", WAYS)
def test_a_host_that_does_not_resolve_to_the_destination_is_not_followed(scene, how):
    """squid's CVE-2009-0801: the request went to the server that Host named."""
    stage = scene(how)
    origin = stage.origin()
    other = stage._opened.enter_context(Origin(okay, OTHERS[4], port=80))
    assert stage.ask(SERVERS[4], "other.test").status == 200, "allowed for any address"
    assert origin.requests[0].get("Host") == "other.test" and other.connections == []
    (record,) = stage.proxy.wait_log(1)
    assert (record["host"], record["peer"]) == (SERVERS[4], SERVERS[4])


@pytest.mark.parametrize("named", ["other.test", "nowhere.test", OTHERS[4], None])
def test_a_name_that_is_not_proven_opens_nothing(scene, named):
    """The rules allow names only; the address is judged, and refused."""
    stage = scene("redirect", HOSTS)
    origin = stage.origin()
    version = "HTTP/1.0" if named is None else "HTTP/1.1"
    assert stage.ask(SERVERS[4], named, version=version).status == 403
    assert origin.connections == []
    assert stage.ask(SERVERS[4], "here.test").status == 200
    assert stage.ask(SERVERS[4], "both.test").status == 200
    assert {one.sock.family for one in origin.connections} == {socket.AF_INET}


def test_a_name_that_is_not_proven_shares_idle_connections_to_the_address(scene):
    """If the name was not in the cache, a connection that was open led to a 500: each
    request but the first, where client and proxy get other addresses of a name."""
    stage = scene("redirect")
    origin = stage.origin()
    for named in (SERVERS[4], "other.test", "nowhere.test", SERVERS[4]):
        assert stage.ask(SERVERS[4], named).status == 200
    assert len(origin.connections) == 1
    assert [one["reason"] for one in stage.proxy.wait_log(4)] == ["ok"] * 4


def test_a_name_that_is_denied_stays_denied(scene):
    stage = scene("redirect")
    origin = stage.origin()
    assert stage.ask(SERVERS[4], "bad.test").status == 403
    assert stage.ask(OTHERS[4], "bad.test").status == 403, "although it is not there"
    assert origin.connections == []


def test_only_the_destination_is_dialled_of_a_name_with_several_addresses(scene):
    stage = scene("redirect", HOSTS)
    stage._opened.enter_context(Origin(okay, OTHERS[4], port=80))
    origin = stage.origin()
    for _ in range(4):
        assert stage.ask(SERVERS[4], "both.test").status == 200
    assert len(origin.requests) == 4
    assert {one["peer"] for one in stage.proxy.wait_log(4)} == {SERVERS[4]}


def test_an_idle_connection_to_another_address_of_the_name_is_not_used(scene):
    stage = scene("redirect", HOSTS)
    first = stage.origin()
    second = stage._opened.enter_context(Origin(okay, OTHERS[4], port=80))
    for host in (SERVERS[4], OTHERS[4]) * 2:
        assert stage.ask(host, "both.test").status == 200
    assert (len(first.requests), len(second.requests)) == (2, 2)


@pytest.mark.parametrize("port", ["", ":80", ":8080"])
def test_the_port_is_the_kernel_s(scene, port):
    stage = scene("redirect", ports="80,8081")
    origin = stage.origin(port=8081)
    assert stage.ask(SERVERS[4], f"here.test{port}", 8081).status == 200
    assert origin.requests[0].get("Host") == "here.test:8081"


@pytest.mark.parametrize(("method", "target", "status"), [
    ("CONNECT", "here.test:443", 400), ("GET", "http://here.test/", 200),
    ("OPTIONS", "*", 200)])
def test_forms_of_a_target(scene, method, target, status):
    stage = scene("redirect")
    origin = stage.origin()
    named = "here.test:443" if method == "CONNECT" else "here.test"
    assert stage.ask(SERVERS[4], named, method=method, target=target).status == status
    assert len(origin.connections) == (status == 200)


def test_the_hook_is_called_for_the_name_and_then_for_the_address(scene):
    """The name is in the cache, so the second call follows the first at once."""
    stage = scene("redirect", hook="""
async def decide(request):
    print(request.host, request.method, flush=True)
    from cutthrough import Decision
    return Decision(request.host != "198.18.0.2", "", ttl=60)
""")
    origin = stage.origin()
    assert stage.ask(SERVERS[4], "other.test").status == 200
    assert stage.ask(OTHERS[4], "here.test").status == 403, "its address is denied"
    asked = (stage.proxy.log_path.parent / "stdout").read_text().split("\n")
    assert asked[:4] == ["other.test GET", "198.18.0.1 GET", "here.test GET",
                         "198.18.0.2 GET"]
    assert len(origin.requests) == 1


# Parents


@pytest.mark.parametrize("named", ["here.test", "other.test"])
@pytest.mark.parametrize("keys", ["", 'resolve = "parent"\nplain = "absolute"\n'])
def test_a_parent_gets_the_address_of_the_destination(scene, named, keys):
    """R52 holds behind a parent that would resolve the name too."""
    stage = scene("redirect", config=f'route = "corp"\n{PARENT}{keys}')
    way = stage.parent()
    assert stage.ask(SERVERS[4], named).status == 200
    connect, plain = way.requests
    assert (connect.method, connect.target) == ("CONNECT", f"{SERVERS[4]}:80")
    assert (plain.target, plain.get("Host")) == ("/", named)
    with Stream(stage.router.dial(SERVERS[4], 443)) as client:
        client.send(b"SSH-2.0-x\r\n")
        assert client.read_exact(8) == b"SSH-2.0-"
    assert way.requests[2].target == f"{SERVERS[4]}:443"


def test_a_name_that_is_not_proven_selects_no_route(scene):
    stage = scene("redirect", """default = "allow"
[[rules]]
action = "allow"
hosts = ["other.test", "here.test"]
route = "corp"
""", config=PARENT + 'resolve = "parent"\n')
    origin, way = stage.origin(), stage.parent()
    assert stage.ask(SERVERS[4], "other.test").status == 200
    assert (len(origin.requests), way.connections) == (1, [])
    assert stage.ask(SERVERS[4], "here.test").status == 200
    assert way.requests[0].target == f"{SERVERS[4]}:80"


# TLS


@pytest.mark.parametrize(("named", "host", "passes"), [
    ("here.test", "here.test", True), ("other.test", SERVERS[4], False),
    (None, SERVERS[4], False), ("bad.test", "bad.test", False)])
@pytest.mark.parametrize("how", WAYS)
def test_the_server_name_of_tls_narrows(scene, how, named, host, passes):
    stage = scene(how, HOSTS)
    origin = stage.origin(echo, port=443)
    hello = client_hello(named)
    with Stream(stage.router.dial(SERVERS[4], 443)) as client:
        client.send(hello[:100])
        client.send(hello[100:])
        if passes:
            assert client.read_exact(len(hello)) == hello, "every byte, unchanged"
        else:
            assert client.at_eof(), "no reply that TLS would not understand"
    (record,) = stage.proxy.wait_log(1)
    assert (record["host"], record["status"], record["reason"]) == (
        host, 0, "ok" if passes else "destination_denied")
    assert len(origin.connections) == passes


def client_hello(named: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = named is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=named).do_handshake()
    return outgoing.read()


# Refusals


@pytest.mark.parametrize("how", WAYS)
def test_a_caller_that_nothing_redirected_is_a_loop(scene, how):
    """It would dial itself for ever."""
    stage = scene(how)
    assert stage.ask("10.9.0.1", "here.test", 3129).status == 508
    with Stream(stage.router.dial("10.9.0.1", 3129)) as client:
        client.send(b"\x00\x01")
        assert client.at_eof()
    assert [one["reason"] for one in stage.proxy.wait_log(2)] == ["loop_detected"] * 2


def test_a_client_outside_the_networks_is_refused(scene):
    stage = scene("redirect")
    stage.origin()
    with socket.create_connection(("198.18.0.1", 3129)) as sock, Stream(sock) as client:
        client.send(request("here.test"))
        assert client.read_response().status == 407


def test_a_tunnel_that_is_cut_does_not_look_whole(scene):
    stage = scene("redirect", config='idle_timeout = "300ms"')
    stage.origin(echo, port=443)
    with Stream(stage.router.dial(SERVERS[4], 443)) as client:
        client.send(b"\x00\x01 no protocol")
        assert client.read_exact(14) == b"\x00\x01 no protocol"
        with pytest.raises(ConnectionResetError):
            client.read_rest()
    stage.proxy.wait_reason("idle_timeout", status=0)


def test_a_hello_that_never_completes_ends_by_the_deadline(scene):
    stage = scene("redirect")
    stage.proxy.reload(stage.proxy._config.read_text().replace(
        "address_floor", 'head_timeout = "2s"\naddress_floor'))
    with Stream(stage.router.dial(SERVERS[4], 443)) as client:
        client.send(client_hello("here.test")[:60])
        assert client.at_eof()
    stage.proxy.wait_reason("head_timeout", status=0)


# Configuration and tuning


@pytest.mark.parametrize(("text", "told"), [
    ('transparent = "redirect"', "cannot log in"),
    ('transparent = "nat"\nauth = "none"', "is not one of off, redirect, tproxy"),
    ('transparent = "tproxy"\nauth = "none"\nprotocols = ["http", "socks5"]',
     "protocols: contradicts transparent"),
    ('transparent = "redirect"\nauth = "none"\npac = true\nproxy_protocol = true',
     "proxy_protocol: contradicts transparent"),
    ('address = "unix:/run/x"\ntransparent = "redirect"\nauth = "none"',
     "nftables brings nothing to a path")])
def test_check_explains_a_mistake(tmp_path, text, told):
    status, said = check(tmp_path, text)
    assert status == 2 and told in said, said


def test_check_reports_a_capability_that_is_missing(tmp_path):
    status, said = check(tmp_path, 'transparent = "tproxy"\nauth = "none"', "setpriv",
                         "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all")
    assert status == 2 and "tproxy needs CAP_NET_ADMIN" in said, said


def check(folder, text, *wrap):
    (folder / "c.toml").write_text(
        'user = "me"\npassword = "secret"\n[[listeners]]\n'
        + ("" if "address" in text else 'address = "127.0.0.1:3129"\n') + text + "\n")
    done = subprocess.run(
        [*wrap, sys.executable, "-m", "cutthrough", "check", "-c",
         folder / "c.toml"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("how", WAYS)
def test_the_script_checks_what_it_prints_and_says_how_to_take_it_back(scene, how):
    stage = scene(how)
    script = ROOT / "tuning" / "transparent"

    def look() -> tuple[int, str]:
        done = subprocess.run([script, "--check", how, "3129"], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout

    assert look()[0] == 0, look()
    printed = subprocess.run([script, how, "3129"], capture_output=True, text=True,
                             check=True).stdout
    undo = re.match(r"# to take it back: (.+)\n", printed)
    assert undo
    subprocess.run(["sh", "-c", undo[1]], check=True, capture_output=True)
    assert look()[0] == 1 and stage.proxy.process.poll() is None


def test_connections_of_this_host_are_brought_but_for_the_proxy_s_user(scene):
    """The rule knows the proxy by its user; here that is root, as the tests are."""
    text = subprocess.run(
        [ROOT / "tuning" / "transparent", "redirect", "3129", "--local", "nobody"],
        capture_output=True, text=True, check=True).stdout
    assert 'meta skuid != "nobody"' in text and "daddr type != local" in text
    stage = scene("redirect")
    stage.router.intercept("redirect", "3129", "--local", "root")
    stage.origin()
    assert stage.ask(SERVERS[4], "here.test").status == 200


@pytest.mark.parametrize("words", [
    ["nat", "80"], ["redirect", "0"], ["redirect", "80", "--ports", "80;reboot"],
    ["redirect", "80", "--in", 'x" }'], ["tproxy", "80", "--local", "me"],
    ["redirect"]])
def test_the_script_refuses_what_is_no_port_device_or_user(words):
    done = subprocess.run([ROOT / "tuning" / "transparent", *words],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
