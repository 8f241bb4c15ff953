"""Times in the access log are durations of phases, and a phase is null if it was not
begun; the name of a login that failed stands there (R37)."""

import base64
import json
import re

import bcrypt
import pytest

from cutthrough.policy.auth import normalized
from tests.support.client import CREDENTIALS
from tests.support.dns import NameServer
from tests.support.origin import echo, stall
from tests.support.policies import LOCAL
from tests.support.silent import silent
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

PHASES = ("head_ms", "auth_ms", "dns_ms", "connect_ms", "first_byte_ms")


def begun(record: dict) -> list[str]:
    return [name.removesuffix("_ms") for name in PHASES if record[name] is not None]


def basic(name: str | bytes, password: str = "hunter-2") -> str:
    name = name.encode() if isinstance(name, str) else name
    return "Basic " + base64.b64encode(name + b":" + password.encode()).decode()


def test_a_phase_that_was_not_begun_is_null(start_proxy, opened, make_origin, dial):
    try:
        names = opened.enter_context(NameServer({}))
    except PermissionError:  # not root, and no capability in the namespace
        pytest.skip("port 53 of a loopback address may not be bound")
    proxy = start_proxy("--resolvers", names.address)
    origin, echoing = make_origin(), make_origin(echo)
    client = dial(proxy)
    client.get(f"http://localhost:{origin.port}/")
    client.get(f"http://localhost:{origin.port}/")
    dial(proxy).get(origin.url(), auth=None)
    dial(proxy).get("http://127.0.0.1:1/")
    dial(proxy).get("http://nowhere.test/")
    dial(proxy).tunnel(echoing.authority).close()
    dial(proxy).send(b"GET http://a")
    client.send(b"G\x00T http://a HTTP/1.1\r\n\r\n")
    client.read_response()
    told = {(r["reason"], r["kind"], *begun(r)) for r in proxy.wait_log(7)}
    assert told == {
        ("ok", "request", "head", "auth", "dns", "connect", "first_byte"),
        ("ok", "request", "head", "auth", "first_byte"),         # a pooled connection
        ("auth_required", "request", "head"),
        ("connection_refused", "request", "head", "auth", "connect"),
        ("dns_not_found", "request", "head", "auth", "dns"),
        ("ok", "tunnel", "head", "auth", "connect"),
        ("bad_request", "request", "head"),
    }


def test_the_wait_for_a_login_is_in_one_phase(start_proxy, tmp_path, make_origin, dial):
    """`connect_ms` was 1850 for a connect of 0.2 ms: it was counted from the start, as
    all were. tests.support.lines checks that no line's phases exceed the whole."""
    users = tmp_path / "users"
    users.write_text(f"ann:{bcrypt.hashpw(b'hunter-2', bcrypt.gensalt(11)).decode()}\n")
    proxy = start_proxy("--users-file", str(users))
    assert dial(proxy).get(make_origin().url(), auth=basic("ann")).status == 200
    (record,) = proxy.wait_log(1)
    hashed = record["auth_ms"]
    assert hashed > 20, "bcrypt of cost 11"
    assert sum(record[name] or 0 for name in PHASES) <= record["total_ms"]
    assert record["total_ms"] - hashed >= record["connect_ms"] + record["first_byte_ms"]


@pytest.mark.parametrize(("reason", "phase"), [
    ("connect_timeout", "connect_ms"), ("response_timeout", "first_byte_ms")])
def test_the_phase_in_which_a_request_ends_counts(
        start_proxy, make_origin, dial, opened, reason, phase):
    """If a request waited in vain for an origin, its line had no wait."""
    proxy = start_proxy(f"--{reason.replace('_', '-')}", "300ms")
    if phase == "connect_ms":
        port = opened.enter_context(silent("127.0.0.1")).getsockname()[1]
    else:
        port = make_origin(stall).port
    assert dial(proxy).get(f"http://127.0.0.1:{port}/").status == 504
    record = proxy.wait_reason(reason)
    assert 299 <= record[phase] <= record["total_ms"]


