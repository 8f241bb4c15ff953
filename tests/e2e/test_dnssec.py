"""Names whose addresses must be validated (DNSSEC): reply, log, metric and check."""

import subprocess
import sys

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.dns import NXDOMAIN, NameServer, Reply
from tests.support.proxy import ROOT, clean_environment

pytestmark = pytest.mark.any_loop

ZONE = {
    "signed.test": Reply(("127.0.0.1",), validated=True),
    "plain.test": Reply(("127.0.0.1",)),
    "nowhere.test": NXDOMAIN,
}


@pytest.fixture
def names(opened):
    try:
        return opened.enter_context(NameServer(dict(ZONE)))
    except PermissionError:         # not root, and no capability in the namespace
        pytest.skip("port 53 of a loopback address may not be bound")


@pytest.fixture
def resolving(start_policy, names):
    def start(dnssec: str = "required"):
        return start_policy(
            '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n',
            f'resolvers = ["{names.address}"]\ndnssec = "{dnssec}"\n'
            f'connect_ports = "any"\ndns_overrides = ["fixed.test=127.0.0.1"]\n{DOOR}')
    return start


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_an_answer_that_is_not_validated_is_refused_and_says_so(
        resolving, make_origin, dial, method) -> None:
    proxy, port = resolving(), make_origin().port

    def ask(name: str):
        target = f"{name}:{port}" if method == "CONNECT" else f"http://{name}:{port}/"
        return dial(proxy).ask(method, target, host=f"{name}:{port}")

    assert ask("signed.test").status == 200
    reply = ask("plain.test")
    assert (reply.status, reply.error) == (502, "dns_error")
    assert b"dns_unvalidated" in reply.raw + reply.body
    record = proxy.wait_reason("dns_unvalidated")
    assert (record["host"], record["status"]) == ("plain.test", 502)
    assert record["peer"] is None
    found = operator_of(proxy).metrics()
    assert any("dns_unvalidated" in name and n == 1 for name, n in found.items())


def test_names_that_nobody_has_to_validate(resolving, make_origin, dial) -> None:
    """Overrides, localhost and addresses; and a name without an address."""
    proxy, port = resolving(), make_origin().port
    for host in ("fixed.test", "localhost", "127.0.0.1"):
        assert dial(proxy).get(f"http://{host}:{port}/").status == 200
    assert dial(proxy).get(f"http://nowhere.test:{port}/").status == 502
    proxy.wait_reason("dns_not_found")


def test_off_nobody_looks(resolving, make_origin, dial) -> None:
    proxy, port = resolving("off"), make_origin().port
    for name in ("signed.test", "plain.test"):
        assert dial(proxy).get(f"http://{name}:{port}/").status == 200


def test_it_needs_the_resolvers_that_validate(tmp_path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('dnssec = "required"\n')
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "check", str(path)], cwd=ROOT, text=True,
        capture_output=True, env=clean_environment(), timeout=60)
    assert done.returncode and "needs resolvers" in done.stderr
