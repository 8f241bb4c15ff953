"""Origins with a bad certificate, or a weak group, inside opened tunnels: each client
is refused by an alert that says why, before it has got any certificate (R54).

Log, metric and error log have the reason too. Browsers: test_interception_browsers.py.
"""

import ssl

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.bad_origins import REFUSALS, bad_origin, revoked_list
from tests.support.certificates import authority
from tests.support.inside import ALL, ask, certificate, config, enter, okay, over_tls
from tests.support.origin import Origin
from tests.support.programs import run_behind
from tests.support.proxy import Proxy

#: An alert as the libraries of clients write it, in small letters
WORDS = {
    "CERTIFICATE_EXPIRED": ("certificate expired", "expired certificate",
                            "certificate verification failed"),     # curl's
    "BAD_CERTIFICATE": ("bad certificate",),
    "UNKNOWN_CA": ("unknown ca", "unknown certificate authority"),
    "CERTIFICATE_REVOKED": ("certificate revoked", "revoked certificate"),
    "HANDSHAKE_FAILURE": ("handshake failure",),
}
CLIENTS = ["curl", "go", "node", "urllib", "java"]
#: Java takes seconds for each run
KINDS = {"java": ["revoked"]}


@pytest.fixture(scope="module")
def opening(loop_name, directory):
    folder = directory("opening")
    policy = folder / "policy.toml"
    policy.write_text(ALL)
    with Proxy(folder, loop=loop_name, config=(
            f'policy = "{policy}"\norigin_crl = "{revoked_list()}"\n'
            + config(DOOR))) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def bad():
    """An origin of each kind."""
    made = {kind: Origin(bad_origin(kind)) for kind in REFUSALS}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture
def proxy(opening, opened):
    opening.mark()
    yield opening
    opened.close()


def endings(proxy: Proxy) -> dict[str, float]:
    """How often each reason was counted."""
    found = operator_of(proxy).metrics()
    return {reason: found[f'ended_total{{reason="{reason}"}}']
            for reason in {one.reason for one in REFUSALS.values()}}


@pytest.mark.parametrize("kind", REFUSALS)
def test_the_alert_says_why(proxy, bad, dial, kind):
    owed, before = REFUSALS[kind], endings(proxy)
    with pytest.raises(ssl.SSLError, match=owed.alert):
        enter(proxy, dial(proxy), bad[kind].port)
    record = proxy.wait_reason(owed.reason)
    assert (record["method"], record["host"], record["intercepted"]) == (
        "CONNECT", "a.example", True)
    assert record["hook"].lower().endswith(owed.words)
    assert endings(proxy) == before | {owed.reason: before[owed.reason] + 1}
    assert not bad[kind].requests


def test_the_error_log_says_why(proxy, bad, dial, make_origin):
    """It does so for the 1st, the 2nd and the 4th refusal, and so on. Another origin of
    the same authority is served."""
    for _ in range(8):
        with pytest.raises(ssl.SSLError):
            enter(proxy, dial(proxy), bad["revoked"].port)
    assert ("origin a.example: its certificate is not accepted: certificate revoked"
            in proxy.stderr())
    good = make_origin(over_tls(okay, certificate("DNS:b.example")))
    client = enter(proxy, dial(proxy), good.port, "b.example")
    assert ask(client, host="b.example").body == b"ok"


def test_the_error_log_has_a_remedy_where_it_is_one(start_policy, bad, dial):
    """It had origin_ca for a certificate that has expired, too."""
    proxy = start_policy(ALL, config())
    for kind in ("expired", "untrusted"):       # the 1st and the 2nd are logged
        with pytest.raises(ssl.SSLError):
            enter(proxy, dial(proxy), bad[kind].port)
    expired, untrusted = (line for line in proxy.stderr().splitlines()
                          if "its certificate is not accepted" in line)
    assert expired.endswith("certificate has expired (1 times so far)")
    assert untrusted.endswith("; --origin-ca FILE trusts other authorities")


@pytest.mark.any_loop
@pytest.mark.parametrize("name", CLIENTS)
def test_clients_say_why(proxy, bad, programs, tmp_path, name):
    (tmp_path / "file").write_text("secret")
    words, trust = programs.command(name)
    for kind in KINDS.get(name, REFUSALS):
        owed, origin = REFUSALS[kind], bad[kind]
        done = run_behind(
            proxy.url, tmp_path, *words, "1.1", str(tmp_path / "file"),
            f"https://a.example:{origin.port}/", trust=trust,
            trusted=authority().own.certificate)
        said = (done.stdout + done.stderr).lower().replace("_", " ")
        assert done.returncode != 0, (kind, said)
        assert any(one in said for one in WORDS[owed.alert]), (kind, said)
        record = proxy.wait_reason(owed.reason, port=origin.port)
        assert record["hook"].lower().endswith(owed.words)
        assert not origin.requests
