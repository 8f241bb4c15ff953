"""Requests in origin form, and the named origin that a rule chooses for them."""

import subprocess
import urllib.request

import pytest

from tests.support.client import AUTH, Client, build_request
from tests.support.handovers import RENEW
from tests.support.origins import HOST, RULE, named, say
from tests.support.proxy import clean_environment
from tests.support.wait import wait_until
from tests.support.websockets import parrot
from tests.wire.twin_proxy import build_line

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    """A proxy with this origin, and a rule for it."""
    def make(*servers, policy: str = RULE, config: str = "", **more: object):
        return start_policy(policy, config + named(*servers, **more))
    return make


def test_a_request_in_origin_form_is_served_from_the_origin(start, make_origin, dial):
    server = make_origin()
    proxy = start(server)
    client = dial(proxy)
    for path in ("/v1/x", "/v1/y?a=1"):
        reply = client.get(path, host=HOST)
        assert (reply.status, reply.body) == (200, b"ok")
    assert [one.target for one in server.requests] == ["/v1/x", "/v1/y?a=1"]
    for request in server.requests:
        assert request.all("Host") == [HOST], "kept"
        assert request.get("Proxy-Authorization") is None
        assert request.get("Via").startswith("1.1 ")
        assert request.get("X-Forwarded-For") is None, "off by default"
    assert len(server.connections) == 1, "the connection is used again"
    for line in proxy.wait_log(2):
        assert (line["host"], line["port"], line["rule"]) == (HOST, 80, "api")
        assert line["url"].startswith(f"http://{HOST}/v1/")
        assert line["origin"] == f"api/127.0.0.1:{server.port}"
        assert line["peer"] == "127.0.0.1" and "parent" not in line


def test_a_body_goes_up_and_comes_back(start, make_origin, dial):
    def script(conn):
        while True:
            body = conn.read_request().body
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            conn.send(head, body)
    server = make_origin(script)
    proxy = start(server)
    client = dial(proxy)
    big = bytes(range(256)) * 8192
    assert client.ask("POST", "/up", f"Content-Length: {len(big)}", host=HOST,
                      body=big).body == big
    chunked = b"5\r\nhello\r\n0\r\n\r\n"
    assert client.ask("PUT", "/up", "Transfer-Encoding: chunked", host=HOST,
                      body=chunked).body == b"hello"
    assert [one.method for one in server.requests] == ["POST", "PUT"]


def test_host_and_path_choose_the_origin_and_the_first_rule_counts(
        start_policy, make_origin, dial):
    a, b, c = (make_origin(say(word)) for word in "abc")
    proxy = start_policy("""
        [[rules]]
        action = "deny"
        hosts = ["api.local"]
        paths = ["/admin/**"]
        [[rules]]
        action = "allow"
        hosts = ["api.local"]
        paths = ["/v1/**"]
        origin = "a"
        [[rules]]
        action = "allow"
        hosts = ["api.local"]
        origin = "b"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        origin = "c"
        """, named(a, name="a") + named(b, name="b") + named(c, name="c"))
    client = dial(proxy)
    for path, host, status, body in (
            ("/v1/x", HOST, 200, b"a"), ("/v2", HOST, 200, b"b"),
            ("/admin/x", HOST, 403, None),
            ("/v1/x", f"127.0.0.1:{proxy.port}", 200, b"c"),
            ("/v1/x", "127.0.0.9", 200, b"c"), ("/v1/x", "other.local", 403, None)):
        reply = client.get(path, host=host)
        assert (reply.status, reply.body) == (
            status, reply.body if body is None else body), (path, host)
    assert [one["reason"] for one in proxy.wait_log(6)].count("ok") == 4


def test_without_a_policy_the_option_names_the_origin(start_proxy, make_origin, dial):
    server = make_origin(say("named"))
    proxy = start_proxy(config='origin = "api"\n' + named(server))
    assert dial(proxy).get("/", host="any.test:81").body == b"named"
    assert server.requests[0].all("Host") == ["any.test:81"]


def test_the_option_serves_requests_whose_rule_names_no_origin(
        start_policy, make_origin, dial):
    server, other = make_origin(say("api")), make_origin(say("other"))
    proxy = start_policy(
        RULE + '[[rules]]\naction = "allow"\nhosts = ["b.local"]\nroute = "direct"\n',
        'origin = "other"\n' + named(server) + named(other, name="other"))
    client = dial(proxy)
    assert client.get("/", host=HOST).body == b"api"
    assert client.get("/", host="b.local").body == b"other"


def test_a_rule_with_an_origin_opens_nothing_else(start, make_origin, dial):
    """R95: no tunnel, and no request in absolute form, which name their destination."""
    server = make_origin()
    proxy = start(server, config='dns_overrides = ["api.local=127.0.0.1"]\n')
    assert dial(proxy).connect(f"{HOST}:{server.port}").status == 403
    assert dial(proxy).get(f"http://{HOST}:{server.port}/").status == 403
    assert dial(proxy).get("/", host=HOST).status == 200
    assert [one["reason"] for one in proxy.wait_log(3)] == [
        "destination_denied", "destination_denied", "ok"]
    assert len(server.connections) == 1


