"""The doctor asks a real proxy for hosts that must not be reached: it sees holes (R27).

The first answer for a name that changes its answers is dialled: the network of these
tests has no route to it.
"""

import re
import subprocess

import msgspec
import pytest

from cutthrough.cli.main import main
from cutthrough.doctor import ssrf
from cutthrough.doctor.ssrf_cases import ZONE, Disguise
from cutthrough.embed import Embedded
from cutthrough.net import loopback_only
from tests.support.network import own_network
from tests.support.verbs import run_apart

pytestmark = pytest.mark.dials_out

ALICE = """
[users.alice]
password = "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW"
groups = ["dev"]
[limits.default]
requests_per_second = 1
connections = 1
"""
OPEN = '\n[[rules]]\naction = "allow"\n'


def run(*flags):
    done = run_apart("doctor", "ssrf", *flags)
    assert done.stderr == ""
    return done.returncode, done.stdout


def table_of(out):
    """{kind: [tried, refused, unreadable, opened, passed]}."""
    rows = re.findall(r"^(\w[\w ]*?) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", out, re.M)
    return {kind: [int(n) for n in numbers] for kind, *numbers in rows}


def policy_file(folder, text):
    path = folder / "policy.toml"
    path.write_text(text)
    return str(path)


KINDS = {"plain", "plain IPv6", "decimal", "octal", "hex", "mixed", "short",
         "trailing dot", "mapped", "compatible", "translated", "nat64", "6to4",
         "teredo", "isatap", "zone", "localhost", "name", "rebinding", "own address"}


def test_every_disguise_is_refused_by_the_floor():
    """R25, R26, R27: 200 and more of them, each by CONNECT and by GET."""
    status, out = run()
    table = table_of(out)
    assert "Tested with address_floor = on" in out
    assert set(table) == {*KINDS, "unreadable", "total"}
    for kind in KINDS:
        tried, refused, unreadable, opened, passed = table[kind]
        assert (refused, unreadable, opened, passed) == (tried, 0, 0, 0), kind
    refused, unreadable = table["total"][1:3]
    assert refused >= 400
    assert table["unreadable"] == [unreadable, 0, unreadable, 0, 0]
    assert f"{refused}  403 address_denied\n" in out
    assert f"{unreadable}  400 bad_target\n" in out
    assert out.endswith("first answer: only checked addresses were dialled\n")
    assert status == 0


def test_a_policy_is_tried_as_one_of_its_users(tmp_path):
    """Limits that would refuse hundreds of requests at once are not the question."""
    path = policy_file(tmp_path, ALICE + OPEN + 'groups = ["dev"]\n')
    status, out = run("--policy", path, "--user", "alice")
    table = table_of(out)
    assert status == 0, out
    assert table["total"][1] >= 400 and table["total"][3:] == [0, 0]
    assert "Tested with" not in out and "destination_denied" not in out


def test_what_the_rules_refuse_is_refused_by_them(tmp_path):
    path = policy_file(tmp_path, ALICE)
    status, out = run("--policy", path, "--user", "alice")
    assert status == 0, out
    assert "403 destination_denied" in out and "address_denied" not in out


def test_what_a_rule_opens_is_counted_and_not_tried(tmp_path):
    path = policy_file(
        tmp_path, ALICE + OPEN + 'addresses = ["10.0.0.0/8"]\nports = [80]\n' + OPEN)
    status, out = run("--policy", path, "--user", "alice")
    table = table_of(out)
    assert status == 0, out
    assert table["plain"][3] == 1, "10.0.0.1 by GET"
    assert table["mapped"][3] == 2, "which is the same address"
    assert table["nat64"][3] == 0, "which is another"


def test_a_floor_that_is_off_is_told(tmp_path):
    status, out = run("--address-floor", "off")
    assert status == 1
    assert out.startswith("the floor is off (address_floor = off): nothing is refu")


def test_the_user_must_be_one_that_can_come_in(tmp_path, capsys):
    path = policy_file(tmp_path, ALICE)
    assert main(["doctor", "ssrf", "--policy", path]) == 2
    assert main(["doctor", "ssrf", "--policy", path, "--user", "bob"]) == 2
    assert capsys.readouterr().err.endswith("--user: 'bob': auth_failed\n")


def test_without_a_network_of_its_own_nothing_is_tried(monkeypatch, capsys):
    """It dialled hosts that passed, and a public internet address, from anywhere."""
    def refuse(addresses):
        raise PermissionError(1, "Operation not permitted")

    async def examine(*_):
        pytest.fail("it was tried")

    monkeypatch.setattr(loopback_only, "is_alone", lambda: False)
    monkeypatch.setattr(loopback_only, "enter", refuse)
    monkeypatch.setattr(ssrf, "examine", examine)
    assert main(["doctor", "ssrf"]) == 2
    said = capsys.readouterr().err
    assert "--host-network: is not given" in said and "Operation not permitted" in said


def test_the_network_of_the_host_is_used_when_it_is_asked_for(monkeypatch, capsys):
    """A hook needs this if it asks a service on another host."""
    async def examine(*_):
        return [ssrf.Result(Disguise("unreadable", "?", ""), "GET", "400")], ""

    monkeypatch.setattr(loopback_only, "is_alone", lambda: False)
    monkeypatch.setattr(loopback_only, "enter",
                        lambda addresses: pytest.fail("it moved"))
    monkeypatch.setattr(ssrf, "examine", examine)
    assert main(["doctor", "ssrf", "--host-network"]) == 0


@pytest.fixture
def holes(monkeypatch):
    """A proxy without its floor though its configuration asks for it."""
    def make(*tried):
        monkeypatch.setattr(ssrf, "disguises", lambda: list(tried))
        monkeypatch.setattr(ssrf, "own_hosts", list)
        monkeypatch.setattr(ssrf, "Embedded", lambda config, policy, **more: Embedded(
            msgspec.structs.replace(config, address_floor="off"), policy, **more))
    return make


def test_what_is_not_refused_is_found(holes, capsys):
    holes(Disguise("decimal", "2130706433", "127.0.0.1"))
    assert main(["doctor", "ssrf"]) == 1
    out = capsys.readouterr().out
    assert table_of(out)["decimal"] == [2, 0, 0, 0, 2]
    assert "PASSED  CONNECT 2130706433 (127.0.0.1): " in out


def test_a_connection_to_what_was_not_checked_is_found(holes, capsys):
    holes(Disguise("rebinding", f"r.{ZONE}", "127.0.0.1", (("127.0.0.1",),)))
    assert main(["doctor", "ssrf"]) == 1
    assert "connections to a loopback address" in capsys.readouterr().out


def test_a_refusal_for_another_reason_is_none(holes, capsys):
    """A name that cannot be resolved was not refused."""
    holes(Disguise("name", f"gone.{ZONE}", "127.0.0.1"))
    assert main(["doctor", "ssrf"]) == 1
    assert ": 502 dns_not_found\n" in capsys.readouterr().out


def test_rebinding_is_not_answered_with_an_address_that_has_a_route(capsys):
    """On a host with IPv6 its first answer was dialled: SYNs to the public internet."""
    with own_network():
        route = ["ip", "-6", "route", "add", "3ffe:ffff::/32", "dev", "lo"]
        subprocess.run(route, check=True)
        assert main(["doctor", "ssrf", "--host-network"]) == 0
        out = capsys.readouterr().out
        assert "rebinding, first answer: not tested: 3ffe:ffff::d0c would be" in out
        assert table_of(out)["rebinding"] == [12, 12, 0, 0, 0]
