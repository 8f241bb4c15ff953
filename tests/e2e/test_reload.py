"""A reload: everything is read and checked first, and no client notices."""

import base64
import contextlib
import os
import re
import resource
import signal
import socket

import psutil
import pytest

from tests.support.admin import AUTHORIZED, TOKEN, administered
from tests.support.client import USER, build_request
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.wait import wait_until


@pytest.fixture
def start(loop_name, directory, opened):
    """A proxy with its configuration file as its only source."""
    return lambda text="": opened.enter_context(
        Proxy(directory("proxy"), loop=loop_name, config=text))


def pids(proxy) -> set[int]:
    return {worker.pid for worker in proxy.workers()}


@pytest.mark.any_loop
def test_a_reload_is_told_in_one_line_with_what_differs(start):
    proxy = start()
    assert proxy.reload('head_timeout = "2s"\nmax_body = "1MiB"\n') == (
        "generation 2: head_timeout 10s -> 2s, max_body 0 -> 1MiB")
    assert proxy.reload('head_timeout = "2s"\nmax_body = "1MiB"\n') == (
        "generation 3: no changes")


@pytest.mark.any_loop
def test_a_configuration_that_is_a_pipe_refuses_the_reload(start, make_origin, dial):
    """The supervisor waited in open(2), for ever: no reload, no signal, no worker."""
    proxy = start()
    text = proxy._config.read_text()
    proxy._config.unlink()
    os.mkfifo(proxy._config)
    assert proxy.hup() == (
        f"reload refused, generation 1 stays in force: {proxy._config}: is a pipe that "
        "no writer has filled and closed; a start waits 10 s for one, a reload does "
        "not: use a file")
    assert dial(proxy).get(make_origin().url()).status == 200
    proxy._config.unlink()
    proxy._config.write_text(text)
    assert proxy.hup() == "generation 2: no changes"


@pytest.mark.any_loop
def test_rules_are_counted_by_what_they_say_and_not_where(start, tmp_path):
    """A rule put in above made every rule below it one that went and one that came."""
    policy = tmp_path / "policy.toml"
    rules = [f'[[rules]]\naction = "deny"\nhosts = ["{name}.example"]\n'
             for name in "abc"]

    def say(*more: str) -> str:
        policy.write_text("".join((*more, *rules)))
        return proxy.hup().partition(": ")[2]

    policy.write_text("".join(rules))
    proxy = start(f'policy = "{policy}"\n')
    assert say("# a line\n") == "no changes"
    first = '[[rules]]\naction = "allow"\nhosts = ["x.example"]\n'
    assert say(first) == "rules 4 (+1 -0)"
    assert say('default = "report"\ncut = true\n', first) == (
        "default deny -> report, cut false -> true")
    assert say('groups.ci = ["ann"]\n') == (
        "rules 3 (+0 -1), default report -> deny, cut true -> false, groups")


def test_a_timeout_that_changed_holds_for_the_next_connection(start, dial):
    proxy = start()
    before = pids(proxy)
    proxy.reload('head_timeout = "100ms"\n')
    client = dial(proxy)
    client.send(b"GET http://")
    assert client.read_head().status == 408
    assert pids(proxy) == before, "the worker took it over"


@pytest.mark.any_loop
def test_a_password_that_changed_is_the_only_one_that_counts(start, make_origin, dial):
    proxy, origin = start(), make_origin()
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    assert proxy.reload('password = "another"\n') == "generation 2: password"
    assert client.get(origin.url()).status == 407, "the same connection, a new request"
    assert dial(proxy).get(origin.url()).status == 407


@pytest.mark.any_loop
@pytest.mark.parametrize("mistake, reason", [
    ('head_timeut = "1s"', "head_timeut: no such option; did you mean head_timeout?"),
    ('head_timeout = "1"', "head_timeout: '1' is not a duration"),
    ('head_timeout = ', "Invalid value"),
    ('user = "somebody"\npassword = ""', "user: a user without a password"),
    ('access_log = "/nonexistent/log"', "access_log"),
    ('listen = ["192.0.2.1:1"]', "192.0.2.1:1: Cannot assign requested address"),
])
def test_a_mistake_changes_nothing(start, make_origin, dial, mistake, reason):
    proxy, origin = start(), make_origin()
    before = pids(proxy)
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    proxy._config.write_text(mistake)
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: "reload refused" in proxy.stderr(), proxy.stderr)
    assert "reload refused, generation 1 stays in force: " in proxy.stderr()
    if mistake.startswith(("head", "user")):
        assert reason in proxy.stderr()
    assert client.get(origin.url()).status == 200
    assert pids(proxy) == before


