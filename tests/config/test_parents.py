"""`[parents.NAME]`, `[groups.NAME]` and `route`: their keys, and every mistake."""

import pytest

from cutthrough.cli.main import main
from cutthrough.config.parents import Group, Parent
from cutthrough.config.settings import from_options, render
from cutthrough.generation.generation import Generation, needs_new_workers
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Policy, PolicyError
from tests.support.mistakes import mistakes, read

ONE = """[parents.a]
url = "http://Proxy.Example.com:3128/"
"""


def test_a_parent_and_a_group_are_read(tmp_path):
    (tmp_path / "secret").write_text("me:pass:word\n")
    config = read(tmp_path, f"""route = "g"
{ONE}credentials_file = "{tmp_path}/secret"
[parents.b]
url = "socks5://[::1]:1080"
resolve = "parent"
[groups.g]
parents = ["b", "a", "direct"]
choose = "hash_user"
weights = [1, 2, 3]
""")
    first, second = config.parents
    assert (first.scheme, first.authority) == ("http", "proxy.example.com:3128")
    assert (first.user, first.password) == ("me", "pass:word")
    assert (second.scheme, second.authority) == ("socks5", "[::1]:1080")
    assert config.groups == (Group(name="g", parents=("b", "a", "direct"),
                                   choose="hash_user", weights=(1, 2, 3)),)
    assert "pass:word" not in repr(first.url)


def test_a_parent_over_tls_is_read(tmp_path):
    one, two = read(tmp_path, """[parents.a]
url = "https://[2001:db8::1]:3129"
ca = "ca.pem"
certificate = "own.pem"
[parents.b]
url = "https://b.example:3129"
server_name = "Other.Example"
plain = "absolute"
resolve = "parent"
pass_credentials = true
""").parents
    assert (one.scheme, one.expected_name) == ("https", "2001:db8::1")
    assert [file.rpartition("/")[2] for file in one.tls_files] == ["ca.pem", "own.pem"]
    assert (two.expected_name, two.tls_files) == ("other.example", ())


def test_keys_of_tls_are_for_parents_over_tls(tmp_path):
    found = mistakes(tmp_path, f"""{ONE}ca = "ca.pem"
server_name = "b.example"
certificate = "own.pem"
""")
    assert [one for one in found if "is for https:// parents" in one] == found
    assert len(found) == 3
    (one,) = mistakes(tmp_path, '[parents.a]\nurl = "https://a:1"\n'
                      'certificate_key = "own.key"\n')
    assert "has no effect without certificate" in one


def test_a_chain_has_one_parent_over_tls(tmp_path):
    chain = """[parents.a]
url = "https://a:1"
[parents.b]
url = "http://b:1"
via = "a"
[parents.c]
url = "https://c:1"
via = "b"
"""
    (one,) = mistakes(tmp_path, chain)
    assert "there is no TLS inside TLS" in one
    assert read(tmp_path, chain.replace("https://c", "http://c"))


def test_a_check_is_a_destination_and_an_interval_needs_one(tmp_path):
    (one,) = read(tmp_path, f'{ONE}check = "WWW.Example.com:443"\n'
                  'check_interval = "1m"\n').parents
    assert (one.check, one.check_interval) == ("www.example.com:443", 60.0)
    assert read(tmp_path, ONE).parents[0].identity == one.identity, "the same pool"
    (mistake,) = mistakes(tmp_path, f'{ONE}check_interval = "1m"\n')
    assert "has no effect without check" in mistake
    (mistake,) = mistakes(tmp_path, f'{ONE}check = "https://a/"\n')
    assert "check" in mistake


def test_a_check_with_tls_needs_a_check_and_a_way_without_tls(tmp_path):
    text = f'{ONE}check = "[2001:db8::1]:443"\ncheck_tls = true\n'
    assert read(tmp_path, text).parents[0].check_name == "2001:db8::1"
    (mistake,) = mistakes(tmp_path, f"{ONE}check_tls = true\n")
    assert "has no effect without check" in mistake
    (mistake,) = mistakes(tmp_path, text.replace("http://", "https://"))
    assert "there is no TLS inside TLS" in mistake
    (mistake,) = mistakes(tmp_path, text + 'via = "b"\n[parents.b]\nurl = "https://b:1"\n')
    assert "there is no TLS inside TLS" in mistake


