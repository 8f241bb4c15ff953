"""The files of interception: read again, and told when they expire."""

import ssl

import pytest

from tests.support.admin import administered
from tests.support.certificates import Authority, client_context
from tests.support.inside import ALL, ask, config, enter, okay, over_tls
from tests.support.proxy import RELOADED
from tests.support.wait import wait_until


@pytest.fixture
def folder(tmp_path):
    """Of the first authority."""
    (tmp_path / "ca").mkdir()
    made = Authority("first", tmp_path / "ca")
    made.own.key.chmod(0o600)
    return made


def files(folder) -> str:
    text = "".join(line for line in config().splitlines(keepends=True)
                   if not line.startswith("intercept_ca"))
    return text + f'intercept_ca = "{folder.folder}"\n'


def exchange(folder, other, *names: str) -> None:
    for name in names:
        (folder.folder / name).write_bytes((other.folder / name).read_bytes())


def test_a_reload_exchanges_the_authority(start_policy, make_origin, dial, folder):
    proxy, origin = start_policy(ALL, files(folder)), make_origin(over_tls(okay))
    first, other = client_context(trusted=folder), Authority("second")
    before = enter(proxy, dial(proxy), origin.port, context=first)
    assert ask(before).body == b"ok"
    exchange(folder, other, "ca.pem", "ca.key")
    assert proxy.hup().endswith(": certificates")
    second = client_context(trusted=other)
    assert ask(enter(proxy, dial(proxy), origin.port, context=second)).body == b"ok"
    with pytest.raises(ssl.SSLCertVerificationError):
        enter(proxy, dial(proxy), origin.port, context=first)
    assert ask(before).body == b"ok"


def test_a_pair_that_does_not_match_leaves_the_one_before(
        start_policy, make_origin, dial, folder):
    proxy, origin = start_policy(ALL, files(folder)), make_origin(over_tls(okay))
    context = client_context(trusted=folder)
    exchange(folder, Authority("second"), "ca.key")
    assert "refused" in proxy.hup()
    assert "the key does not belong to the certificate" in proxy.stderr()
    client = enter(proxy, dial(proxy), origin.port, context=context)
    assert ask(client).body == b"ok"


def test_changed_files_are_read_by_themselves(start_policy, make_origin, dial, folder):
    proxy, origin = start_policy(ALL, files(folder)), make_origin(over_tls(okay))
    other = Authority("second")
    exchange(folder, other, "ca.pem", "ca.key")
    wait_until(lambda: RELOADED.search(proxy.stderr()), "a reload", 30)
    client = enter(proxy, dial(proxy), origin.port,
                   context=client_context(trusted=other))
    assert ask(client).body == b"ok"


def test_an_authority_below_another_shows_it(
        start_policy, make_origin, dial, tmp_path):
    """The client knows the root alone."""
    root = Authority("root")
    below = root.issue("below")
    folder = tmp_path / "chain"
    folder.mkdir()
    (folder / "ca.pem").write_bytes(
        below.own.certificate.read_bytes() + root.own.certificate.read_bytes())
    (folder / "ca.key").touch(0o600)
    (folder / "ca.key").write_bytes(below.own.key.read_bytes())
    proxy = start_policy(ALL, files(Authority("another")).replace(
        'intercept_ca = "', f'intercept_ca = "{folder}" # "'))
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port,
                   context=client_context(trusted=root))
    assert ask(client).body == b"ok"


def test_the_metric_has_the_authoritys_end(directory, loop_name, opened, folder):
    _, operator = administered(
        opened, directory("proxy"), loop_name,
        f'intercept_ca = "{folder.folder}"\n')
    label = f'certificate="{folder.folder}/ca.pem"'
    name = f"ca_certificate_expiry_timestamp_seconds{{{label}}}"
    assert operator.metrics()[name] > 0
