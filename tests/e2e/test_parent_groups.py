"""Groups of parents, routes in rules, chains and loops (R20, R43, R44, R46)."""

import time

import pytest

from tests.support.client import Client
from tests.support.dns import NameServer
from tests.support.handovers import RENEW
from tests.support.origin import Connection, echo
from tests.support.parent_groups import OPEN, group, used
from tests.support.parents import ESTABLISHED, go_on, http, parent, say
from tests.support.wait import wait_until
from tests.wire.twin_proxy import read_proxy_header


@pytest.fixture
def group_of(start_proxy, make_origin):
    """A proxy, and the parents a, b, …: a group of them is its only way."""
    def start(*scripts, config: str = "", direct: bool = False, **more: object):
        ways = [make_origin(script) for script in scripts]
        names = "abcdefg"[:len(ways)]
        proxy = start_proxy(config=f'route = "corp"\n{config}\n' + "".join(
            parent(way, name=name) for way, name in zip(ways, names, strict=True))
            + group(*names, *(["direct"] if direct else []), **more))
        return proxy, ways
    return start


# Failover


@pytest.mark.any_loop
@pytest.mark.parametrize("failing", [
    say(b"HTTP/1.1 502 x\r\n\r\n"), say(b"HTTP/1.1 407 x\r\n\r\n"), say(b"", True),
    say(b"garbage"), lambda conn: None], ids=["502", "407", "end", "garbage", "close"])
def test_another_parent_is_taken_while_nothing_was_sent(group_of, dial, failing):
    proxy, (first, _) = group_of(failing, http)
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert dial(proxy).get("http://127.0.0.1:4711/a").body == b"ok"
    client.close()
    assert [one["parent"] for one in proxy.wait_log(2)] == ["b", "b"]
    assert b"early" not in first.received and len(first.connections) == 2


@pytest.mark.any_loop
@pytest.mark.parametrize("status", [400, 403, 404, 451, 508])
def test_a_parents_decision_is_final(group_of, make_origin, dial, status):
    proxy, (_, second) = group_of(
        say(b"HTTP/1.1 %d x\r\n\r\n" % status), http, direct=True)
    origin = make_origin(echo)
    assert dial(proxy).connect(origin.authority).status == 502
    (record,) = proxy.wait_log(1)
    assert (record["parent"], record["parent_status"]) == ("a", status)
    assert second.connections == origin.connections == [], "R44"


@pytest.mark.any_loop
def test_nothing_goes_directly_unless_direct_is_listed(group_of, make_origin, dial):
    origin = make_origin(echo)
    for direct in (False, True):
        proxy, _ = group_of(say(b"", True), say(b"", True), direct=direct)
        reply = dial(proxy).connect(origin.authority)
        assert reply.status == (200 if direct else 502)
        if direct:
            origin.wait_connections(1)
        else:
            assert origin.connections == [], "R44"
            assert proxy.wait_reason("parent_closed")["parent"] == "b"


@pytest.mark.any_loop
def test_the_wait_for_a_parent_in_vain_is_no_look_ups(group_of, make_origin, dial):
    """It was in dns_ms, by which an operator suspects the name server."""
    def script(conn: Connection) -> None:
        conn.fill()
        time.sleep(0.4)                 # the duration that is to be logged

    proxy, _ = group_of(script, direct=True)
    origin = make_origin()
    assert dial(proxy).get(f"http://localhost:{origin.port}/").status == 200
    (record,) = proxy.wait_log(1)
    assert record["dns_ms"] < 400 <= record["connect_ms"]


@pytest.mark.any_loop
def test_a_parent_that_fails_is_left_out_and_tried_again(group_of, dial):
    """Failures with three destinations open its circuit for this user; a second later
    one request tries it."""
    state = {"works": False}

    def script(conn: Connection) -> None:
        if state["works"]:
            http(conn)
    proxy, (first, _) = group_of(script, http)
    assert used(proxy, dial, 6, step=1) == ["b"] * 6
    assert len(first.connections) == 3
    state["works"] = True
    wait_until(lambda: used(proxy, dial, 1) == ["a"], "the circuit closes again")
    assert used(proxy, dial, 3) == ["a"] * 3
    assert len(first.connections) == 7


# The choice


@pytest.mark.any_loop
def test_round_robin_takes_turns_by_weight(group_of, dial):
    proxy, _ = group_of(http, http, choose="round_robin", weights=[2, 1])
    assert used(proxy, dial, 6) == ["a", "b", "a", "a", "b", "a"]