@pytest.mark.parametrize("request_head", [
    b"GET / HTTP/1.1\r\nHost: b.local\r\n", b"GET / HTTP/1.0\r\n"],
    ids=["no origin", "no Host"])
def test_a_request_without_an_origin_is_refused(
        start, make_origin, dial, request_head):
    server = make_origin()
    proxy = start(server, policy=(
        RULE + '[[rules]]\naction = "allow"\nhosts = ["b.local"]\n'))
    client = dial(proxy)
    client.send(request_head + AUTH.encode() + b"\r\n")
    assert client.read_response().status == 400
    assert proxy.wait_log(1)[0]["reason"] == "no_origin"
    assert not server.connections


def test_credentials_are_needed_unless_the_listener_is_open(
        start_policy, make_origin, dial):
    server = make_origin()
    proxy = start_policy(RULE + 'users = ["user", "sdk"]\n', (
        '[[listeners]]\naddress = "127.0.0.1:0"\nauth = "none"\nuser = "sdk"\n'
        '[[listeners]]\naddress = "127.0.0.1:0"\n') + named(server))
    doors = {}
    for port in proxy.ports:
        with Client(port) as client:
            doors[port] = client.get("/", host=HOST, auth=None).status
    assert sorted(doors.values())[0] == 200 and 407 in doors.values(), doors
    assert {one["user"] for one in proxy.wait_log(len(doors))
            if one["reason"] == "ok"} == {"sdk"}


def test_host_is_set(start, make_origin, dial):
    for host, sent in (("url", None), ("api.example.com", "api.example.com"),
                       ("api.example.com:8443", "api.example.com:8443")):
        server = make_origin()
        proxy = start(server, host=host)
        client = dial(proxy)
        for _ in range(2):
            assert client.get("/a", "X-A: 1", host=HOST).status == 200
        for request in server.requests:
            assert request.all("Host") == [sent or f"127.0.0.1:{server.port}"]
            assert request.get("X-A") == "1"
        assert proxy.wait_log(2)[0]["host"] == HOST


FORGED = ("X-Forwarded-For: 6.6.6.6", "x-forwarded-proto: gopher",
          "X-Forwarded-Host: evil.test", "X-Forwarded-Prefix: /evil",
          "X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6", "X-Other: kept")


@pytest.mark.parametrize(("how", "fields"), [
    ("keep", {"X-Forwarded-For": ["6.6.6.6"], "X-Real-IP": ["6.6.6.6"],
              "Forwarded": ["for=6.6.6.6"], "X-Forwarded-Prefix": ["/evil"]}),
    ("remove", {}),
    ("x", {"X-Forwarded-For": ["127.0.0.1"], "X-Forwarded-Host": [HOST],
           "X-Forwarded-Proto": ["http"], "X-Forwarded-Port": ["80"]}),
    ("rfc7239", {"Forwarded": [f'for=127.0.0.1;host="{HOST}";proto=http']}),
    ("both", {"X-Forwarded-For": ["127.0.0.1"], "X-Forwarded-Proto": ["http"],
              "Forwarded": [f'for=127.0.0.1;host="{HOST}";proto=http']})])
def test_forged_fields_are_removed(start, make_origin, dial, how, fields):
    """R95."""
    server = make_origin()
    proxy = start(server, forwarded=how, host="url")
    assert dial(proxy).get("/", *FORGED, host=HOST).status == 200
    (request,) = server.requests
    assert request.get("X-Other") == "kept"
    for name in ("X-Forwarded-For", "X-Forwarded-Prefix", "X-Real-IP", "Forwarded"):
        assert request.all(name) == fields.get(name, []), name
    for name, values in fields.items():
        assert request.all(name) == values, name


def test_a_trusted_proxys_fields_are_continued(start, make_origin, dial, opened):
    server = make_origin()
    proxy = start(server, forwarded="both", forwarded_from=["127.0.0.2/32"])
    fields = ("X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 192.0.2.8",
              "X-Forwarded-Proto: https", "X-Forwarded-Host: www.test",
              "Forwarded: for=192.0.2.7")
    for source in ("127.0.0.2", "127.0.0.3"):
        client = opened.enter_context(Client(proxy.port, source=source))
        assert client.get("/", *fields, host=HOST).status == 200
    trusted, other = server.requests
    assert trusted.all("X-Forwarded-For") == ["192.0.2.7, 192.0.2.8, 127.0.0.2"]
    assert trusted.all("X-Forwarded-Proto") == ["https"]
    assert trusted.all("X-Forwarded-Host") == ["www.test"]
    assert trusted.all("Forwarded") == [
        f'for=192.0.2.7, for=127.0.0.2;host="{HOST}";proto=http']
    assert other.all("X-Forwarded-For") == ["127.0.0.3"]
    assert other.all("X-Forwarded-Proto") == ["http"]