@pytest.mark.any_loop
def test_a_file_that_is_empty_brings_no_demonstration_credentials(start, dial):
    """R29: a disk that was full left it so, and the whole world knew the password."""
    proxy = start()
    proxy._config.write_text("")
    assert proxy.hup().startswith(
        "reload refused, generation 1 stays in force: user: no user is configured")
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502


def test_new_workers_come_before_the_old_ones_go(start, make_origin, dial):
    stays = "handover = false\n"
    proxy, origin = start(stays), make_origin(echo)
    before = pids(proxy)
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"before")
    assert tunnel.read_exact(6) == b"before"
    assert proxy.reload(stays + "workers = 2\n").endswith("workers 1 -> 2")
    wait_until(lambda: len(pids(proxy) - before) == 2, "two new workers")
    tunnel.send(b"after")
    assert tunnel.read_exact(5) == b"after", "the tunnel is where it was"
    assert before < pids(proxy), "its worker waits for it"
    tunnel.close()
    wait_until(lambda: not before & pids(proxy), "the old worker has gone")


def test_nobody_is_refused_while_workers_become_more_and_fewer(
        start, make_origin, dial):
    proxy, origin = start("workers = 4\n"), make_origin()
    for count in (1, 3, 2):
        proxy.reload(f"workers = {count}\n")
        for _ in range(50):
            assert dial(proxy).get(origin.url()).status == 200
        wait_until(lambda count=count: len(pids(proxy)) == count, f"{count} workers")


def test_an_address_comes_and_goes(start, make_origin, dial):
    proxy, origin = start(), make_origin()
    port = free_port("127.0.0.2")
    proxy.reload(f'listen = ["127.0.0.1:0", "127.0.0.2:{port}"]\n')

    def answers(host: str) -> bool:
        try:
            with socket.create_connection((host, port), 5) as sock:
                sock.sendall(build_request("GET", origin.url()))
                return sock.recv(12) == b"HTTP/1.1 200"
        except (ConnectionRefusedError, ConnectionResetError):
            return False        # reset: it was in the queue of a socket that closed

    wait_until(lambda: answers("127.0.0.2"), "the new address")
    assert dial(proxy).get(origin.url()).status == 200, "the old one kept its port"
    proxy.reload('listen = ["127.0.0.1:0"]\n')
    wait_until(lambda: not answers("127.0.0.2"), "the address is closed")
    assert dial(proxy).get(origin.url()).status == 200


def free_port(host: str) -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        return sock.getsockname()[1]


def test_a_worker_that_does_not_begin_has_no_callers(
        loop_name, directory, opened, make_origin, dial):
    """Its socket took half of the callers in, and no worker answered them."""
    folder = directory("bad")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if ('cutthrough.worker.main' in sys.orig_argv\n"
        f"        and os.path.exists({str(folder / 'bad')!r})):\n"
        "    os._exit(3)\n")
    proxy = opened.enter_context(Proxy(
        directory("proxy"), loop=loop_name, config="workers = 1\n",
        env={"PYTHONPATH": str(folder)}))
    (folder / "bad").touch()
    proxy.write_config("workers = 2\n")
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: re.search(
        r"reload refused, generation 1 stays in force: the new worker \d \(pid \d+\) "
        "ended before it was ready: status 3", proxy.stderr()), proxy.stderr)
    origin = make_origin()
    for _ in range(20):
        assert dial(proxy).get(origin.url()).status == 200
    (folder / "bad").unlink()
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: dial(proxy).get(origin.url()).status == 200
               and proxy.log(worker=1), "it has callers once it begins")