@pytest.mark.any_loop
def test_least_connections_counts_what_is_open(group_of, dial):
    proxy, (first, second) = group_of(http, http, choose="least_connections")
    held = [dial(proxy).tunnel("127.0.0.1:4711") for _ in range(4)]
    assert len(first.connections) == len(second.connections) == 2
    for client in held[::2]:
        client.close()
    proxy.wait_log(2)
    assert used(proxy, dial, 1) == used(proxy, dial, 1)     # closed again each time


@pytest.mark.any_loop
@pytest.mark.parametrize("by", ["user", "client", "destination"])
def test_a_hash_is_the_same_in_every_worker_and_moves_few_keys(
        start_proxy, make_origin, by):
    ways = [make_origin(http) for _ in range(3)]
    tables = [parent(way, name=name) for way, name in zip(ways, "abc", strict=True)]
    config = f"workers = 2\nroute = 'corp'\n{''.join(tables)}"
    proxy = start_proxy(config=config + group("a", "b", "c", choose=f"hash_{by}"))
    targets = [f"127.0.0.{n}:4711" for n in range(1, 13)]

    def ask() -> dict[str, set[str]]:
        proxy.mark()
        found: dict[str, set[str]] = {}
        for target in 3 * targets:
            with Client(proxy.port) as client:
                client.tunnel(target)
        for one in proxy.wait_log(3 * len(targets)):
            key = {"user": one["user"], "client": one["client"],
                   "destination": one["host"]}[by]
            found.setdefault(key, set()).add(one["parent"])
        return found

    before = ask()
    assert all(len(parents) == 1 for parents in before.values())
    assert len(before) == (len(targets) if by == "destination" else 1)
    proxy.reload(config + group("a", "b", choose=f"hash_{by}"))
    after = ask()
    assert all(after[key] == parents for key, parents in before.items()
               if parents != {"c"})


@pytest.mark.any_loop
def test_fastest_prefers_the_measured_one(group_of, dial):
    def slow(conn: Connection) -> None:
        conn.read_request()
        conn.is_silent(0.1)
        conn.send(ESTABLISHED)
        go_on(conn)
    proxy, _ = group_of(slow, http, choose="fastest", tolerance="20ms")
    assert set(used(proxy, dial, 2)) == {"a", "b"}
    assert used(proxy, dial, 4) == ["b"] * 4


# Rules


@pytest.mark.any_loop
def test_a_rule_names_the_way_and_the_default_is_for_the_others(
        start_policy, make_origin, dial):
    corp, other, origin = make_origin(http), make_origin(http), make_origin(echo)
    proxy = start_policy("""
        default = "allow"
        [[rules]]
        action = "allow"
        hosts = ["a.test"]
        route = "other"
        [[rules]]
        action = "allow"
        hosts = ["127.0.0.1"]
        route = "direct"
        """, OPEN + 'route = "corp"\ndns_overrides = ["a.test=127.0.0.2", '
        '"b.test=127.0.0.2"]\n' + parent(corp) + parent(other, name="other"))
    for target, way in (("a.test:1", "other"), ("b.test:1", "corp"),
                        (origin.authority, None)):
        assert used(proxy, dial, 1, target) == [way]


@pytest.mark.any_loop
def test_the_way_is_the_rules_that_matches_the_checked_address(
        start_policy, make_origin, dial):
    """The name matches a rule that depends on the address; the address decides."""
    corp, other = make_origin(http), make_origin(http)
    proxy = start_policy("""
        default = "deny"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.2"]
        route = "other"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        route = "corp"
        """, OPEN + 'dns_overrides = ["a.test=127.0.0.2", "b.test=127.0.0.3", '
        '"c.test=192.0.2.1"]\n' + parent(corp) + parent(other, name="other"))
    for target, way in (("a.test:1", "other"), ("b.test:1", "corp"),
                        ("127.0.0.2:1", "other")):
        assert used(proxy, dial, 1, target) == [way]
    assert dial(proxy).connect("c.test:1").status == 403
    assert len(corp.connections) == 1 and len(other.connections) == 2


@pytest.mark.any_loop
def test_a_rule_by_address_refuses_what_the_parent_resolves(
        start_policy, make_origin, dial):
    corp = make_origin(http)
    proxy = start_policy("""
        default = "deny"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        """, OPEN + 'route = "corp"\ndns_overrides = ["a.test=127.0.0.2"]\n'
        + parent(corp, resolve="parent"))
    assert dial(proxy).connect("a.test:1").status == 403
    assert dial(proxy).connect("127.0.0.2:1").status == 200
    assert [one.target for one in corp.requests] == ["127.0.0.2:1"], "R43"


