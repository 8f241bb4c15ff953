"""Users with password hashes: requests that wait, pass, or get a 503.

Cost 4 of bcrypt is 1 ms and cost 12 is 0.2 s: time to see a request wait for its hash.
"""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

import cutthrough
from cutthrough.policy.source import Policy, User
from cutthrough.worker.worker import Worker
from tests.support.client import Client, build_request
from tests.support.embedded import run, settled
from tests.support.lines import read_line
from tests.support.origin import Origin, echo, stall
from tests.support.proxy import ROOT, clean_environment, seen_labels
from tests.support.users import RIGHT, SLOW, WRONG, ask, basic, hash_of, wait_hashing
from tests.support.wait import wait_until

LINES = f"# staff\nann:{hash_of('one')}\nslow:{hash_of('one', 12)}\n"


@pytest.fixture
def users_file(tmp_path):
    file = tmp_path / "users"
    file.write_text(LINES)
    return file


@pytest.fixture
def start(start_proxy, users_file):
    def begin(*flags):
        return start_proxy("--users-file", str(users_file), *flags, user=False)

    return begin


def test_a_user_of_the_file_passes_and_is_named_in_the_log(start, make_origin, dial):
    proxy, origin = start(), make_origin()
    assert "demonstration" not in proxy.banner
    client = dial(proxy)
    for _ in range(2):
        assert client.get(origin.url(), auth=RIGHT).status == 200
    assert [record["user"] for record in proxy.wait_log(2)] == ["ann", "ann"]
    assert b"authorization" not in origin.received.lower()


@pytest.mark.any_loop
def test_wrong_unknown_and_demonstration_credentials_are_refused_alike(
    start, make_origin, dial
):
    """R22, R29."""
    proxy, origin = start(), make_origin()
    for pair in ("ann:two", "nobody:one", "username:password"):
        reply = dial(proxy).get(origin.url(), auth=basic(pair))
        assert (reply.status, reply.error) == (407, "http_request_denied")
    reasons = [(r["reason"], r["user"]) for r in proxy.wait_log(3)]
    assert reasons == [("auth_failed", None)] * 3
    assert not origin.connections


@pytest.mark.any_loop
def test_each_request_of_a_connection_is_its_own_users(start, make_origin, dial):
    """R23: also if the hash has to be computed between the two."""
    proxy, origin = start(), make_origin()
    client = dial(proxy)
    assert client.get(origin.url(), auth=RIGHT).status == 200
    assert client.get(origin.url(), auth=SLOW).status == 200
    assert client.get(origin.url(), auth=RIGHT).status == 200
    assert client.get(origin.url(), auth=WRONG).status == 407
    assert [r["user"] for r in proxy.wait_log(4)] == ["ann", "slow", "ann", None]


def test_what_follows_the_head_waits_for_the_verdict(start, make_origin, dial):
    proxy = start()
    tunnel = dial(proxy)
    authority = make_origin(echo).authority
    assert tunnel.connect(authority, b"early", auth=SLOW).status == 200
    assert tunnel.read_exact(5) == b"early"
    tunnel.close()
    origin = make_origin()
    client = dial(proxy)
    first = build_request("POST", origin.url("/1"), "Content-Length: 3", body=b"abc",
                          auth=basic("ann:one"))
    client.send(first + build_request("GET", origin.url("/2"), auth=SLOW))
    assert client.read_response().status == client.read_response().status == 200
    assert [m.target for m in origin.requests] == ["/1", "/2"]
    assert origin.requests[0].body == b"abc"


def test_a_client_that_is_done_sending_still_gets_its_answer(start, make_origin, dial):
    proxy = start()
    client = dial(proxy)
    client.send(build_request("GET", make_origin().url(), auth=SLOW))
    client.half_close()
    assert client.read_response().status == 200


def test_a_client_that_resets_while_it_waits_is_gone(start, make_origin, dial):
    proxy, origin = start(), make_origin()
    client = dial(proxy)
    client.send(build_request("GET", origin.url(), auth=SLOW))
    wait_hashing(proxy)
    client.reset()
    proxy.wait_reason("client_reset", user=None)
    assert not origin.connections


@pytest.mark.any_loop
def test_policy_is_asked_after_the_hash_and_not_before(start, make_origin, dial):
    proxy = start("--max-body", "1KiB", "--connect-ports", "443")
    authority = make_origin().authority
    for auth, large, port in ((WRONG, 407, 407), (RIGHT, 413, 403), (SLOW, 413, 403)):
        post = dial(proxy).ask(
            "POST", f"http://{authority}/", "Content-Length: 1025", auth=auth)
        assert post.status == large
        assert dial(proxy).connect(authority, auth=auth).status == port


def test_a_queue_that_is_full_is_an_overload(start, make_origin, dial):
    proxy, origin = start("--auth-queue", "1", "--auth-threads", "1"), make_origin()
    first = dial(proxy)
    first.send(build_request("GET", origin.url(), auth=SLOW))
    wait_hashing(proxy)
    reply = dial(proxy).get(origin.url(), auth=RIGHT)
    assert (reply.status, reply.get("Retry-After")) == (503, "1")
    proxy.wait_reason("overloaded")
    assert first.read_response().status == 200
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200


