"""Browsers read their configuration from the proxy itself."""

import asyncio

import pytest

import cutthrough
from cutthrough.config.settings import from_options
from cutthrough.generation.generation import Generation
from cutthrough.generation.pac import order_for
from cutthrough.policy.source import Policy
from tests.support.client import PASSWORD, USER, Client
from tests.support.handovers import RENEW
from tests.support.handovers import start as start
from tests.support.successors import end, successor_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

PLAIN = ('workers = 2\nlisten = ["127.0.0.1:0"]\n'
         '[[listeners]]\naddress = "127.0.0.1:0"\n')
PAC = PLAIN + 'pac = true\npac_direct = ["direct.example"]\n'
FILES = ("/proxy.pac", "/wpad.dat", "/proxy.pac?v=1")


def read(port: int, path: str = "/proxy.pac", method: str = "GET",
         host: str = "Proxy.Example:3128", source: str = ""):
    with Client(port, source=source) as client:
        client.send(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return client.read_response(method)


def test_the_file_names_the_proxy_as_the_browser_has_reached_it(start):
    proxy = start(PAC)
    _, port = proxy.ports
    for path in FILES:
        reply = read(port, path)
        assert reply.status == 200 and reply.get("Connection") == "close"
        assert reply.get("Content-Type") == "application/x-ns-proxy-autoconfig"
        assert reply.body.startswith(b'var proxy = "PROXY proxy.example:3128";')
        assert b'["=direct.example"]' in reply.body
    (record,) = (one for one in proxy.wait_log(3) if one["url"] == "/wpad.dat")
    assert (record["status"], record["reason"], record["user"], record["host"]) == (
        200, "ok", None, None)
    for host, shown in (("wpad", b"wpad:80"), ("[::1]:8080", b"[::1]:8080"),
                        ("192.0.2.1", b"192.0.2.1:80")):
        assert b'"PROXY ' + shown + b'";' in read(port, host=host).body


def test_proxies_of_a_fleet_come_in_the_clients_order(start):
    hosts = [f"proxy{number}.example:3128" for number in range(5)]
    proxy = start(PAC + f"pac_hosts = {hosts}\n")
    _, port = proxy.ports
    replies = {source: read(port, source=source)
               for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")}
    for source, reply in replies.items():
        ways = order_for([f"PROXY {host}".encode() for host in hosts], source.encode())
        assert reply.body.startswith(b'var proxy = "' + ways + b'";\n')
        assert "private" in reply.get("Cache-Control")
        assert read(port, source=source, host="other:1").body == reply.body
        assert len(reply.body) == int(read(port, method="HEAD", source=source).get(
            "Content-Length"))
    assert len({reply.body for reply in replies.values()}) > 1


def test_a_head_has_its_length_and_no_body(start):
    proxy = start(PAC)
    reply = read(proxy.ports[1], method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.get("Content-Length")) == len(read(proxy.ports[1]).body)


@pytest.mark.parametrize(("path", "method", "host"), [
    ("/proxy.pa", "GET", "a.b"), ("/proxy.pac/", "GET", "a.b"), ("/", "GET", "a.b"),
    ("//proxy.pac", "GET", "a.b"), ("/proxy.pac", "POST", "a.b"),
    ("/proxy.pac", "GET", 'a.b"];alert(1);//'), ("/proxy.pac", "GET", "")])
def test_anything_else_is_refused_as_before(start, path, method, host):
    proxy = start(PAC)
    assert read(proxy.ports[1], path, method, host).status == 400


def test_a_proxied_request_of_that_path_is_one_like_any_other(start, make_origin):
    """R41: the absolute form is judged, whatever its path."""
    proxy, origin = start(PAC), make_origin()
    with Client(proxy.ports[1]) as client:
        assert client.get(origin.url("/proxy.pac"), auth=None).status == 407
        assert client.get(origin.url("/proxy.pac")).body == b"ok"


def test_only_a_listener_that_says_so_serves_it_through_reload_and_upgrade(start):
    proxy = start(PLAIN)
    plain, port = proxy.ports

    def wait(status: int) -> None:
        wait_until(lambda: {read(port).status for _ in range(4)} == {status},
                   lambda: str(status))
        assert read(plain).status == 400

    wait(400)
    pids = {one.pid for one in proxy.workers()}
    line = proxy.reload(PAC)
    assert "listeners 127.0.0.1:0 pac false -> true" in line
    wait(200)
    assert pids == {one.pid for one in proxy.workers()}, "no new workers"
    proxy.reload(RENEW.format(9999) + PAC)
    wait(200)
    successor = successor_of(proxy)
    wait(200)
    end(successor)


def test_a_reload_of_the_policy_changes_the_file(start, directory):
    path = directory("policy") / "policy.toml"
    path.write_text('default = "allow"\n')
    proxy = start(f'policy = "{path}"\n' + PAC)
    assert b"var proxied = [];" in read(proxy.ports[1]).body
    path.write_text('default = "allow"\n[[rules]]\naction = "allow"\n'
                    'addresses = ["10.0.0.0/8"]\n')
    proxy.hup()
    assert b'var proxied = ["400001010"];' in read(proxy.ports[1]).body


def test_a_file_that_is_too_long_is_refused_with_its_place(start):
    proxy = start(PAC)
    long = ", ".join(f'"{"x" * 60}.{n}.example"' for n in range(200))
    line = proxy.reload(PLAIN + f"pac = true\npac_direct = [{long}]\n")
    assert "reload refused" in line and "at most 12288 can be served" in line


def test_a_worker_that_is_replaced_keeps_the_file_of_its_own_listener():
    """The new generation has no second listener, and the old worker is not done."""
    options = {"user": USER, "password": PASSWORD, "access_log": "off",
               "listen": ["127.0.0.1:0"]}

    async def main() -> None:
        rows = [{"address": "127.0.0.1:0", "pac": True}]
        async with cutthrough.serve(**options, listeners=rows) as proxy:
            port = proxy.worker._listeners[1].getsockname()[1]
            before = (await asyncio.to_thread(read, port)).body
            proxy.worker.swap(Generation(2, from_options(**options), Policy()))
            reply = await asyncio.to_thread(read, port)
            assert (reply.status, reply.body) == (200, before)

    asyncio.run(main())