@pytest.mark.any_loop
def test_the_floor_holds_before_a_parent(start_policy, make_origin, dial):
    corp = make_origin(http)
    proxy = start_policy('default = "allow"', 'connect_ports = "any"\nroute = "corp"\n'
                         'dns_overrides = ["a.test=127.0.0.2"]\n' + parent(corp))
    assert dial(proxy).connect("a.test:1").status == 403
    assert proxy.wait_log(1)[0]["reason"] == "address_denied"
    assert corp.connections == [], "R43"


@pytest.mark.any_loop
def test_an_address_is_dialled_only_the_way_that_its_rule_names(
        start_policy, make_origin, dial):
    """Of a name's two addresses the first one's way is taken: the second one is not
    dialled without its parent (R44)."""
    corp, origin = make_origin(http), make_origin(echo, "127.0.0.2")
    proxy = start_policy("""
        default = "allow"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.2"]
        route = "corp"
        """, OPEN + 'dns_overrides = ["a.test=127.0.0.1", "a.test=127.0.0.2"]\n'
        + parent(corp))
    reply = dial(proxy).connect(f"a.test:{origin.port}")
    assert (reply.status, origin.connections) == (502, [])


@pytest.mark.any_loop
def test_a_parent_gets_no_address_whose_rule_names_another_way(
        start_policy, make_origin, dial):
    corp = make_origin(say(b"HTTP/1.1 502 x\r\n\r\n"))
    proxy = start_policy("""
        default = "allow"
        [[rules]]
        action = "allow"
        addresses = ["::1"]
        route = "direct"
        """, OPEN + 'route = "corp"\ndns_overrides = ["a.test=127.0.0.1", '
        '"a.test=::1"]\n' + parent(corp))
    assert dial(proxy).connect("a.test:1").status == 502
    assert [one.target for one in corp.requests] == ["127.0.0.1:1"]


# Chains, ourselves, and circles


@pytest.mark.any_loop
def test_a_chain_is_asked_one_parent_after_the_other(start_proxy, make_origin, dial):
    """SOCKS5 to the first, CONNECT through it to the second."""
    def both(conn: Connection) -> None:
        def second(conn: Connection) -> None:
            http(conn)
        conn.origin.second = second
        socks_then(conn)

    def socks_then(conn: Connection) -> None:
        conn.read_exact(3)
        conn.send(b"\x05\0")
        conn.origin.heard = conn.read_exact(10)
        conn.send(b"\x05\0\0\x01\0\0\0\0\0\0")
        http(conn)
    way = make_origin(both)
    proxy = start_proxy(config='route = "last"\n' + parent(way, "socks5", "first")
                        + '[parents.last]\nurl = "http://127.0.0.9:3128"\n'
                          'via = "first"\n')
    client = dial(proxy).tunnel("127.0.0.1:4711", early=b"early")
    assert client.read_exact(5) == b"early"
    assert way.heard == b"\x05\x01\0\x01\x7f\0\0\x09\x0c\x38"
    assert [one.target for one in way.requests] == ["127.0.0.1:4711"]
    client.close()
    assert proxy.wait_log(1)[0]["parent"] == "last"


@pytest.mark.any_loop
def test_a_request_in_absolute_form_goes_to_the_last_of_a_chain(
        start_proxy, make_origin, dial, tmp_path):
    """The first one gets neither the request nor the last one's credentials (R45)."""
    file = tmp_path / "credentials"
    file.write_text("me:secret\n")
    way = make_origin(http)
    proxy = start_proxy(config='route = "last"\n' + parent(way, name="first")
                        + '[parents.last]\nurl = "http://127.0.0.9:3128"\n'
                          f'via = "first"\ncredentials_file = "{file}"\n'
                          'resolve = "parent"\nplain = "absolute"\n')
    client = dial(proxy)
    for _ in range(2):
        assert client.get("http://a.test:4711/a").status == 200
    connect, first, second = way.requests
    assert (connect.method, connect.target) == ("CONNECT", "127.0.0.9:3128")
    assert not connect.all("proxy-authorization")
    assert first.target == second.target == "http://a.test:4711/a"
    assert first.all("proxy-authorization")


@pytest.mark.any_loop
def test_a_proxy_header_to_the_first_of_a_chain_names_one_client(
        start_proxy, make_origin, dial):
    """So its connection is no other request's (R46, R50)."""
    def script(conn: Connection) -> None:
        data = b""
        while (named := read_proxy_header(data)) is None:
            data += conn.read_exact(1)
        conn.origin.heard.append(named.port)
        conn.read_request()
        conn.send(ESTABLISHED)
        http(conn)
    way = make_origin(script)
    way.heard = []
    proxy = start_proxy(config='route = "last"\n'
                        + parent(way, name="first", proxy_protocol="v2")
                        + '[parents.last]\nurl = "http://127.0.0.9:3128"\n'
                          'via = "first"\n')
    clients = [dial(proxy), dial(proxy)]
    for client in clients:
        assert client.get("http://127.0.0.1:4711/a").status == 200
    assert way.heard == [client.sock.getsockname()[1] for client in clients]