def test_a_hash_that_takes_too_long_is_answered_503_and_not_lost(
    start, make_origin, dial
):
    proxy, origin = start("--auth-timeout", "20ms"), make_origin()
    client = dial(proxy)
    reply = client.get(origin.url(), auth=SLOW)
    assert (reply.status, reply.error) == (503, "proxy_internal_response")
    proxy.wait_reason("auth_timeout")
    wait_until(lambda: dial(proxy).get(origin.url(), auth=SLOW).status == 200,
               "the hash that went on, remembered")


def test_a_drain_waits_for_a_hash(start, make_origin, dial):
    proxy = start()
    client = dial(proxy)
    client.send(build_request("GET", make_origin().url(), auth=SLOW))
    wait_hashing(proxy)
    proxy.signal(signal.SIGTERM)
    assert client.read_response().status == 200
    assert proxy.wait_exit() == 0


def test_a_drains_deadline_does_not_wait_for_a_hash(
    start, make_origin, dial, users_file
):
    users_file.write_text(f"slow:{hash_of('one', 14)}\n")       # 1 s
    proxy = start("--drain-timeout", "100ms")
    client = dial(proxy)
    client.send(build_request("GET", make_origin(stall).url(), auth=SLOW))
    wait_hashing(proxy)
    proxy.signal(signal.SIGTERM)
    assert client.read_response().status == 503
    assert proxy.wait_exit() == 0
    assert [record["reason"] for record in proxy.log()] == ["drained"]


@pytest.mark.any_loop
def test_a_reload_forgets_whose_record_changed(
    start_proxy, users_file, make_origin, dial
):
    """R23."""
    text = f'users_file = "{users_file}"\nuser = ""\npassword = ""\n'
    proxy, origin = start_proxy(config=text), make_origin()
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    users_file.write_text(f"ann:{hash_of('two')}\n")
    assert "users" in proxy.reload(text)
    wait_until(lambda: dial(proxy).get(origin.url(), auth=WRONG).status == 200, "two")
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 407
    users_file.write_text("ann:plain\n")
    assert f"{users_file}:1: not a complete bcrypt" in proxy.reload(text)
    assert dial(proxy).get(origin.url(), auth=WRONG).status == 200


@pytest.mark.any_loop
@pytest.mark.parametrize("algorithm", ["bcrypt", "argon2", "sha512"])
def test_passwd_makes_a_user_that_passes(start_proxy, tmp_path, make_origin, dial,
                                         algorithm):
    file = tmp_path / "made"
    subprocess.run(
        [sys.executable, "-m", "cutthrough", "passwd", "ann", "--file", str(file),
         "--algorithm", algorithm], cwd=ROOT, input=b"one\n", check=True,
        env=clean_environment())
    proxy = start_proxy("--users-file", str(file), user=False)
    assert dial(proxy).get(make_origin().url(), auth=RIGHT).status == 200


# From inside: one worker in the test's own loop

def test_one_credential_is_hashed_once_for_all_who_wait(loop_name, users_file):
    async def main() -> None:
        async with cutthrough.serve(users_file=str(users_file),
                                    auth_timeout=60.0) as proxy:
            assert proxy.url == f"http://127.0.0.1:{proxy.port}"
            with Origin() as origin:
                await asyncio.gather(*(
                    asyncio.to_thread(ask, proxy.port, origin.url(), SLOW, 200)
                    for _ in range(12)))
            verifier = proxy.worker.verifier
            assert (verifier.verified, verifier.failed) == (1, 0)
            assert 0 < verifier.shared <= 11
            await settled(proxy)

    run(loop_name, main)


@pytest.mark.any_loop
def test_a_users_time_ends_in_the_middle_of_a_connection(loop_name, tmp_path):
    """R23: a verified credential ends with its user."""
    log = tmp_path / "log"

    async def main() -> None:
        async with cutthrough.serve(access_log=str(log), access_log_format="json",
                                    user="me", password="x") as proxy:
            over = threading.Event()
            end = time.time() + 3
            user = User(name="ann", hash=hash_of("one"), expires=end)
            worker: Worker = proxy.worker
            worker.swap(type(worker.generation)(2, proxy.config,
                                                Policy(users={"ann": user})))
            with Origin() as origin:
                await asyncio.to_thread(use_up, proxy.port, origin.url(), over)
            assert over.is_set() and time.time() >= end
            await settled(proxy)

    run(loop_name, main)
    records = [read_line(line) for line in log.read_text().splitlines()]
    assert {r["reason"] for r in records} == {"ok", "auth_expired"}
    assert records[-1]["user"] is None
    seen_labels.add("auth_expired")


def use_up(port: int, url: str, over: threading.Event) -> None:
    with Client(port) as client:
        assert client.get(url, auth=RIGHT).status == 200
        wait_until(lambda: client.get(url, auth=RIGHT).status == 407, "an end")
        over.set()