def test_the_address_of_a_proxy_header_is_the_clients(start, make_origin, opened):
    server = make_origin()
    proxy = start(server, forwarded="both", config=(
        'proxy_protocol_from = ["127.0.0.1"]\n[[listeners]]\n'
        'address = "127.0.0.1:0"\nproxy_protocol = true\n'))
    for address, element in (("192.0.2.7", "192.0.2.7"),
                             ("2001:db8::7", '"[2001:db8::7]"')):
        client = opened.enter_context(Client(proxy.port))
        client.send(build_line(address) + build_request("GET", "/", host=HOST))
        assert client.read_response().status == 200
        assert server.requests[-1].all("X-Forwarded-For") == [address]
        assert server.requests[-1].get("Forwarded").startswith(f"for={element};")


def test_clients_with_a_base_url_need_to_know_of_no_proxy(start, make_origin):
    server = make_origin(say("served"))
    proxy = start(server, policy=(
        '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\norigin = "api"\n'),
        config='[[listeners]]\naddress = "127.0.0.1:0"\nauth = "none"\n')
    url = f"http://127.0.0.1:{proxy.port}/v1/models"
    done = subprocess.run(["curl", "-sS", "--fail", url, url], capture_output=True,
                          env=clean_environment(), timeout=60, check=True)
    assert done.stdout == b"servedserved"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, data=b"{}", timeout=60) as reply:
        assert reply.read() == b"served"
    assert [one.method for one in server.requests] == ["GET", "GET", "POST"]
    assert server.requests[0].get("Host") == f"127.0.0.1:{proxy.port}"


def test_an_upgrade_goes_through(start, make_origin, dial):
    server = make_origin(parrot)
    proxy = start(server, host="url", forwarded="x")
    client = dial(proxy)
    client.send(build_request("GET", "/chat", "Connection: Upgrade",
                              "Upgrade: websocket", host=HOST))
    client.read_until(b"welcome")
    client.send(b"more")
    client.read_until(b"more")
    assert server.requests[0].all("Host") == [f"127.0.0.1:{server.port}"]
    client.close()
    (line,) = proxy.wait_log(1)
    assert (line["kind"], line["origin"]) == ("tunnel", f"api/127.0.0.1:{server.port}")


def test_an_upgrade_stays_when_rules_about_addresses_change(
        start, make_origin, dial):
    """A rule with `cut` ended the tunnel: it was judged by the server's own address."""
    server = make_origin(parrot)
    proxy = start(server)
    client = dial(proxy)
    client.send(build_request("GET", "/chat", "Connection: Upgrade",
                              "Upgrade: websocket", host=HOST))
    client.read_until(b"welcome")
    deny = ('[[rules]]\naction = "deny"\naddresses = ["127.0.0.0/8"]\ncut = true\n')
    proxy.policy.write_text(deny + RULE)
    assert "refused" not in proxy.hup()
    client.send(b"more")
    client.read_until(b"more")
    proxy.policy.write_text(deny.replace("addresses", "hosts").replace(
        "127.0.0.0/8", HOST) + RULE)
    proxy.hup()
    assert client.at_eof()


def test_an_upgrade_goes_on_in_the_next_worker(start_proxy, make_origin, dial):
    server = make_origin(parrot)
    text = '{}origin = "api"\n' + named(server)
    proxy = start_proxy(config=text.format(""))
    before = proxy.worker.pid
    client = dial(proxy)
    client.send(build_request("GET", "/chat", "Connection: Upgrade",
                              "Upgrade: websocket", host=HOST))
    client.read_until(b"welcome")
    proxy.reload(text.format(RENEW.format(9999)))
    wait_until(lambda: [one.pid for one in proxy.workers()] != [before] and len(
        proxy.workers()) == 1, "the worker is replaced")
    client.send(b"more")
    client.read_until(b"more")
    client.close()
    (line,) = proxy.wait_log(1)
    assert line["origin"] == f"api/127.0.0.1:{server.port}" and "parent" not in line


def test_the_proxy_itself_is_no_server(start_policy, dial):
    """R20: no circle, also if the operator names it."""
    table = '[origins.api]\nurls = ["http://127.0.0.1:{}"]\n'
    proxy = start_policy(RULE, table.format(9))
    proxy.reload(f'policy = "{proxy.policy}"\n' + table.format(proxy.port))
    assert dial(proxy).get("/", host=HOST).status == 508
    assert proxy.wait_log(1)[0]["reason"] == "loop_detected"


@pytest.mark.parametrize("action", ["deny", "allow"])
def test_rules_about_addresses_do_not_judge_the_servers(
        start, make_origin, dial, action):
    """The operator has named them. The floor is on: there is a policy. An allow rule
    above was one that could match, so the request was refused."""
    server = make_origin()
    proxy = start(server, policy=f'[[rules]]\naction = "{action}"\n'
                  'addresses = ["127.0.0.0/8"]\n' + RULE)
    client = dial(proxy)
    for _ in range(2):                      # dialled, and from the pool
        assert client.get("/", host=HOST).status == 200
    assert client.get("/", host="127.0.0.1").status == (
        403 if action == "deny" else 400), "Host itself is judged"