@pytest.mark.any_loop
def test_two_of_us_in_a_row_and_a_circle_ends_at_once(
        start_proxy, make_origin, dial, tmp_path):
    origin = make_origin(echo)
    far = start_proxy("--via", "far", config="")
    file = tmp_path / "credentials"
    file.write_text("user:pass:word\n")
    near = start_proxy("--via", "near", config=f'route = "far"\n[parents.far]\n'
                       f'url = "http://127.0.0.1:{far.port}"\n'
                       f'credentials_file = "{file}"\n')
    client = dial(near).tunnel(origin.authority, early=b"early")
    assert client.read_exact(5) == b"early"
    client.close()
    assert far.wait_log(1)[0]["reason"] == near.wait_log(1)[0]["reason"] == "ok"
    # Now the far one goes through the near one
    far.reload(f'route = "near"\n[parents.near]\n'
               f'url = "http://127.0.0.1:{near.port}"\ncredentials_file = "{file}"\n')
    assert dial(near).connect(origin.authority).status == 502
    assert near.wait_reason("loop_detected") and near.wait_reason("parent_refused")
    assert len(origin.connections) == 1


@pytest.mark.any_loop
def test_a_parent_without_an_address_is_unreachable_each_time(
        start_proxy, make_origin, dial, opened):
    """The resolver remembers that the name has no address."""
    names, other = opened.enter_context(NameServer({})), make_origin(http)
    proxy = start_proxy(config=f'resolvers = ["{names.address}"]\n'
                        'route = "corp"\n[parents.a]\nurl = "http://a.test:1"\n'
                        + parent(other, name="b") + group("a"))
    for _ in range(2):
        assert dial(proxy).connect("127.0.0.1:1").status == 503
    assert proxy.wait_log(2, reason="parent_unreachable")
    config = proxy._config.read_text()
    proxy.reload(config.replace("['a']", "['a', 'b']"))
    assert used(proxy, dial, 1) == ["b"]


@pytest.mark.any_loop
def test_our_own_listener_is_no_parent(start_proxy, make_origin, dial):
    proxy = start_proxy(config="")
    proxy.reload(f'route = "me"\n[parents.me]\nurl = "http://127.0.0.1:{proxy.port}"\n')
    assert dial(proxy).connect("127.0.0.1:4711").status == 508


# Reload, and hand-over


@pytest.mark.any_loop
def test_a_reload_changes_the_way_and_open_tunnels_stay(group_of, make_origin, dial):
    proxy, _ = group_of(http, http)
    held = dial(proxy).tunnel("127.0.0.1:4711")
    other = make_origin(http)
    answer = proxy.reload('route = "c"\n' + parent(other, name="c"))
    assert "workers replaced" not in answer
    dial(proxy).tunnel("127.0.0.1:4711").close()
    assert proxy.wait_reason("ok", parent="c")
    held.send(b"still")
    assert held.read_exact(5) == b"still"
    held.close()
    assert proxy.wait_reason("ok", parent="a")["bytes_up"] == 5


@pytest.mark.any_loop
def test_a_pooled_connection_belongs_to_its_parent_over_generations(
        group_of, make_origin, dial):
    proxy, (first, second) = group_of(http, http)
    config = proxy._config.read_text()
    client = dial(proxy)
    for text in (None, config, config.replace('["a", "b"]', '["b", "a"]').replace(
            "['a', 'b']", "['b', 'a']")):
        if text is not None:
            proxy.reload(text)
        assert client.get("http://127.0.0.1:4711/a").status == 200
    assert len(first.connections) == 1, "the same parent's, after a reload"
    assert len(second.connections) == 1, "R46"


def test_a_tunnel_through_a_parent_changes_its_worker(start_proxy, make_origin, dial):
    way = make_origin(http)
    config = 'route = "corp"\n' + parent(way)
    proxy = start_proxy(config=config)
    client = dial(proxy).tunnel("127.0.0.1:4711")
    before = proxy.worker.pid
    proxy.reload(RENEW.format(9999) + config)
    wait_until(lambda: [one.pid for one in proxy.workers()] != [before]
               and len(proxy.workers()) == 1, "the worker is replaced")
    client.send(b"still")
    assert client.read_exact(5) == b"still"
    client.close()
    (record,) = proxy.wait_log(1)
    assert (record["parent"], record["peer"]) == ("corp", "127.0.0.1")
