"""The processes that compute hashes: their owners, their ends, and their remains."""

import asyncio
import os
import signal

import psutil
import pytest

import cutthrough
from tests.support.client import build_request
from tests.support.embedded import run, settled
from tests.support.origin import Origin
from tests.support.users import RIGHT, SLOW, WRONG, ask, basic, hash_of, wait_hashing
from tests.support.wait import wait_until

LONG = basic("long:one")


@pytest.fixture
def users_file(tmp_path):
    """`long` takes a second, at the least."""
    file = tmp_path / "users"
    file.write_text(f"ann:{hash_of('one')}\nslow:{hash_of('one', 12)}\n"
                    f"long:{hash_of('one', 14)}\n")
    return file


@pytest.fixture
def start(start_proxy, users_file):
    def begin(*flags, **more):
        return start_proxy(
            "--users-file", str(users_file), "--auth-timeout", "200s", *flags,
            user=False, **more)

    return begin


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(process: psutil.Process) -> None:
    wait_until(lambda: is_gone(process), f"the end of {process}", 100)


def test_a_proxy_that_hashes_nothing_has_no_helper(proxy, make_origin, dial):
    assert dial(proxy).get(make_origin().url()).status == 200
    wrong = dial(proxy).get(make_origin().url(), auth=WRONG)
    assert wrong.status == 407
    assert not proxy.helpers(proxy.worker.pid)


def test_as_many_helpers_as_are_allowed_and_each_is_kept(start, make_origin, dial):
    proxy, origin = start("--auth-threads", "2"), make_origin()
    clients = [dial(proxy) for _ in range(4)]
    for n, client in enumerate(clients):
        client.send(build_request("GET", origin.url(), auth=basic(f"slow:{n}")))
    assert [client.read_response().status for client in clients] == [407] * 4
    made = proxy.helpers(proxy.worker.pid)
    assert len(made) == 2
    assert [os.sched_getscheduler(one.pid) for one in made] == [os.SCHED_BATCH] * 2
    assert os.sched_getscheduler(proxy.worker.pid) == os.SCHED_OTHER
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    assert proxy.helpers(proxy.worker.pid) == made


def test_a_killed_worker_leaves_no_helper_in_the_middle_of_a_hash(
        start, make_origin, dial):
    proxy = start()
    client = dial(proxy)
    client.send(build_request("GET", make_origin().url(), auth=LONG))
    helper, worker = wait_hashing(proxy), proxy.worker
    worker.kill()
    wait_gone(helper)
    assert client.at_eof()
    wait_until(lambda: dial(proxy).get(make_origin().url(), auth=RIGHT).status == 200,
               "the next worker, and its own helper")


def test_a_killed_supervisor_leaves_no_helper(start, make_origin, dial):
    proxy = start("--drain-timeout", "100ms")
    assert dial(proxy).get(make_origin().url(), auth=RIGHT).status == 200
    helper = wait_hashing(proxy)
    proxy.signal(signal.SIGKILL)
    wait_gone(helper)


def test_a_killed_helper_costs_one_503_and_the_next_hash_finds_another(
        start, make_origin, dial):
    proxy, origin = start("--auth-threads", "1"), make_origin()
    for known in (RIGHT, SLOW):
        assert dial(proxy).get(origin.url(), auth=known).status == 200
        client = dial(proxy)
        client.send(build_request("GET", origin.url(), auth=LONG))
        (helper,) = proxy.helpers(proxy.worker.pid)
        helper.kill()
        reply = client.read_response()
        assert (reply.status, reply.get("Retry-After")) == (503, "1")
        wait_gone(helper)
    assert len(proxy.wait_log(2, reason="overloaded")) == 2
    assert dial(proxy).get(origin.url(), auth=WRONG).status == 407
    assert len(proxy.helpers(proxy.worker.pid)) == 1, "the killed are reaped"


def test_a_sigterm_for_all_of_them_drains_and_the_hash_is_finished(
        start, make_origin, dial):
    """systemd does so: the signal goes to every process of the service."""
    proxy = start("--drain-timeout", "100s")  # a hash beside other work
    client = dial(proxy)
    client.send(build_request("GET", make_origin().url(), auth=LONG))
    helper, worker = wait_hashing(proxy), proxy.worker
    for process in (helper, worker, psutil.Process(proxy.process.pid)):
        process.terminate()
    assert client.read_response().status == 200
    assert proxy.wait_exit() == 0
    wait_gone(helper)


def test_a_drains_deadline_ends_a_helper_in_the_middle(start, make_origin, dial):
    proxy = start("--drain-timeout", "50ms")
    client = dial(proxy)
    client.send(build_request("GET", make_origin().url(), auth=LONG))
    helper = wait_hashing(proxy)
    proxy.signal(signal.SIGTERM)
    assert client.read_response().status == 503
    assert proxy.wait_exit() == 0
    wait_gone(helper)


def test_a_reload_keeps_the_helper_and_new_workers_have_their_own(
        start_proxy, users_file, make_origin, dial):
    text = f'users_file = "{users_file}"\nuser = ""\npassword = ""\n'
    proxy, origin = start_proxy(config=text), make_origin()
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 200
    old = wait_hashing(proxy)
    users_file.write_text(f"ann:{hash_of('two')}\n")
    proxy.reload(text)
    wait_until(lambda: dial(proxy).get(origin.url(), auth=WRONG).status == 200, "two")
    assert proxy.helpers(proxy.worker.pid) == [old]
    proxy.reload(text + "auth_threads = 2\n")
    wait_gone(old)
    assert dial(proxy).get(origin.url(), auth=WRONG).status == 200, "without a hash"
    assert dial(proxy).get(origin.url(), auth=RIGHT).status == 407
    wait_until(lambda: len(proxy.workers()) == 1, "the old worker's end")
    assert wait_hashing(proxy) != old


def test_inside_another_program_no_process_is_made(loop_name, users_file):
    before = psutil.Process().children()

    async def main() -> None:
        async with cutthrough.serve(users_file=str(users_file),
                                    auth_timeout=60.0) as proxy:
            with Origin() as origin:
                await asyncio.to_thread(ask, proxy.port, origin.url(), SLOW, 200)
            assert proxy.worker.verifier.verified == 1
            assert psutil.Process().children() == before
            await settled(proxy)

    run(loop_name, main)


def test_a_hash_that_no_library_takes_is_no_password(start_proxy, tmp_path, make_origin,
                                                     dial):
    file = tmp_path / "users"
    odd = f"$argon2id$v=19$m=8,t=1,p=1${'A' * 11}${'A' * 17}"   # base64 of no bytes
    file.write_text(f"ann:{hash_of('one')}\nbob:{odd}\n")
    proxy = start_proxy("--users-file", str(file), user=False)
    assert dial(proxy).get(make_origin().url(), auth=basic("bob:x")).status == 407
    assert dial(proxy).get(make_origin().url(), auth=RIGHT).status == 200
