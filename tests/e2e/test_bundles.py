"""Bundles in the real program: in force by a reload, refused, away, slow."""

import contextlib
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.admin import Operator, operator_of
from tests.support.bundles import BundleServer, bundle, public
from tests.support.certificates import authority
from tests.support.client import build_request
from tests.support.origin import echo
from tests.support.proxy import (
    RELOADED,
    Proxy,
    fd_kinds,
)
from tests.support.successors import end, successor_of
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

ALLOW = '[[rules]]\nname = "all"\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
DENY = f'[[rules]]\naction = "deny"\npaths = ["/secret"]\n{ALLOW}'
OWN = 'policy = "policy.toml"\nhead_timeout = "7s"\nbody_timeout = "7s"\n'


def make(serial: int, policy: str = ALLOW, own: str = OWN, **more) -> bytes:
    return bundle(serial, {"cutthrough.toml": own, "policy.toml": policy}, **more)


@pytest.fixture
def server() -> Iterator[BundleServer]:
    with contextlib.closing(BundleServer(make(1))) as running:
        yield running


@pytest.fixture
def config(server: BundleServer, tmp_path: Path) -> str:
    return text_of(server.url, tmp_path / "cache")


def text_of(url: str, cache: Path) -> str:
    return (f'bundle_url = "{url}"\nbundle_key = ["{public()}"]\n'
            f'bundle_ca = "{authority().own.certificate}"\n'
            f'bundle_cache = "{cache}"\nbundle_interval = "100ms"\n'
            'body_timeout = "9s"\nadmin = "127.0.0.1:0"\n'
            'admin_token = "t0ken-of-the-tests"\n')


Start = Callable[[], tuple[Proxy, Operator]]


@pytest.fixture
def start(start_proxy, config: str) -> Start:
    def make_both() -> tuple[Proxy, Operator]:
        proxy = start_proxy(config=config)
        return proxy, operator_of(proxy)

    return make_both


def wait_reloads(proxy: Proxy, count: int) -> str:
    """Returns the last line."""
    wait_until(lambda: len(RELOADED.findall(proxy.stderr())) >= count, proxy.stderr)
    return RELOADED.findall(proxy.stderr())[count - 1]


def polls(operator: Operator, result: str) -> float:
    return operator.metrics()[f'bundle_polls_total{{result="{result}"}}']


def wait_polls(operator: Operator, result: str, more: int = 1) -> None:
    before = polls(operator, result)
    wait_until(lambda: polls(operator, result) >= before + more, result)


def status_of(proxy: Proxy, dial) -> int:
    client = dial(proxy)
    client.send(build_request("GET", "http://127.0.0.1:9/secret"))
    return client.read_response("GET").status


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_apart(*words)


def test_a_new_bundle_is_in_force_and_cuts_no_tunnel(
        start, server, make_origin, dial) -> None:
    proxy, operator = start()
    assert status_of(proxy, dial) == 502
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    server.content = make(2, DENY, revision="second")
    assert wait_reloads(proxy, 1).startswith(
        "generation 2: bundle r1 -> second, rules 2 (+1 -0)")
    assert status_of(proxy, dial) == 403
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"
    shown = operator.get("/config")
    assert shown.startswith("# bundle revision second (serial 2)\n")
    assert 'cutthrough_bundle_info{revision="second"} 1.0' in operator.get("/metrics")
    assert "bundle second\n" in run(
        "status", "--admin", f"127.0.0.1:{operator.where}").stdout
    wait_until(lambda: len(server.statuses) > server.statuses.count(200),
               "a poll that finds nothing new")


def test_the_bundles_options_are_below_those_of_the_file(start) -> None:
    _, operator = start()
    shown = operator.get("/config")
    assert 'head_timeout = "7s"' in shown and 'body_timeout = "9s"' in shown
    assert "# bundle_url is set" in shown and "/bundle.tar.gz" not in shown


def test_options_that_need_new_workers_cut_no_tunnel_either(
        start, server, make_origin, dial) -> None:
    proxy, _ = start()
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    before = proxy.worker.pid
    server.content = make(2, own=f'{OWN}dns_timeout = "4s"\nworkers = 3\n')
    line = wait_reloads(proxy, 1)
    assert "bundle r1 -> r2, dns_timeout 5s -> 4s" in line
    assert "workers" not in line             # the host's file has workers = 1
    wait_until(lambda: [worker.pid for worker in proxy.workers()] != [before]
               and len(proxy.workers()) == 1, "the old worker's end")
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"


@pytest.mark.parametrize("content, said", [
    (make(2, DENY, signer="second"), "the signature is of none of the keys"),
    (make(2, DENY)[:-300], "is cut off"),
    (b"\x1f\x8b no bundle", "gzip: "),
], ids=["signature", "cut off", "form"])
def test_what_is_not_sound_changes_nothing(
        start, server, dial, content: bytes, said: str) -> None:
    proxy, operator = start()
    server.content = content
    wait_until(lambda: said in proxy.stderr(), proxy.stderr)
    wait_polls(operator, "unchanged", 2)
    assert proxy.stderr().count("bundle: refused: ") == 1
    assert not RELOADED.findall(proxy.stderr()) and status_of(proxy, dial) == 502
    assert operator.get("/config").startswith("# bundle revision r1 (serial 1)\n")


