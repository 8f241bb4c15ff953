"""Interception by an authority whose key is in a PKCS#11 token."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.certificates import Authority, Made, client_context
from tests.support.inside import ALL, ask, config, enter, okay, over_tls
from tests.support.token import PIN, Token, needs_token
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop, needs_token]


class InToken(Authority):
    """As Authority for client_context, and nothing else."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.own = Made(folder / "ca.pem", folder / "ca.key")


@pytest.fixture
def token(tmp_path, monkeypatch) -> Token:
    made = Token(tmp_path / "token")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def authority(tmp_path, token) -> InToken:
    subprocess.run([sys.executable, "-m", "cutthrough", "ca", "init", "--dir",
                    str(tmp_path / "ca"), "--key", token.uri], check=True,
                   capture_output=True)
    return InToken(tmp_path / "ca")


def files(authority: InToken) -> str:
    return "".join(line for line in config().splitlines(keepends=True)
                   if not line.startswith("intercept_ca")) + (
        f'intercept_ca = "{authority.folder}"\n')


def enter_by(proxy, dial, port: int, authority: InToken):
    return enter(proxy, dial(proxy), port, context=client_context(trusted=authority))


def processes(proxy) -> list[psutil.Process]:
    main = psutil.Process(proxy.process.pid)
    return [main, *main.children(recursive=True)]


def test_workers_intercept(start_policy, make_origin, dial, authority) -> None:
    """The token's library and the PIN are in no process that serves."""
    proxy = start_policy(ALL, "workers = 2\n" + files(authority), executed=True)
    origin = make_origin(over_tls(okay))
    for _ in range(8):
        client = enter_by(proxy, dial, origin.port, authority)
        assert ask(client).body == b"ok"
        shown = client.sock.tls.getpeercert()
        assert "cutthrough interception" in str(shown["issuer"])
    assert len({record["worker"] for record in proxy.wait_log(16)}) <= 2
    for one in processes(proxy):
        assert "softhsm" not in Path(f"/proc/{one.pid}/maps").read_text()
        assert PIN not in str(one.cmdline()) + str(one.environ())
    assert PIN not in proxy.stderr()


def test_a_token_that_is_gone_at_the_start(start_policy, token, authority) -> None:
    token.take_away()
    with pytest.raises(AssertionError, match=r"intercept_ca.*there is no such token"):
        start_policy(ALL, files(authority))


def test_a_token_that_goes_away(
        start_policy, make_origin, dial, token, authority) -> None:
    """Its signatures hold for a week: for reloads, and for new workers."""
    proxy, origin = start_policy(ALL, files(authority)), make_origin(over_tls(okay))
    before = enter_by(proxy, dial, origin.port, authority)
    token.take_away()
    assert "generation" in proxy.hup()
    assert ask(before).body == b"ok"
    pid = proxy.worker.pid
    psutil.Process(pid).kill()
    wait_until(lambda: [one for one in proxy.workers() if one.pid != pid], "a worker")
    assert ask(enter_by(proxy, dial, origin.port, authority)).body == b"ok"


def test_a_check_asks_the_token(tmp_path, token, authority) -> None:
    path = tmp_path / "c.toml"
    path.write_text(files(authority) + 'user = "me"\npassword = "a pass phrase"\n')

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "cutthrough", "check", "-c", path],
                              capture_output=True, text=True, check=False)

    assert (check().returncode, check().stderr) == (0, "")
    token.pin_file.chmod(0o644)
    assert check().returncode == 2
    assert "others than its owner may read it" in check().stderr


def test_an_authority_that_allows_none_below(start_policy, token, authority) -> None:
    """One of an earlier version: its key has been moved into the token."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=a",
         "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
         "-out", str(authority.folder / "ca.pem")], check=True, capture_output=True)
    with pytest.raises(AssertionError, match=r"is not the key of ca\.pem"):
        start_policy(ALL, files(authority))
