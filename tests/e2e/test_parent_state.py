"""Operators see parents: in /parents, metrics, events, explain and route --try."""

import json

import pytest

from tests.support.admin import administered
from tests.support.origin import echo, stall
from tests.support.parent_groups import group
from tests.support.parents import BAD, http, parent, say
from tests.support.verbs import run_apart
from tests.support.wait import wait_until


@pytest.fixture
def start(loop_name, directory, opened):
    return lambda text: administered(opened, directory("proxy"), loop_name, text)


@pytest.fixture
def ask(tmp_path):
    """Runs a verb on a configuration; returns its status and output."""
    def run(verb: str, config: str, *flags: str) -> tuple[int, str]:
        path = tmp_path / "proxy.toml"
        path.write_text(f'listen = "127.0.0.1:0"\n{config}')
        done = run_apart(verb, "-c", path, *flags)
        assert done.stderr == ""
        return done.returncode, done.stdout
    return run


def texts(out: str) -> list[str]:
    """The steps of --try without their times and byte counts."""
    return [line.partition(" ms  ")[2].partition(" bytes")[0].rstrip("0123456789 :")
            for line in out.splitlines() if " ms  " in line]


# The admin listener


@pytest.mark.any_loop
def test_the_state_of_each_parent_and_why_it_failed(start, make_origin, dial):
    first, second = make_origin(say(BAD.format(407).encode())), make_origin(http)
    proxy, operator = start(
        'route = "corp"\n' + parent(first, name="a") + parent(second, name="b")
        + group("a", "b"))
    held = [dial(proxy).tunnel("127.0.0.1:4711") for _ in range(4)]

    def read() -> list[dict]:
        found = json.loads(operator.get("/parents"))["parents"]
        return found if found and found[1]["connects"] == 4 else []
    a, b = wait_until(read, "the page is written once a second")
    assert (a["name"], a["requests"], a["connects"]) == ("a", 3, 0)
    assert a["failures"]["parent_auth"] == sum(a["failures"].values()) == 3
    assert a["workers"][0]["state"] == "open" and 0 <= a["workers"][0]["retry_s"] <= 1
    assert (b["requests"], sum(b["failures"].values())) == (4, 0)
    assert b["workers"][0]["state"] == "up" and b["workers"][0]["connect_ms"] > 0
    assert b["workers"][0]["open_requests"] == len(held)
    found = operator.metrics()
    assert found['parent_requests_total{parent="b"}'] == 4
    assert found['parent_failures_total{parent="a",reason="parent_auth"}'] == 3
    assert found['parent_workers{parent="a",state="open"}'] == 1
    assert found['parent_workers{parent="b",state="up"}'] == 1
    assert found['parent_open_requests{parent="b"}'] == 4
    assert found['parent_connect_seconds_count{parent="b"}'] == 4
    assert found['parent_connect_seconds_sum{parent="b"}'] > 0


@pytest.mark.any_loop
def test_a_parent_that_a_reload_removes_keeps_its_totals_alone(
        start, make_origin, dial):
    admin = 'admin = "127.0.0.1:0"\nadmin_token = "t0ken-of-the-tests"\n'
    proxy, operator = start('route = "a"\n' + parent(make_origin(http), name="a"))
    dial(proxy).tunnel("127.0.0.1:4711").close()
    total = 'parent_requests_total{parent="a"}'
    wait_until(lambda: operator.metrics().get(total) == 1, "the page is written")
    proxy.reload(admin)
    wait_until(lambda: json.loads(operator.get("/parents")) == {"parents": []},
               "the parent is gone")
    found = operator.metrics()
    assert found[total] == 1
    assert 'parent_workers{parent="a",state="up"}' not in found


@pytest.mark.any_loop
def test_events_name_the_parents_that_were_tried(start, make_origin, dial):
    first, second = make_origin(say(BAD.format(502).encode())), make_origin(http)
    proxy, operator = start(
        'route = "corp"\n' + parent(first, name="a") + parent(second, name="b")
        + group("a", "b"))
    dial(proxy).tunnel("127.0.0.1:4711")
    (one,) = operator.connections()
    events = json.loads(operator.get(f"/connections/{one['id']}/trace"))["events"]
    tried = [{key: value for key, value in event.items() if key != "ms"}
             for event in events if event["event"].startswith("parent")]
    assert tried == [
        {"event": "parent", "name": "a"},
        {"event": "parent lost", "reason": "parent_refused", "status": 502},
        {"event": "parent", "name": "b"}]


