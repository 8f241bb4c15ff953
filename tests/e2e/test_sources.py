"""Direct connections come from the addresses of a rule's source, or of the user's."""

import ipaddress
import json
import subprocess
import sys

import pytest

from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.handovers import renew
from tests.support.network import own_network
from tests.support.origin import Connection, Origin, echo
from tests.support.parents import http, parent
from tests.support.proxy import ROOT, Proxy
from tests.support.successors import end_family
from tests.support.users import basic, hash_of
from tests.support.wait import takes_less

A, B, C = "127.0.0.11", "127.0.0.12", "127.0.0.13"
PREFIX = ipaddress.ip_network("2001:db8:5::/64")
# The tests' origins are on loopback
OPEN = 'address_floor = "off"\nconnect_ports = "any"\n'
RULES = """default = "allow"
[[rules]]
action = "allow"
hosts = ["b.test"]
source = "second"
"""


def table(name: str, **keys: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join((f"[sources.{name}]", *lines, ""))


FIRST, SECOND = table("first", addresses=[A], users=[USER]), table(
    "second", addresses=[B])


NAMES = 'dns_overrides = ["a.test=127.0.0.1", "b.test=127.0.0.1"]\n'


@pytest.fixture
def start(opened, directory, loop_name):
    """A proxy with these tables and these rules."""
    def run(tables: str, rules: str = "", options: str = "") -> Proxy:
        folder = directory("sources")
        if rules:
            (folder / "policy.toml").write_text(rules)
            options += f'policy = "{folder}/policy.toml"\n'
        proxy = opened.enter_context(
            Proxy(folder, config=OPEN + options + tables, loop=loop_name))
        opened.callback(end_family, str(proxy._config))
        return proxy
    return run


def tell_caller(conn: Connection) -> None:
    """Answers each request with the address that the connection comes from."""
    caller = conn.sock.getpeername()[0].encode()
    while True:
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(caller))
        conn.send(caller)