def test_an_address_comes_back_before_it_has_gone(
        loop_name, directory, opened, make_origin, dial):
    """If a reload took a mistake back while new workers did not begin, it was refused:
    the address was in use, by the program itself."""
    folder = directory("slow")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if ('cutthrough.worker.main' in sys.orig_argv\n"
        f"        and os.path.exists({str(folder / 'fifo')!r})):\n"
        f"    open({str(folder / 'waits')!r}, 'w').close()\n"
        f"    open({str(folder / 'fifo')!r}).close()\n")       # without a writer
    with socket.socket() as one, socket.socket() as other:
        for sock in (one, other):
            sock.bind(("127.0.0.1", 0))
        listen, mistake = (f'listen = ["127.0.0.1:{sock.getsockname()[1]}"]\n'
                           for sock in (one, other))
    proxy = opened.enter_context(Proxy(
        directory("proxy"), loop=loop_name, config=listen,
        env={"PYTHONPATH": str(folder)}))
    before, origin = pids(proxy), make_origin()
    os.mkfifo(folder / "fifo")
    proxy.write_config(mistake)
    proxy.signal(signal.SIGHUP)
    wait_until((folder / "waits").exists, "a worker that does not begin")
    wait_until(lambda: "generation 2 is not in force yet in worker 0" in proxy.stderr(),
               proxy.stderr)
    proxy.write_config(listen)
    proxy.signal(signal.SIGHUP)
    wait_until(lambda: "generation 3: no changes" in proxy.stderr(), proxy.stderr)
    assert ("reload refused, generation 1 stays in force: another one was requested "
            "before its new workers were ready") in proxy.stderr()
    wait_until(lambda: before == pids(proxy), "the end of the one that did not begin")
    assert dial(proxy).get(origin.url()).status == 200
    assert "does not answer" not in proxy.stderr(), "nobody had asked it anything"
    assert "being replaced, ended" not in proxy.stderr()


def test_a_worker_that_dies_after_a_reload_is_followed_by_one_of_its_generation(
        start, make_origin, dial):
    proxy = start()
    proxy.reload('password = "another"\n')
    proxy.write_config('password = "a third one"\n')     # and no reload
    before = pids(proxy)
    for pid in before:
        psutil.Process(pid).kill()
    wait_until(lambda: pids(proxy) and not before & pids(proxy), "a new worker")
    origin = make_origin()
    wait_until(lambda: status(proxy, origin, "another") == 200, "it serves")
    assert status(proxy, origin, "a third one") == 407


def status(proxy, origin, password: str) -> int:
    client = proxy.client()
    try:
        code = base64.b64encode(f"{USER}:{password}".encode()).decode()
        client.send(build_request("GET", origin.url(), auth=f"Basic {code}"))
        return client.read_head().status
    except (ConnectionResetError, EOFError):
        return 0
    finally:
        client.close()


# In force

@pytest.fixture
def administer(loop_name, directory, opened):
    """The same with an admin listener, and an operator at it."""
    return lambda text="": administered(opened, directory("proxy"), loop_name, text)


ADMIN = f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'


def test_what_was_answered_is_in_force_in_every_worker(administer, make_origin):
    """The answer came when the generation was sent to the workers, though some had not
    read it yet."""
    proxy, operator = administer("workers = 3\n")
    origin = make_origin()
    for word in ("one", "two", "three"):
        proxy.write_config(ADMIN + f'workers = 3\npassword = "{word}"\n')
        answered, told = operator.ask("POST", "/reload", **AUTHORIZED)
        assert answered == 200 and told.endswith(": password\n"), told
        assert {status(proxy, origin, word) for _ in range(12)} == {200}
    proxy.write_config(ADMIN + 'workers = 3\ndns_cache_entries = 7\n')
    before = pids(proxy)
    assert operator.ask("POST", "/reload", **AUTHORIZED) == (
        200, "generation 5: password, dns_cache_entries 10000 -> 7\n")
    assert len(pids(proxy) - before) == 3, "and new workers are there"


@pytest.mark.any_loop
def test_a_refused_reload_is_answered_with_its_reason(administer):
    proxy, operator = administer()
    proxy._config.write_text("head_timeut = 1\n")
    assert operator.ask("POST", "/reload", **AUTHORIZED) == (
        409, f"reload refused, generation 1 stays in force: {proxy._config}:1: "
             "head_timeut: no such option; did you mean head_timeout?\n")


@pytest.mark.any_loop
def test_a_worker_that_is_late_is_named_and_so_is_its_coming(administer, make_origin):
    proxy, operator = administer()
    origin, pid = make_origin(), proxy.worker.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        proxy.write_config(ADMIN + 'password = "another"\n')
        line = (f"generation 2 is not in force yet in worker 0 (pid {pid}), which does "
                "not answer: password\n")
        assert operator.ask("POST", "/reload", **AUTHORIZED) == (504, line)
        assert f"cutthrough: {line}" in proxy.stderr()
        now = operator.metrics()
        assert (now["config_generation"], now["config_last_reload_successful"],
                now['reloads_total{result="late"}']) == (1, 0, 1)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "generation 2 is in force in every worker now" in proxy.stderr(),
               proxy.stderr)
    then = operator.metrics()
    assert (then["config_generation"], then["config_last_reload_successful"]) == (2, 1)
    assert status(proxy, origin, "another") == 200