def test_the_wait_for_the_hook_is_a_phase_of_its_own(start_policy, make_origin, dial):
    proxy = start_policy(LOCAL, hook="""
        import cutthrough

        async def decide(request: cutthrough.Request) -> cutthrough.Decision:
            return cutthrough.Decision(True, "yes", ttl=60)
        """)
    client, url = dial(proxy), make_origin().url()
    assert client.get(url).status == client.get(url).status == 200
    asked, remembered = proxy.wait_log(2)
    assert asked["hook"] == remembered["hook"] == "yes"
    assert asked["hook_ms"] > 0 and "hook_ms" not in remembered


# Failed logins

REFUSED = (407, 429)                         # at last it guesses too often
WICKED = (b'an"n\\', b"ann\nforged 1", b"ann\x00\xff", b"a b\t[x]%0a", "ä".encode())


def test_a_login_that_fails_is_logged_by_name_and_is_nobodys(
        start_proxy, make_origin, dial):
    """A guesser was seen by address only. `user` is a name with right credentials."""
    proxy, url = start_proxy(), make_origin().url()
    assert dial(proxy).get(url).status == 200
    assert "tried_user" not in proxy.wait_log(1, status=200)[0]
    proxy.mark()
    for name in ("mallory", *WICKED, "n" * 3000):
        assert dial(proxy).get(url, auth=basic(name)).status in REFUSED
    records = proxy.wait_log(7)
    assert {record["user"] for record in records} == {None}
    tried = [record["tried_user"] for record in records]
    assert tried[0] == "mallory"
    # As UTF-8, of which an octet beyond ASCII is an escape of its own
    assert sorted(tried[1:6]) == sorted(
        normalized(name).decode("latin-1") for name in WICKED)
    assert tried[6] == "n" * 256
    assert "hunter" not in "\n".join(proxy.lines())


def test_what_names_nobody_names_nobody(start_proxy, dial, make_origin):
    proxy, url = start_proxy(), make_origin().url()
    coded = base64.b64encode(b"no colon, perhaps a secret").decode()
    for auth in (None, f"Basic {coded}", "Basic !", "Bearer secret", "Basic Og=="):
        assert dial(proxy).get(url, auth=auth).status in REFUSED
    records = proxy.wait_log(5)
    assert {record.get("tried_user") or "-" for record in records} == {"-"}
    assert "secret" not in "\n".join(proxy.lines())


@pytest.mark.parametrize(("form", "wrong", "right"), [
    ("squid", r" mallory HIER_NONE/- ", r" user HIER_DIRECT/"),
    ("common", r" - mallory \[", r" - user \["),
    ("combined", r" - mallory \[", r" - user \["),
    ("<%un|%ul|%ct::tried_user>", r"^<mallory\|-\|mallory>$", r"^<user\|user\|->$"),
])
def test_the_column_of_the_user_has_who_tried_as_squid_and_apache_have_it(
        start_proxy, make_origin, dial, form, wrong, right):
    proxy = start_proxy("--access-log-format", form)
    url = make_origin().url()
    assert dial(proxy).get(url, auth=basic("mallory")).status == 407
    assert dial(proxy).get(url, auth=CREDENTIALS).status == 200
    first, second = wait_until(lambda: len(two := proxy.lines()) == 2 and two, "two")
    assert re.search(wrong, first) and re.search(right, second)
    for name in WICKED:
        assert dial(proxy).get(url, auth=basic(name)).status in REFUSED
    lines = wait_until(lambda: len(lines := proxy.lines()) == 7 and lines, "lines")
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert "hunter" not in "".join(lines) and '"an"n' not in "".join(lines)


def test_who_waits_for_his_hash_and_leaves_is_named(
        start_proxy, tmp_path, make_origin, dial):
    users = tmp_path / "users"
    users.write_text(f"ann:{bcrypt.hashpw(b'x', bcrypt.gensalt(12)).decode()}\n")
    proxy = start_proxy("--users-file", str(users), "--auth-timeout", "1ms")
    assert dial(proxy).get(make_origin().url(), auth=basic("ann")).status == 503
    record = proxy.wait_reason("auth_timeout")
    assert (record["user"], record["tried_user"]) == (None, "ann")
    assert begun(record) == ["head", "auth"]
    assert json.dumps(record).count("hunter") == 0
