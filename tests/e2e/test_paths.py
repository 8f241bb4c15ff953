"""Rules about paths, in force: the judged path goes up, octet by octet (R56).

The meaning of a path is in tests/policy/test_acl_paths.py. tests/e2e/test_matrix.py
shows that every way in has these rules.
"""

import textwrap

import pytest

from cutthrough.cli.main import main
from tests.support.certificates import authority
from tests.support.users import HASH

pytestmark = pytest.mark.any_loop

API = """
    [[rules]]
    name = "api"
    action = "allow"
    addresses = ["127.0.0.0/8"]
    paths = ["/api/**", "/health"]
"""


def switch(conn):
    conn.read_request()
    conn.send(b"HTTP/1.1 101 Now\r\nUpgrade: raw\r\nConnection: upgrade\r\n\r\n")
    for _ in range(2):
        conn.send(conn.read_exact(4))


def test_an_upgrade_is_judged_by_its_path_at_a_reload_too(
        start_policy, make_origin, dial):
    proxy, origin = start_policy(API), make_origin(switch)
    client, fields = dial(proxy), ("Connection: upgrade", "Upgrade: raw")
    assert client.get(origin.url("/ws"), *fields).status == 403
    assert client.get(origin.url("/api/ws"), *fields).status == 101
    client.send(b"ping")
    assert client.read_exact(4) == b"ping"
    proxy.policy.write_text("cut = true\n" + textwrap.dedent(API))
    assert proxy.hup().startswith("generation 2")
    client.send(b"pong")
    assert client.read_exact(4) == b"pong"
    other = dial(proxy)
    assert other.get(origin.url("/api/ws"), *fields).status == 101
    proxy.policy.write_text(
        "cut = true\n" + textwrap.dedent(API).replace("/api/", "/b/"))
    assert proxy.hup().startswith("generation 3")
    assert other.at_eof()
    assert proxy.wait_reason("destination_denied")["url"] == origin.url("/api/ws")


def test_a_reload_judges_the_next_request_of_a_connection(
        start_policy, make_origin, dial):
    proxy, origin = start_policy(API), make_origin()
    client = dial(proxy)
    assert client.get(origin.url("/api/1")).status == 200
    proxy.policy.write_text(textwrap.dedent(API).replace("/api/**", "/v2/**"))
    assert proxy.hup().startswith("generation 2")
    assert client.get(origin.url("/api/1")).status == 403
    assert client.get(origin.url("/v2/1")).status == 200


def test_a_mistake_in_a_path_is_shown_where_it_is(tmp_path, capsys):
    file = tmp_path / "policy.toml"
    file.write_text('[[rules]]\naction = "deny"\npaths = ["/a", "/b/**c"]\n')
    assert main(["check", "--policy", str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{file}:3:" in err and "** beside other characters" in err
    line, caret = err.splitlines()[1:3]
    assert line.index('"/b/**c"') == caret.index("^")


@pytest.mark.parametrize(("keys", "notes"), [
    ("", 1), ('methods = ["GET", "CONNECT"]', 1), ('methods = ["GET"]', 0),
    ("ports = [80]", 0), ('ports = ["80-443"]', 1)])
def test_check_says_that_tunnels_go_by_other_rules(tmp_path, capsys, keys, notes):
    file = tmp_path / "policy.toml"
    file.write_text(f'[[rules]]\naction = "deny"\npaths = ["/a"]\n{keys}\n')
    assert main(["check", "--policy", str(file), "--user", "ann", "--password", "x",
                 "--listen", "127.0.0.1:0", "--connect-ports", "443"]) == 0
    done = capsys.readouterr()
    assert (done.out + done.err).count("`paths` matches no tunnel") == notes


@pytest.mark.parametrize(("rule", "status"), [
    ('paths = ["/a"]', 1), ("", 0)])
def test_notes_are_failures_of_a_strict_check(tmp_path, capsys, rule, status):
    path = tmp_path / "policy.toml"
    path.write_text(f'[[rules]]\naction = "allow"\n{rule}\n')
    words = ["check", "--policy", str(path), "--user", "u", "--password", "p"]
    assert main(words) == 0
    assert main([*words, "--strict"]) == status
    assert capsys.readouterr().out.count("note: ") == 2 * status


@pytest.mark.parametrize(("keys", "opened", "notes"), [
    ('hosts = ["a.example"]', "", 0),
    ('hosts = ["a.example"]', 'hosts = ["*.example"]', 0),
    ('hosts = ["*.example"]', 'hosts = ["a.example"]', 0),
    ("", 'hosts = ["a.example"]', 0),
    ('hosts = ["a.example"]', 'hosts = ["b.example"]', 1),
    ('users = ["bob"]', 'users = ["bob"]', 0),
    ('users = ["bob"]', 'users = ["eve"]', 1),
    ('users = ["bob"]', 'groups = ["ours"]', 0),
    ('users = ["bob"]', 'groups = ["theirs"]', 1),
    ('groups = ["ours"]', 'users = ["eve"]', 1),
    ('groups = ["ours"]', 'groups = ["theirs"]', 0)])
def test_check_says_nothing_of_tunnels_that_are_opened(
        tmp_path, capsys, keys, opened, notes):
    """Beside interception the note was wrong: the rule holds inside. It was missing if
    only tunnels of other users are opened."""
    file = tmp_path / "policy.toml"
    users = "".join(f'users.{name}.password = "{HASH}"\n' for name in ("bob", "eve"))
    file.write_text(f'groups.ours = ["bob"]\ngroups.theirs = ["eve"]\n{users}'
                    f'[[rules]]\naction = "allow"\nmethods = ["CONNECT"]\n{opened}\n'
                    f'tls = "intercept"\n[[rules]]\naction = "deny"\n'
                    f'paths = ["/a"]\n{keys}\n')
    assert main(["check", "--policy", str(file), "--user", "ann", "--password", "x",
                 "--listen", "127.0.0.1:0", "--connect-ports", "443",
                 "--intercept-ca", str(authority().folder)]) == 0
    done = capsys.readouterr()
    assert (done.out + done.err).count("`paths` matches no tunnel") == notes
