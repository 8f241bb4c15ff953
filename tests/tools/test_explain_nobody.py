"""Callers without a password: nobody, the user of a listener, one by a certificate."""

import pytest

from cutthrough.tools.log_reader import LogReader
from cutthrough.tools.suggest import suggest
from tests.tools.explaining import entry

POLICY = """
[groups]
builders = ["carol"]

[[rules]]
name = "all"
action = "allow"
addresses = ["127.0.0.0/8"]

[[rules]]
name = "built"
action = "allow"
groups = ["builders"]
"""
PUBLIC = "93.184.215.14"


@pytest.fixture
def config(policy, tmp_path):
    """A configuration whose only listener has these keys."""
    def write(*keys: str) -> str:
        path = tmp_path / "cutthrough.toml"
        path.write_text("\n".join((
            f'policy = "{policy}"', "[[listeners]]", 'address = "127.0.0.1:0"', *keys)))
        return str(path)
    return write


def words_of(out: str) -> dict[str, str]:
    return {line[:9].strip(): line[9:] for line in out.splitlines()}


def test_nobody_asks_if_a_listener_needs_no_login(ask, config):
    """It said that --user is needed, and no --user is nobody."""
    at = config('auth = "none"')
    status, out, _ = ask("explain", "-c", at, "CONNECT", "127.0.0.9:443")
    assert (status, words_of(out)["user"]) == (0, "-")
    status, out, _ = ask("explain", "-c", at, "CONNECT", f"{PUBLIC}:443")
    assert (status, words_of(out)["verdict"]) == (1, "refused 403  destination_denied")


def test_a_certificate_may_name_a_user_of_no_table(ask, config):
    """It was auth_failed, and the proxy let the user pass."""
    at = config('certificates = ["x.pem"]', 'certificate_keys = ["x.key"]',
                'client_ca = "ca.pem"', 'client_certificate = "required"')
    flags = ("explain", "-c", at, "CONNECT", f"{PUBLIC}:443", "--user")
    status, out, _ = ask(*flags, "carol")
    assert (status, words_of(out)["user"]) == (0, "carol (groups: builders)")
    status, out, _ = ask(*flags, "dave")
    assert (status, words_of(out)["verdict"]) == (1, "refused 403  destination_denied")


def test_lines_without_a_user_are_judged(ask, config, log):
    """All of them were left out: no policy changed anything."""
    lines = log(entry(user=None, host=PUBLIC, peer=PUBLIC),
                entry(user=None, host=PUBLIC, peer=PUBLIC, rule="old"),
                entry("destination_denied", user=None, host="127.0.0.9"),
                entry("bad_request", user=None, host=PUBLIC),
                entry("auth_failed", user=None, host=PUBLIC))
    status, out, _ = ask("explain", "-c", config('auth = "none"'), "--log", lines)
    assert status == 1
    assert [line.split()[:6] for line in out.splitlines()] == [
        ["1", "-", "CONNECT", "127.0.0.9:443", "deny", "->"],
        ["1", "-", "CONNECT", f"{PUBLIC}:443", "allow", "->"],
        ["1", "-", "CONNECT", f"{PUBLIC}:443", "allow", "->"],
        ["3", "of", "5", "lines", "would", "change,"]]
    assert "127.0.0.9" in suggest(LogReader(lines))


@pytest.mark.parametrize(("keys", "user", "shown"), [
    (('auth = "none"',), (), "-"),
    (('auth = "none"', 'user = "svc"'), (), "svc"),
    (('auth = "none"', 'user = "svc"'), ("--user", "svc"), "svc")])
def test_a_route_is_tried_without_a_password(ask, config, keys, user, shown):
    """R26: the reason is known, though only who has logged in gets it in a field."""
    status, out, err = ask(
        "route", "-c", config(*keys), "CONNECT", f"{PUBLIC}:443", "--try", *user)
    assert (status, err) == (1, "")
    assert words_of(out)["user"] == shown
    assert words_of(out)["verdict"] == "refused 403  destination_denied"


def test_a_name_that_no_password_could_have_is_tried(ask, policy, config):
    """One of a certificate: Basic cannot say it."""
    policy.write_text(POLICY.replace("carol", "spiffe://a.example/b"))
    at = config('certificates = ["x.pem"]', 'certificate_keys = ["x.key"]',
                'client_ca = "ca.pem"', 'client_certificate = "required"')
    flags = ("route", "-c", at, "CONNECT", "127.0.0.9:9", "--try", "--user")
    status, out, _ = ask(*flags, "spiffe://a.example/b")
    assert (status, words_of(out)["verdict"]) == (1, "refused 502  connection_refused")