@pytest.mark.parametrize("content, said", [
    (make(2, "[[rules]\n"), "policy.toml:1"),
    (make(2, own="polcy = \"policy.toml\"\n"), "did you mean policy?"),
    (make(2, own='bundle_url = "https://x/"\n'), "bundle_url: is not for a bundle"),
    (make(2, own='policy = "none.toml"\n'), "No such file"),
], ids=["policy", "option", "bundle", "missing"])
def test_what_the_reload_refuses_is_not_current(
        start, server, dial, tmp_path, content: bytes, said: str) -> None:
    proxy, operator = start()
    server.content = content
    line = wait_reloads(proxy, 1)
    assert "reload refused, generation 1 stays in force" in line and said in line
    wait_polls(operator, "unchanged")
    assert "revision r2 (serial 2) was refused by the reload" in proxy.stderr()
    assert (tmp_path / "cache/current").readlink() == Path("1")
    assert "generation 2: no changes" in proxy.hup()
    server.content = make(3, DENY)
    assert "bundle r1 -> r3" in wait_reloads(proxy, 3)
    assert status_of(proxy, dial) == 403


def test_with_watch_a_bundle_asks_for_one_reload(start_proxy, config, server) -> None:
    proxy = start_proxy(config=f"watch = true\n{config}")
    server.content = make(2, DENY)
    assert "bundle r1 -> r2" in wait_reloads(proxy, 1)
    operator = operator_of(proxy)
    wait_polls(operator, "unchanged", 5)
    before = fd_kinds(proxy.process.pid)
    wait_polls(operator, "unchanged", 30)
    assert len(RELOADED.findall(proxy.stderr())) == 1
    wait_until(lambda: not fd_kinds(proxy.process.pid) - before, "none left open")


def test_a_start_needs_no_server_if_there_was_a_bundle(
        start, server, dial) -> None:
    proxy, operator = start()
    server.content = make(2, DENY)
    wait_reloads(proxy, 1)
    proxy.stop()
    server.close()
    proxy, operator = start()
    assert "bundle: revision r2 (serial 2)\n" in proxy.stderr()
    assert status_of(proxy, dial) == 403
    wait_until(lambda: polls(operator, "failed"), proxy.stderr)
    assert "no connection: " in proxy.stderr()


def test_a_start_without_any_bundle_ends_with_1(config, server, tmp_path) -> None:
    server.close()
    (tmp_path / "own.toml").write_text(config)
    done = run("serve", "-c", str(tmp_path / "own.toml"))
    assert done.returncode == 1
    assert re.fullmatch(
        rf"cutthrough: cannot start: no bundle: no connection: .*; and none in "
        rf"{tmp_path}/cache\n", done.stderr)
    done = run("check", "-c", str(tmp_path / "own.toml"))
    assert done.returncode == 2 and "has no bundle yet" in done.stderr


def test_a_bundle_on_disk_that_was_changed_is_not_started_from(
        start, server, tmp_path) -> None:
    proxy, _ = start()
    proxy.stop()
    (tmp_path / "cache/good/policy.toml").write_text('default = "allow"\n')
    proxy, _ = start()
    assert "the last good one cannot be used: policy.toml: is not" in proxy.stderr()
    assert (tmp_path / "cache/good/policy.toml").read_text() == ALLOW


def test_a_first_bundle_that_cannot_be_used_is_not_kept(
        config, server, start, tmp_path) -> None:
    (tmp_path / "own.toml").write_text(config)
    server.content = make(1, "[[rules]\n")
    assert run("serve", "-c", str(tmp_path / "own.toml")).returncode == 2
    server.content = make(2)
    start()
    assert (tmp_path / "cache/good").readlink() == Path("2")


def test_a_silent_server_holds_up_nothing(start, server) -> None:
    proxy, operator = start()
    server.mode = "silent"
    count = len(server.seen)
    wait_until(lambda: len(server.seen) > count, "a request")
    assert "generation 2: no changes" in proxy.hup()
    assert operator.get("/readyz") == "serving\n"
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0


def test_a_file_is_a_source_too(start_proxy, tmp_path, dial) -> None:
    source = tmp_path / "bundle.tar.gz"
    source.write_bytes(make(1))
    proxy = start_proxy(config=text_of(f"file:{source}", tmp_path / "cache"))
    (tmp_path / "new").write_bytes(make(2, DENY))
    (tmp_path / "new").rename(source)
    assert "bundle r1 -> r2" in wait_reloads(proxy, 1)
    assert status_of(proxy, dial) == 403


def test_an_upgrade_keeps_the_bundle_and_asks_on(start, server, dial) -> None:
    proxy, _ = start()
    server.content = make(2, DENY)
    wait_reloads(proxy, 1)
    successor = successor_of(proxy)
    try:
        assert status_of(proxy, dial) == 403
        assert proxy.stderr().count("bundle: revision r2 (serial 2)\n") == 1
        server.content = make(3)
        assert "bundle r2 -> r3" in wait_reloads(proxy, 2)
        assert status_of(proxy, dial) == 502
    finally:
        end(successor)


def test_a_canarys_bundle_waits_for_the_next(start, server) -> None:
    proxy, operator = start()
    server.content = make(2, DENY, percent=0)
    wait_until(lambda: polls(operator, "held"), proxy.stderr)
    assert "revision r2 (serial 2) is a canary's, for other hosts" in proxy.stderr()
    server.content = make(3, DENY, revision="r2")
    assert "bundle r1 -> r2" in wait_reloads(proxy, 1)


def test_a_key_is_exchanged_by_a_reload(start_proxy, config, server) -> None:
    """The new key beside the old one, then a bundle of the new key, then that alone."""
    proxy = start_proxy(config=config)
    server.content = make(2, DENY, signer="second")
    wait_until(lambda: "bundle: refused" in proxy.stderr(), proxy.stderr)
    both = config.replace(f'["{public()}"]', f'["{public()}", "{public("second")}"]')
    proxy.reload(both)
    assert "bundle r1 -> r2" in wait_reloads(proxy, 2)
    assert "generation 4" in proxy.reload(
        config.replace(f'["{public()}"]', f'["{public("second")}"]'))
