"""The operator's function verifies users (`auth_hook`): docs/users.md."""

import textwrap

import pytest

from tests.support.client import build_request
from tests.support.policies import LOCAL
from tests.support.proxy import seen_labels
from tests.support.users import RIGHT, WRONG, basic, hash_of
from tests.support.wait import wait_until

HOOK = 'auth_hook = "logins:verify"\n'
LOGINS = """
    async def verify(name, password):
        print("asked", name, flush=True)
        if password == "raise":
            raise RuntimeError("the password is " + password)
        if password == "text":
            return "yes"
        return password == "one"
"""
HANGS = """
    import asyncio

    async def verify(name, password):
        print("asked", name, flush=True)
        if name != "ann":
            await asyncio.sleep(600)
        return True
"""
STAFF = """
    [groups]
    staff = ["ann"]
    [[rules]]
    action = "allow"
    groups = ["staff"]
"""


@pytest.fixture
def run(start_policy):
    def begin(logins: str = LOGINS, policy: str = LOCAL, config: str = ""):
        return start_policy(policy, HOOK + config, modules={"logins": logins})
    return begin


def asked(proxy) -> list[str]:
    lines = (proxy.log_path.parent / "stdout").read_text().splitlines()
    return [line.removeprefix("asked ") for line in lines if line.startswith("asked ")]


def test_a_user_is_verified_once_and_named_in_the_log(run, make_origin, dial):
    proxy, origin = run(), make_origin()
    for client in (dial(proxy), dial(proxy)):
        for _ in range(2):
            assert client.get(origin.url(), auth=RIGHT).status == 200
    assert [record["user"] for record in proxy.wait_log(4)] == ["ann"] * 4
    assert asked(proxy) == ["ann"]
    assert b"authorization" not in origin.received.lower()


def test_a_wrong_password_is_refused_and_asked_about_once(run, make_origin, dial):
    proxy, origin = run(), make_origin()
    for _ in range(3):
        assert dial(proxy).get(origin.url(), auth=WRONG).status == 407
    assert {r["reason"] for r in proxy.wait_log(3)} == {"auth_failed"}
    assert asked(proxy) == ["ann"]
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200


@pytest.mark.parametrize("secret", ["raise", "text"])
def test_a_function_that_fails_lets_nobody_in(run, make_origin, dial, secret):
    """R37: the password is in its exception."""
    proxy, origin = run(), make_origin()
    auth = basic(f"ann:{secret}")
    for _ in range(2):
        assert dial(proxy).get(origin.url(), auth=auth).status == 503
    records = proxy.wait_log(2)
    assert {(r["reason"], r["user"]) for r in records} == {("policy_unavailable", None)}
    assert len(asked(proxy)) == 2, "nothing was remembered"
    kind = "RuntimeError" if secret == "raise" else "TypeError"
    assert f"the auth hook failed (1 so far): {kind}\n" in proxy.stderr()
    assert "the password" not in proxy.stderr()
    assert not origin.connections


def test_a_function_that_hangs_holds_up_nobody_else(run, make_origin, dial):
    proxy, origin = run(HANGS, config='auth_timeout = "200ms"\n'), make_origin()
    waiting = dial(proxy)
    waiting.send(build_request("GET", origin.url(), auth=basic("bob:one")))
    wait_until(lambda: asked(proxy) == ["bob"], "the call")
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    assert waiting.read_response().status == 503
    assert proxy.wait_reason("auth_timeout")
    seen_labels.add("auth_timeout")


def test_the_user_of_the_configuration_is_not_the_functions(run, make_origin, dial):
    """Its password is in the configuration, and the function would accept another."""
    proxy, origin = run("async def verify(name, password): return True"), make_origin()
    assert dial(proxy).get(origin.url()).status == 200
    assert dial(proxy).get(origin.url(), auth=basic("user:other")).status == 407
    assert dial(proxy).get(origin.url(), auth=basic("eve:other")).status == 200


@pytest.mark.any_loop
@pytest.mark.parametrize("pair", [":one", "a\nb:one", f"{256 * 'a'}:one"])
def test_a_name_that_is_none_is_refused_without_a_call(run, make_origin, dial, pair):
    """The empty name is that of clients without credentials."""
    proxy, origin = run(), make_origin()
    assert dial(proxy).get(origin.url(), auth=basic(pair)).status == 407
    assert asked(proxy) == []


def test_groups_are_those_of_the_policy(run, make_origin, dial):
    proxy, origin = run(policy=STAFF, config='address_floor = "off"\n'), make_origin()
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    assert dial(proxy).get(origin.url(), auth=basic("bob:one")).status == 403


@pytest.mark.any_loop
def test_a_function_whose_code_changed_is_asked_again(run, make_origin, dial):
    """R23: what the old one had accepted is not remembered."""
    proxy, origin = run(), make_origin()
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    assert proxy.hup() == "generation 2: no changes"
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    assert asked(proxy) == ["ann"], "a reload forgets nothing"
    before = proxy.worker.pid
    (proxy.log_path.parent / "logins.py").write_text(textwrap.dedent("""
        async def verify(name, password):
            return password == "two"
    """))
    proxy.hup()
    wait_until(lambda: [worker.pid for worker in proxy.workers()] != [before],
               "a new worker")
    wait_until(lambda: dial(proxy).get(origin.url(), auth=WRONG).status == 200, "two")
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 407


@pytest.mark.any_loop
def test_users_with_hashes_beside_it_are_a_mistake(run, tmp_path):
    """Which of the two would verify a name?"""
    policy = f"""
        [users.bob]
        password = "{hash_of("one")}"
        """
    with pytest.raises(AssertionError, match="auth_hook: verifies all users, and"):
        run(policy=policy)


@pytest.mark.any_loop
def test_all_workers_share_what_is_verified(run, make_origin, dial):
    proxy, origin = run(config="workers = 2\n"), make_origin()
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    for _ in range(20):
        assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    assert asked(proxy) == ["ann"]