def caller_of(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status == 200
    return response.body.decode()


def seen(proxy: Proxy, count: int = 1) -> list[tuple]:
    return [(one.get("source"), one.get("source_address"))
            for one in proxy.wait_log(count)]


def test_a_rule_s_source_comes_before_the_user_s(start, make_origin, dial):
    proxy, origin = start(FIRST + SECOND, RULES, NAMES), make_origin(tell_caller)
    for host, name, address in (("a.test", "first", A), ("b.test", "second", B)):
        proxy.mark()
        url = f"http://{host}:{origin.port}/"
        assert caller_of(dial(proxy), url) == address
        assert seen(proxy) == [(name, address)]


def test_a_tunnel_comes_from_its_source_and_keeps_its_name_in_another_worker(
        start, make_origin, dial):
    proxy, origin = start(FIRST), make_origin(echo)
    client = dial(proxy)
    assert client.connect(origin.authority).status == 200
    origin.wait_connections(1)
    assert origin.connections[0].sock.getpeername()[0] == A
    renew(proxy, 2000, OPEN + FIRST)
    client.send(b"still")
    assert client.read_exact(5) == b"still"
    client.close()
    assert seen(proxy) == [("first", A)]


@pytest.mark.any_loop
def test_a_group_has_a_source_and_a_user_s_own_comes_first(
        start, make_origin, dial):
    rules = f"""default = "allow"
[groups]
far = ["{USER}"]
"""
    url = make_origin(tell_caller).url()
    of_group = table("far", addresses=[C], groups=["far"])
    assert caller_of(dial(start(of_group, rules)), url) == C
    assert caller_of(dial(start(of_group + FIRST, rules)), url) == A


@pytest.mark.any_loop
def test_no_source_no_field(start, make_origin, dial):
    proxy = start(SECOND)
    assert caller_of(dial(proxy), make_origin(tell_caller).url()) == "127.0.0.1"
    assert seen(proxy) == [(None, None)]


# Idle connections (R46)


@pytest.mark.any_loop
def test_an_idle_connection_serves_its_own_source_alone(start, make_origin, dial):
    """Both names are one destination: the same host, port and key."""
    rules = """default = "allow"
[[rules]]
action = "allow"
methods = ["OPTIONS"]
source = "second"
"""
    proxy, origin = start(FIRST + SECOND, rules), make_origin(tell_caller)
    client = dial(proxy)
    for _ in range(2):
        assert caller_of(client, origin.url()) == A
        assert client.ask("OPTIONS", origin.url()).body == B.encode()
    assert [one.sock.getpeername()[0] for one in origin.connections] == [A, B]


@pytest.mark.any_loop
def test_an_idle_connection_of_a_user_s_own_address_serves_that_user_alone(
        start, make_origin, dial):
    addresses = [f"127.0.0.{n}" for n in range(20, 60)]
    users = ["ann", "bob", "eve"]
    known = "".join(f"[users.{name}]\npassword = \"{hash_of('one')}\"\n"
                    for name in users)
    source = table("own", addresses=addresses, choose="sticky_user", users=users)
    proxy = start(source, 'default = "allow"\n' + known)
    origin = make_origin(tell_caller)
    found = {}
    for _ in range(3):
        for name in users:
            with proxy.client() as client:
                response = client.get(origin.url(), auth=basic(f"{name}:one"))
                found.setdefault(name, set()).add(response.body)
    assert all(len(callers) == 1 for callers in found.values()), found
    assert len(set.union(*found.values())) == len(users)
    assert len(origin.connections) == len(users), "each served its user three times"


# Which address


@pytest.mark.any_loop
def test_a_destination_keeps_its_address_over_restarts(start, make_origin, dial):
    addresses = [f"127.0.0.{n}" for n in range(20, 60)]
    names = [f"n{n}.test" for n in range(8)]
    options = f"dns_overrides = {json.dumps([f'{one}=127.0.0.1' for one in names])}\n"
    source = table("some", addresses=addresses, choose="sticky_destination",
                   users=[USER])
    origin, found = make_origin(tell_caller), []
    for _ in range(2):
        client = dial(start(source, options=options))
        found.append([caller_of(client, f"http://{one}:{origin.port}/")
                      for one in names])
    assert found[0] == found[1] and len(set(found[0])) > 4


@pytest.mark.any_loop
def test_a_family_without_an_address_is_not_dialled_and_costs_no_time(
        start, make_origin, dial):
    options = 'dns_overrides = ["two.test=::1", "two.test=127.0.0.1", "six.test=::1"]\n'
    proxy = start(FIRST, options=options)
    origin, six = make_origin(tell_caller), make_origin(tell_caller, "::1")
    url = f"http://two.test:{origin.port}/"
    takes_less(0.25, lambda: caller_of(dial(proxy), url))
    assert six.connections == []
    for target in (f"http://six.test:{six.port}/", f"http://[::1]:{six.port}/"):
        proxy.mark()
        response = dial(proxy).get(target)
        assert response.status == 502
        assert "destination_ip_unroutable" in response.get("Proxy-Status")
        proxy.wait_reason("source_mismatch", source="first", peer=None)


@pytest.mark.any_loop
@pytest.mark.parametrize("keys", [{"addresses": ["192.0.2.77"]}, {"device": "wan7"}])
def test_a_source_that_this_host_lacks_is_a_reason_of_its_own(
        start, make_origin, dial, keys):
    proxy, origin = start(table("gone", **keys, users=[USER])), make_origin()
    for _ in range(3):
        response = dial(proxy).get(origin.url())
        assert response.status == 500
        assert "proxy_configuration_error" in response.get("Proxy-Status")
    assert len(proxy.wait_log(3, reason="source_unavailable", source="gone")) == 3
    assert origin.connections == []
    lines = [line for line in proxy.stderr().splitlines() if "source gone:" in line]
    assert len(lines) == 2, "the first and the second; the fourth would be the next"


@pytest.mark.any_loop
def test_a_reload_changes_addresses_for_new_connections(start, make_origin, dial):
    proxy, origin = start(FIRST), make_origin(tell_caller)
    client = dial(proxy)
    assert caller_of(client, origin.url()) == A
    changed = table("first", addresses=[C], users=[USER])
    assert "sources first addresses 127.0.0.11 -> 127.0.0.13" in proxy.reload(
        OPEN + changed)
    assert caller_of(client, origin.url()) == C
    assert len(proxy.workers()) == 1


# Prefixes, devices: networks of their own


@pytest.mark.any_loop
def test_an_address_is_drawn_from_a_prefix_for_each_connection(tmp_path):
    with own_network():
        subprocess.run(["ip", "-6", "route", "add", "local", str(PREFIX), "dev", "lo"],
                       check=True)
        source = table("wide", prefix=str(PREFIX), users=[USER])
        with Origin(tell_caller, "::1") as origin, Proxy(
                tmp_path, config=OPEN + source) as proxy:
            found = set()
            for _ in range(8):
                with proxy.client() as client:
                    client.send(build_request(      # a body: it is not pooled before
                        "POST", origin.url(), "Content-Length: 0"))
                    response = client.read_response()
                    found.add(ipaddress.ip_address(response.body.decode()))
        assert len(found) == 8 and all(one in PREFIX for one in found)


@pytest.mark.any_loop
def test_a_device_carries_a_connection_that_the_routes_send_elsewhere(tmp_path):
    """Two devices lead to the same address; the kernel would select the other."""
    with own_network():
        for line in (
                "link add near type veth peer name far",
                "link set near up", "link set far up",
                "addr add 198.18.0.1/24 dev near"):
            subprocess.run(["ip", *line.split()], check=True)
        source = table("near", device="near", users=[USER])
        options = 'connect_timeout = "300ms"\n'
        with Origin() as origin, Proxy(
                tmp_path, config=OPEN + options + source) as proxy:
            with proxy.client() as client:
                assert client.get(origin.url()).status in (502, 504)
            (record,) = proxy.wait_log(1)
            assert record["reason"] in ("connect_timeout", "unreachable")
            assert origin.connections == [], "127.0.0.1 is behind lo, not behind near"


# Reports of check and doctor


@pytest.mark.any_loop
@pytest.mark.parametrize(("tables", "rules", "told"), [
    (SECOND, RULES.replace('"second"', '"secnd"'), "did you mean second?"),
    ("", RULES, "define [sources.second] in the configuration file"),
    (table("x", addresses=[A], users=["nobody"]), "", "sources.x.users: 'nobody': no "
     "such user"),
    (table("x", addresses=[A], groups=["none"]), "", "no such group"),
    (FIRST + table("x", addresses=[B], users=[USER]), "", "already has sources.first"),
    (table("x", addresses=[A], prefix="10.0.0.0/8"), "", "addresses has IPv4 already"),
    (table("x", prefix="10.0.0.1/8"), "", "did you mean 10.0.0.0/8?"),
    (table("x", prefix="10.0.0.1/32"), "", "is one address"),
    (table("x", addresses=[A, A]), "", "is given twice"),
    (table("x", addresses=["0.0.0.0"]), "", "nothing can come from this address"),
    (table("x", choose="random"), "", "sets nothing"),
    (table("x", device="a/b"), "", "not the name of a network device"),
    (table("x", dscp="af99"), "", "neither a number up to 63 nor a class"),
    (SECOND, RULES.replace("allow", "deny"), "has no effect in a rule that denies"),
])
def test_check_explains_a_mistake(tmp_path, tables, rules, told):
    status, said = run("check", tmp_path, tables, rules)
    assert status == 2 and told in said, said


@pytest.mark.dials_out                      # doctor: the rebinding test
@pytest.mark.any_loop
def test_check_and_doctor_report_a_capability_that_is_missing(tmp_path):
    marked = table("m", mark=0x10)
    status, said = run("check", tmp_path, marked, wrap=NO_CAPABILITY)
    assert status == 2 and "needs CAP_NET_ADMIN" in said and "mark = 16" in said, said
    status, said = run("doctor", tmp_path, marked, wrap=NO_CAPABILITY)
    assert status == 1 and "mark: this process may not set it" in said, said


@pytest.mark.dials_out
@pytest.mark.any_loop
def test_doctor_reports_what_the_host_lacks(tmp_path):
    tables = (table("gone", addresses=["192.0.2.77", A]) + table("dev", device="wan7")
              + table("wide", prefix=str(PREFIX)))
    _, said = run("doctor", tmp_path, tables)
    for text in ("192.0.2.77: Cannot assign requested address", "wan7: No such device",
                 f"{PREFIX} is not local"):
        assert text in said, said
    assert A not in said


@pytest.mark.any_loop
def test_explain_shows_the_source_and_a_family_that_it_lacks(tmp_path):
    status, said = run("explain", tmp_path, FIRST + SECOND, RULES, NAMES,
                       ["CONNECT", "b.test:443"])
    assert status == 0 and "source   second  127.0.0.12" in said, said
    status, said = run("explain", tmp_path, FIRST + SECOND, RULES, "",
                       ["CONNECT", "[2001:4860::1]:443"])
    assert status == 1 and "refused 502  source_mismatch" in said, said


NO_CAPABILITY = ("setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all")


def run(verb, folder, tables, rules="", options="", more=(), wrap=()):
    """Exit status and everything printed."""
    if rules:
        (folder / "policy.toml").write_text(rules)
        options += f'policy = "{folder}/policy.toml"\n'
    text = f'user = "{USER}"\npassword = "{PASSWORD}"\n{options}{OPEN}{tables}'
    (folder / "c.toml").write_text(text)
    done = subprocess.run(
        [*wrap, sys.executable, "-m", "cutthrough", verb, "-c", str(folder / "c.toml"),
         *more], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    if "setpriv:" in done.stderr:            # only root may shrink the bounding set
        pytest.skip(done.stderr)
    return done.returncode, done.stdout + done.stderr


def test_a_parent_is_called_from_the_source_of_the_rule_if_it_wants_that(
        start, make_origin, dial):
    way = make_origin(http)
    for more, sources in (({"by_source": True}, [A, B]), ({}, ["127.0.0.1"] * 2)):
        before = len(way.connections)
        proxy = start(FIRST + SECOND + parent(way, **more), RULES,
                      NAMES + 'route = "corp"\n')
        for host in ("a.test", "b.test"):
            client = dial(proxy)
            assert client.tunnel(f"{host}:4711", early=b"x").read_exact(1) == b"x"
        seen_there = way.connections[before:]
        assert [one.sock.getpeername()[0] for one in seen_there] == sources