@pytest.mark.any_loop
def test_two_reloads_at_once_are_two_generations_in_order(administer):
    proxy, operator = administer()
    pid = proxy.worker.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for time in ("2s", "3s"):
            proxy.write_config(ADMIN + f'head_timeout = "{time}"\n')
            proxy.signal(signal.SIGHUP)
            wait_until(lambda time=time: f'head_timeout = "{time}"' in operator.get(
                "/config"), "it is told")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "head_timeout 2s -> 3s" in proxy.stderr(), proxy.stderr)
    assert proxy.stderr().splitlines()[-2:] == [
        "cutthrough: generation 2: head_timeout 10s -> 2s",
        "cutthrough: generation 3: head_timeout 2s -> 3s"]


def test_a_worker_without_a_descriptor_is_replaced(administer, make_origin):
    """The generation comes as a descriptor. Without a descriptor the worker judged by
    the old generation, and no line reported it."""
    proxy, operator = administer()
    origin, worker = make_origin(), proxy.worker
    _, hard = worker.rlimit(resource.RLIMIT_NOFILE)
    worker.rlimit(resource.RLIMIT_NOFILE, (3, hard))
    proxy.write_config(ADMIN + 'password = "another"\n')
    assert operator.ask("POST", "/reload", **AUTHORIZED)[0] == 200
    assert (f"worker 0 (pid {worker.pid}) cannot apply generation 2: "
            "Too many open files" in proxy.stderr())
    assert status(proxy, origin, "another") == 200


@pytest.mark.any_loop
def test_a_worker_that_cannot_be_started_is_not_in_force(start):
    """The worker before it applied a part, and the reload was reported as done."""
    proxy = start()
    number = resource.RLIMIT_NOFILE
    before = resource.prlimit(proxy.process.pid, number)
    taken = {int(fd) for fd in os.listdir(f"/proc/{proxy.process.pid}/fd")}
    # Enough to read the files; a new worker takes five
    free = [fd for fd in range(1000) if fd not in taken][:3]
    resource.prlimit(proxy.process.pid, number, (free[-1] + 1, before[1]))
    assert proxy.reload("dns_cache_entries = 7\n").startswith(
        "reload refused, generation 1 stays in force: a new worker cannot be started: "
        "[Errno 24]")
    resource.prlimit(proxy.process.pid, number, before)
    assert proxy.hup() == "generation 3: dns_cache_entries 10000 -> 7"


def test_a_worker_that_was_told_too_much_is_replaced(administer, make_origin):
    """Messages beyond the size of its socket were lost: the old rules held for ever."""
    proxy, operator = administer()
    origin, pid = make_origin(), proxy.worker.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as asking:
            asked = [asking.enter_context(contextlib.closing(operator.connection()))
                     for _ in range(400)]
            for one in asked:
                one.request("GET", "/connections")
            for one in asked:
                assert one.getresponse().status == 200
            proxy.write_config(ADMIN + 'password = "another"\n')
            proxy.signal(signal.SIGHUP)
            wait_until(lambda: f"worker 0 (pid {pid}): control socket full, worker is "
                       "not reading; starting a replacement" in proxy.stderr(),
                       proxy.stderr)
        wait_until(lambda: len(pids(proxy)) == 2, "the next one")
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "generation 2" in proxy.stderr(), proxy.stderr)
    assert status(proxy, origin, "another") == 200


@pytest.mark.any_loop
def test_more_workers_than_there_is_room_for_are_refused(start, make_origin, dial):
    """Slots without a worker had a socket, and their callers waited for ever."""
    proxy, origin = start("workers = 2\n"), make_origin()
    assert re.fullmatch(
        r"reload refused, generation 1 stays in force: \S+:\d+: workers: 60 is more "
        r"than the \d+ that fit now; restart the program to run more",
        proxy.reload("workers = 60\n"))
    for _ in range(20):
        assert dial(proxy).get(origin.url()).status == 200
