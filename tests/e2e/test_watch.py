"""A reload that a change of files asks for (`watch`), as a deployment makes it."""

import itertools
import os
from pathlib import Path

import pytest

from tests.support.client import build_request
from tests.support.origin import echo
from tests.support.proxy import RELOADED, ROOT
from tests.support.wait import takes_less, wait_until

ALLOW = '[[rules]]\nname = "all"\naction = "allow"\naddresses = ["127.0.0.0/8"]\n'
DENY = f'[[rules]]\naction = "deny"\npaths = ["/secret"]\n{ALLOW}'


def wait_reloads(proxy, count: int) -> str:
    """Returns the last line."""
    wait_until(lambda: len(RELOADED.findall(proxy.stderr())) >= count, proxy.stderr)
    lines = RELOADED.findall(proxy.stderr())
    assert len(lines) == count
    return lines[-1]


def put(folder: Path, version: str, policy: str) -> None:
    """As Kubernetes swaps a ConfigMap: a new directory, and one rename of a link."""
    (folder / version).mkdir(parents=True)
    (folder / version / "policy.toml").write_text(policy)
    (folder / "..new").symlink_to(version)
    os.replace(folder / "..new", folder / "..data")


def test_a_swapped_config_map_is_in_force_and_cuts_nothing(
        start_proxy, make_origin, dial, tmp_path):
    folder = tmp_path / "config"
    put(folder, "..1", ALLOW)
    (folder / "policy.toml").symlink_to("..data/policy.toml")
    proxy = start_proxy(config=f'watch = true\npolicy = "{folder}/policy.toml"')
    origin = make_origin(echo)
    tunnel = dial(proxy).tunnel(f"127.0.0.1:{origin.port}")
    put(folder, "..2", DENY)
    assert "generation 2: rules 2 (+1 -0)" in wait_reloads(proxy, 1)
    refused = dial(proxy)
    refused.send(build_request("GET", "http://127.0.0.1:9/secret"))
    assert refused.read_response("GET").status == 403
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"


@pytest.mark.any_loop
def test_a_swapped_config_map_is_in_force_within_five_seconds(
        start_proxy, dial, tmp_path):
    """For the first client that asks; `watch` counts two looks, a second apart."""
    folder = tmp_path / "config"
    put(folder, "..1", ALLOW)
    (folder / "policy.toml").symlink_to("..data/policy.toml")
    proxy = start_proxy(config=f'watch = true\npolicy = "{folder}/policy.toml"')

    def status() -> int:
        client = dial(proxy)
        client.send(build_request("GET", "http://127.0.0.1:9/secret"))
        return client.read_response("GET").status

    versions = itertools.count(2)

    def swap() -> None:
        version = next(versions)
        policy, expected = (ALLOW, 502) if version % 2 else (DENY, 403)
        put(folder, f"..{version}", policy)
        wait_until(lambda: status() == expected, proxy.stderr)

    took = takes_less(5, swap, "a swapped ConfigMap")
    print(f"a swapped ConfigMap was in force within {took:.1f} s")


def test_a_mistake_is_refused_once_and_its_correction_applied(start_policy):
    proxy = start_policy(ALLOW, "watch = true")
    proxy.policy.write_text("[[rules]\n")
    assert "reload refused, generation 1 stays in force" in wait_reloads(proxy, 1)
    proxy.policy.write_text(DENY)
    assert "rules 2 (+1 -0)" in wait_reloads(proxy, 2)


@pytest.mark.parametrize("mistake", [
    "a = " + "[" * 5000 + "]" * 5000, f"default = 0x{'f' * 5000}",
    f"[limits.a]\nrequests_per_second = 1{'0' * 400}"], ids=["depth", "hex", "float"])
def test_a_file_that_no_program_can_read_is_a_mistake(start_policy, mistake):
    proxy = start_policy(ALLOW, "watch = true")
    proxy.policy.write_text(f"{mistake}\n")
    assert "reload refused, generation 1 stays in force" in wait_reloads(proxy, 1)
    proxy.policy.write_text(DENY)
    assert "rules 2 (+1 -0)" in wait_reloads(proxy, 2)


# A program whose next reading of its files has a mistake of the program's own
FAILS_ONCE = """
import os, sys
from cutthrough.cli.entry import main
from cutthrough.cli.main import Sources

read = Sources.read

def fail(self):
    if os.path.exists(self.file + ".fails"):
        os.unlink(self.file + ".fails")
        raise ZeroDivisionError
    return read(self)

Sources.read = fail
sys.exit(main())
"""


def test_whatever_a_reload_raises_the_next_one_is_possible(start_proxy, tmp_path):
    """It ends with a result, and files are watched as before."""
    script = tmp_path / "program.py"
    script.write_text(FAILS_ONCE)
    policy = tmp_path / "policy.toml"
    policy.write_text(ALLOW)
    proxy = start_proxy(
        command=(str(script), "serve"), env={"PYTHONPATH": str(ROOT)},
        config=f'watch = true\npolicy = "{policy}"')
    Path(f"{proxy.config_file}.fails").touch()
    policy.write_text(DENY)
    assert ("generation 1 stays in force: the configuration cannot be read: "
            "ZeroDivisionError") in wait_reloads(proxy, 1)
    assert "Traceback" in proxy.stderr()
    policy.write_text(DENY + ALLOW)
    assert "generation 2: rules 3" in wait_reloads(proxy, 2)


@pytest.mark.parametrize("first", [True, False])
def test_a_reload_begins_and_ends_it(start_policy, first):
    proxy = start_policy(ALLOW, f"watch = {str(first).lower()}")
    text = proxy.config_file.read_text()
    proxy.config_file.write_text(text.replace(
        f"watch = {str(first).lower()}", f"watch = {str(not first).lower()}"))
    if not first:
        proxy.hup()
        proxy.policy.write_text(DENY)
        assert "rules 2" in wait_reloads(proxy, 2)
        return
    assert "generation 2" in wait_reloads(proxy, 1)     # which ends the watch
    proxy.policy.write_text(DENY)
    assert "generation 3" in proxy.hup()
    wait_reloads(proxy, 2)