def test_standby_is_bounded_and_of_parents_that_are_reached_directly(tmp_path):
    (one,) = read(tmp_path, f"{ONE}standby = 64\n").parents
    assert one.standby == 64
    assert read(tmp_path, ONE).parents[0].identity == one.identity, "the same pool"
    assert "is above 64" in mistakes(tmp_path, f"{ONE}standby = 65\n")[0]
    (mistake,) = mistakes(tmp_path, f'{ONE}standby = 1\nproxy_protocol = "v2"\n')
    assert "name its client" in mistake
    (mistake,) = mistakes(tmp_path, f'{ONE}[parents.b]\nurl = "http://b:1"\n'
                          'via = "a"\nstandby = 1\n')
    assert "the first one of the chain" in mistake
    (mistake,) = mistakes(tmp_path, "".join(
        f'[parents.{name}]\nurl = "http://{name}:1"\nstandby = 43\n'
        for name in "abc"))
    assert "more than 128 connections of standby" in mistake


def test_the_credentials_are_in_no_output(tmp_path):
    from cutthrough.config.settings import gather

    (tmp_path / "secret").write_text("me:pass:word\n")
    file = tmp_path / "cutthrough.toml"
    file.write_text(f'{ONE}credentials_file = "{tmp_path}/secret"\n')
    shown = render(gather({}, {}, str(file)))
    assert "# credentials is set" in shown and "pass:word" not in shown
    assert 'url = "http://proxy.example.com:3128"' in shown


@pytest.mark.parametrize(("line", "told"), [
    ('url = "proxy:3128"', "is not http://host:port"),
    ('url = "ftp://proxy:3128"', "is not http://host:port"),
    ('url = "http://proxy"', "is not host:port"),
    ('url = "http://proxy:0"', "a port is between 1 and 65535"),
    ('url = "http://proxy:3128/a"', "is not http://host:port"),
    ('url = "http://me:secret@proxy:3128"', "give credentials_file"),
    ('url = "http://pro xy:3128"', "is not a host name"),
    ('url = "http://proxy:1"\ncredentials = "a:b"', "only a file may hold"),
    ('url = "http://proxy:1"\nresolve = "both"', "is not one of here, parent"),
    ('url = "http://proxy:1"\nplain = "absolute"', "give resolve"),
    ('url = "socks5://proxy:1"\nplain = "absolute"', "is for http:// and"),
    ('url = "socks5://proxy:1"\npass_credentials = true', "is for http:// and"),
    ('url = "http://proxy:1"\nvia = "b"', "no parent is named 'b'"),
    ('url = "http://proxy:1"\nvia = "a"', "is a circle"),
    ('url = "http://proxy:1"\nproxy_protocol = true', "expected off|v1|v2"),
    ("", "url is missing"), ('url = "http://proxy:1"\nurls = "x"', "no such key")])
def test_a_mistake_in_a_parent_has_its_line(tmp_path, line, told):
    (one,) = mistakes(tmp_path, f"[parents.a]\n{line}\n")
    assert told in one and "secret@" not in one
    assert one.startswith((":1", ":2", ":3"))


@pytest.mark.parametrize(("text", "told"), [
    ("me", "is not name:password"), (":secret", "is not name:password")])
def test_credentials_have_a_name_and_a_colon(tmp_path, text, told):
    (tmp_path / "secret").write_text(text)
    (one,) = mistakes(tmp_path, f'{ONE}credentials_file = "{tmp_path}/secret"\n')
    assert told in one and "secret:" not in one


