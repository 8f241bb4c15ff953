"""A captured request from inside an intercepted tunnel is sent once more, by every way:
the proxy answers the tunnel with a certificate of its own authority."""

import base64
import json
import os

import pytest

from tests.support.admin import TOKEN, administered
from tests.support.captures import flows, wait_rows
from tests.support.certificates import authority
from tests.support.client import PASSWORD, USER
from tests.support.flows import send
from tests.support.inside import HERE, ask, config, enter, okay, origins, over_tls
from tests.support.mcp_tools import ask as call
from tests.support.mcp_tools import served

pytestmark = pytest.mark.any_loop

POLICY = ('[[rules]]\nname = "all"\naction = "allow"\ntls = "intercept"\n'
          f'methods = ["CONNECT"]\n{HERE}'
          f'[[rules]]\nname = "inside"\naction = "allow"\ncapture = "full"\n{HERE}')


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def setting(loop_name, directory, opened, database, tmp_path, make_origin, dial):
    """A proxy, its operator, an origin over TLS, and one intercepted flow."""
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "password").write_text(PASSWORD)
    proxy, operator = administered(
        opened, directory("proxy"), loop_name, f'capture_file = "{database}"\n'
        f'policy = "{tmp_path}/policy.toml"\n{config()}')
    origin = make_origin(over_tls(okay))
    with enter(proxy, dial(proxy), origin.port) as client:
        assert ask(client, path="/a?b", host=f"a.example:{origin.port}").status == 200
    (flow,) = wait_rows(database)
    assert flow["intercepted"] and flow["url"] == f"https://a.example:{origin.port}/a?b"
    return proxy, operator, origin


@pytest.fixture
def words(setting, tmp_path):
    return ("--proxy", f"127.0.0.1:{setting[0].port}", "--user", USER,
            "--password-file", str(tmp_path / "password"))


def is_captured_again(database):
    first, second = wait_rows(database, 2)
    assert (second["url"], second["user"], second["intercepted"]) == (
        first["url"], USER, 1)
    return True


def test_by_the_command_line(setting, words, database, monkeypatch, tmp_path):
    folder = authority().folder
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = flows(database, "replay", "1", *words, "--cacert", str(folder / "ca.pem"))
    assert done.stdout.endswith("\n\nok"), done.stderr
    assert is_captured_again(database)
    done = flows(database, "replay", "1", *words, "--diff",
                 CUTTHROUGH_INTERCEPT_CA=str(folder))
    assert done.stdout == "no difference\n", done.stderr
    (tmp_path / "cutthrough").mkdir()        # the folder of `cutthrough ca init`
    os.symlink(folder, tmp_path / "cutthrough" / "ca")
    done = flows(database, "replay", "1", *words, "--diff")
    assert done.stdout == "no difference\n", done.stderr


def test_a_stranger_in_between_is_not_trusted(setting, words, database, monkeypatch,
                                              tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for more in ((), ("--cacert", str(origins().own.certificate))):
        done = flows(database, "replay", "1", *words, *more)
        assert done.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in done.stderr
        assert "--cacert" in done.stderr
    done = flows(database, "replay", "1", *words, "--cacert", str(database))
    assert done.returncode == 2 and "has no certificate" in done.stderr


def test_a_tunnel_that_is_not_opened_shows_the_origins_own(
        setting, words, database, start_policy, make_origin, tmp_path):
    """The proxy of --proxy does not intercept; the origin's authority is trusted."""
    plain = start_policy(f'[[rules]]\naction = "allow"\n{HERE}', config())
    words = ("--proxy", f"127.0.0.1:{plain.port}", *words[2:])
    more = ("--cacert", str(origins().own.certificate))
    assert flows(database, "replay", "1", *words, *more).stdout.endswith("\n\nok")
    assert "407" in flows(database, "replay", "1", *words[:2], *more).stderr
    assert plain.wait_log(2)[0]["method"] == "CONNECT"


def test_by_the_admin_listener(setting, database):
    _, operator, origin = setting
    status, found = send(operator, url=f"https://a.example:{origin.port}/a?b",
                         user=USER, password=PASSWORD)
    assert (status, found["status"]) == (200, 200), found
    assert base64.b64decode(found["body"]) == b"ok" and is_captured_again(database)


async def test_by_a_model_through_the_listener(setting, database, words, tmp_path):
    async with served("--admin", f"127.0.0.1:{setting[1].where}", "--token-file",
                      tmp_path / "token", "--allow-writes", *words[2:]) as client:
        found = await call(client, "replay_flow", id=1)
    assert (found["status"], found["body"]) == (200, "ok") and is_captured_again(
        database)


async def test_by_a_model_with_a_database(setting, database, words):
    async with served("--db", database, "--allow-writes", *words, "--cacert",
                      authority().folder / "ca.pem") as client:
        found = await call(client, "replay_flow", id=1)
    assert found["status"] == 200 and is_captured_again(database)
    assert found["body"].startswith("not shown: the database does not say which")


def test_the_origins_authority_alone_is_trusted_too(
        loop_name, directory, opened, database, tmp_path, make_origin):
    """A proxy that does not intercept: its origin_ca verifies the origin."""
    (tmp_path / "policy.toml").write_text(f'[[rules]]\naction = "allow"\n{HERE}')
    _, operator = administered(
        opened, directory("proxy"), loop_name, f'capture_file = "{database}"\n'
        f'policy = "{tmp_path}/policy.toml"\ndns_overrides = ["a.example=127.0.0.1"]\n'
        f'connect_ports = "any"\norigin_ca = "{origins().own.certificate}"\n')
    origin = make_origin(over_tls(okay))
    status, found = send(operator, url=f"https://a.example:{origin.port}/", user=USER,
                         password=PASSWORD)
    assert (status, found["status"]) == (200, 200), json.dumps(found)