# explain


@pytest.mark.any_loop
def test_explain_names_the_way_and_what_names_it(ask, make_origin, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('default = "allow"\n[[rules]]\naction = "allow"\n'
                      'hosts = ["127.0.0.1"]\nroute = "b"\n')
    config = (f'policy = "{policy}"\naddress_floor = "off"\nconnect_ports = "any"\n'
              'user = "u"\npassword = "p"\nroute = "corp"\n'
              + parent(make_origin(http), name="a")
              + parent(make_origin(http), name="b", via="a")
              + group("a", "b", choose="hash_destination")
              + group("a", "b", name="turns", choose="round_robin"))
    _, out = ask("explain", config, "CONNECT", "127.0.0.1:1")
    assert f"route    b  (route of allow {policy}:2)\n" in out
    assert "parent   b  http://127.0.0.1:" in out and " via a  http://127.0.0.1:" in out
    _, out = ask("explain", config, "CONNECT", "127.0.0.2:1")
    assert "route    corp  hash_destination a b  (the option route)\n" in out
    found = {json.loads(ask("explain", config, "CONNECT", f"127.0.0.{n}:1", "--json")[1]
                        )["parent"] for n in range(2, 10)}
    assert found == {"a", "b"}
    _, out = ask("route", config.replace('route = "corp"', 'route = "turns"'),
                 "CONNECT", "127.0.0.2:1")
    assert [line.split()[0] for line in out.splitlines()] == [
        "request", "user", "client", "route", "parent", "verdict"]
    assert "parent   not known here" in out


# route --try


@pytest.mark.any_loop
def test_a_trial_prints_each_step_and_closes_the_tunnel(ask, make_origin):
    first, second = make_origin(say(BAD.format(407).encode())), make_origin(http)
    status, out = ask(
        "route", 'route = "corp"\n' + parent(first, name="a")
        + parent(second, name="b") + group("a", "b"),
        "CONNECT", "127.0.0.1:4711", "--try")
    assert status == 0, out
    assert texts(out) == [
        "through a", "resolved: 1 found", "connected", "sent", "answered",
        "failed: parent_auth",
        "through b", "resolved: 1 found", "connected", "sent", "answered"]
    assert out.endswith("verdict  connected  through b\n")
    assert [one.target for one in second.requests] == ["127.0.0.1:4711"]
    assert len(second.connections) == 1


@pytest.mark.any_loop
@pytest.mark.parametrize(("script", "reason"), [
    (say(BAD.format(403).encode()), "parent_refused"),
    (say(b"", True), "parent_closed"), (stall, "parent_timeout"),
    (say(b"garbage"), "bad_parent")],
    ids=["403", "end", "stall", "garbage"])
def test_a_trial_that_fails_has_the_reason(ask, make_origin, script, reason):
    config = 'route = "corp"\nparent_timeout = "300ms"\n' + parent(make_origin(script))
    status, out = ask("route", config, "CONNECT", "127.0.0.1:4711", "--try", "--json")
    found = json.loads(out)
    assert (status, found["outcome"], found["parent"]) == (1, reason, "corp")
    assert found["steps"][-1]["text"].startswith(f"failed: {reason}")


@pytest.mark.any_loop
def test_a_trial_goes_directly_and_is_refused_as_a_request_is(
        ask, make_origin, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[users.ann]\npassword = "$2b$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2'
        't0jWMUW"\n[[rules]]\naction = "allow"\nclients = ["192.0.2.1"]\n')
    origin = make_origin(echo)
    config = f'policy = "{policy}"\naddress_floor = "off"\nconnect_ports = "any"\n'
    asked = ("CONNECT", origin.authority, "--try", "--user", "ann")
    status, out = ask("route", config, *asked, "--client", "192.0.2.1")
    assert (status, out.splitlines()[-1]) == (0, "verdict  connected  direct")
    status, out = ask("route", config, *asked)
    assert (status, out.splitlines()[-1]) == (
        1, "verdict  refused 403  destination_denied")
    assert len(origin.connections) == 1