@pytest.mark.parametrize(("table", "told"), [
    ("parents = []", "is empty"), ('parents = ["b"]', "no parent is named 'b'"),
    ('parents = ["a", "a"]', "names a parent twice"),
    ('parents = ["a"]\nweights = [1, 2]\nchoose = "hash_user"', "has 2 numbers for 1"),
    ('parents = ["a"]\nweights = [0]\nchoose = "round_robin"', "is below 1"),
    ('parents = ["a"]\nweights = [1]', "has no effect with failover"),
    ('parents = ["a", "direct"]\nchoose = "fastest"', "direct has neither"),
    ('parents = ["a"]\nchoose = "random"', "is not one of failover"),
    ('choose = "failover"', "parents is missing")])
def test_a_mistake_in_a_group_has_its_line(tmp_path, table, told):
    (one,) = mistakes(tmp_path, f"{ONE}[groups.g]\n{table}\n")
    assert told in one and one.startswith(":")


def test_names_are_of_one_kind_only(tmp_path):
    assert "is also a parent's name" in mistakes(
        tmp_path, f'{ONE}[groups.a]\nparents = ["a"]\n')[0]
    assert "cannot be named direct" in mistakes(
        tmp_path, '[parents.direct]\nurl = "http://a:1"\n')[0]
    assert "no parent or group is named 'b'" in mistakes(
        tmp_path, f'route = "b"\n{ONE}')[0]


def test_groups_of_users_and_of_parents_are_not_mixed_up(tmp_path):
    (one,) = mistakes(tmp_path, '[groups]\nstaff = ["ann"]\n')
    assert "groups of users belong in the file of `policy`" in one
    with pytest.raises(PolicyError, match="belong in the configuration file"):
        read_policy('[groups.g]\nparents = ["a"]\n', "policy.toml", str)


def test_a_route_in_a_rule_must_exist_and_allow(tmp_path, capsys):
    rule = '[[rules]]\naction = "{}"\nroute = "{}"\n'
    with pytest.raises(PolicyError, match="has no effect in a rule that denies"):
        read_policy(rule.format("deny", "a"), "policy.toml", str)
    file, policy = tmp_path / "cutthrough.toml", tmp_path / "policy.toml"
    file.write_text(f'policy = "{policy}"\nuser = "me"\npassword = "x"\n{ONE}')
    policy.write_text(rule.format("allow", "b"))
    assert main(["check", "-c", str(file)]) == 2
    assert "policy.toml:1: route: no parent or group" in capsys.readouterr().err
    for route in ("a", "direct"):
        policy.write_text(rule.format("allow", route))
        assert main(["check", "-c", str(file)]) == 0


def test_check_names_the_rules_that_a_parent_undoes(tmp_path, capsys):
    """R43: if the parent resolves, no address is known here."""
    file, policy = tmp_path / "cutthrough.toml", tmp_path / "policy.toml"
    policy.write_text("""
[[rules]]
action = "deny"
addresses = ["192.0.2.0/24"]
[[rules]]
action = "allow"
addresses = ["10.0.0.0/8"]
[[rules]]
action = "allow"
hosts = ["*.example.com"]
""")
    head = f'policy = "{policy}"\nuser = "me"\npassword = "x"\nroute = "a"\n'
    file.write_text(head + ONE)
    assert main(["check", "-c", str(file)]) == 0
    assert "note" not in capsys.readouterr().out
    file.write_text(head + ONE + 'resolve = "parent"\n')
    assert main(["check", "-c", str(file)]) == 0
    out = capsys.readouterr().out
    assert "address floor" in out and f"{policy}:2: cannot deny" in out
    assert f"{policy}:5: cannot allow" in out and f"{policy}:8" not in out


def test_a_reload_changes_parents_in_running_workers():
    parent = Parent(name="a", url="http://127.0.0.1:1")
    before = Generation(1, from_options(parents=[parent], via="x"), Policy())
    for options in ({}, {"parents": [parent], "route": "a"},
                    {"parents": [Parent(name="a", url="http://127.0.0.1:2")]},
                    {"parents": [parent], "groups": [Group(name="g", parents=("a",))]}):
        after = Generation(2, from_options(via="x", **options), Policy())
        assert not needs_new_workers(before, after)
