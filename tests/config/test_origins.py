"""`[origins.NAME]`, `origin`, and `origin` of a rule: their keys, and every mistake."""

import pytest

from cutthrough.cli.main import main
from cutthrough.config.settings import gather, render
from cutthrough.generation.generation import Generation, needs_new_workers
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Policy, PolicyError
from cutthrough.tools.dry_run import DryRun
from tests.support.mistakes import mistakes, read

ONE = """[origins.api]
urls = ["http://Api.Example.com/", "https://[2001:db8::1]:8443"]
"""


def test_an_origin_and_its_servers_are_read(tmp_path):
    config = read(tmp_path, f"""origin = "api"
{ONE}weights = [1, 2]
host = "url"
ca = "ca.pem"
check = "/healthz"
forwarded = "x"
forwarded_from = ["10.0.0.0/8"]
""")
    (origin,) = config.origins
    assert (config.origin, origin.choose) == ("api", "round_robin")
    first, second = origin.servers
    assert (first.name, first.url) == (
        "api/api.example.com:80", "http://api.example.com:80")
    assert (second.name, second.url) == (
        "api/[2001:db8::1]:8443", "https://[2001:db8::1]:8443")
    assert (first.host, second.host) == ("api.example.com", "[2001:db8::1]:8443")
    assert (first.ca, second.ca) == ("", "ca.pem"), "of https:// alone"
    assert second.expected_name == "2001:db8::1"
    assert config.all_parents == origin.servers


@pytest.mark.parametrize(("host", "sent"), [
    ("keep", ""), ("Api.Example.com", "api.example.com"), ("a:8080", "a:8080"),
    ("[::1]:1", "[::1]:1"), ("[::1]", "[::1]")])
def test_a_host_is_kept_or_set(tmp_path, host, sent):
    config = read(tmp_path, f'{ONE}host = "{host}"\n')
    assert {server.host for server in config.origins[0].servers} == {sent}


@pytest.mark.parametrize(("text", "reasons"), [
    ("[origins.api]\n", [":1: origins.api: urls is missing"]),
    ('[origins.api]\nurls = ["a:80"]\n', ["'a:80' is not http://host[:port] or"]),
    ('[origins.api]\nurls = ["http://a/v1"]\n', ["without a path"]),
    ('[origins.api]\nurls = ["http://u@a"]\n', ["is not http://host[:port]"]),
    ('[origins.api]\nurls = ["http://a:0"]\n', ["a port is between 1 and 65535"]),
    ('[origins.api]\nurls = ["http://a", "http://A:80"]\n', ["names a server twice"]),
    (ONE + "weights = [1]\n", ["has 1 numbers for 2 urls"]),
    (ONE + 'weights = [1, 2]\nchoose = "failover"\n', ["has no effect with failover"]),
    (ONE + 'choose = "random"\n', ["'random' is not one of"]),
    (ONE + 'host = "a b"\n', ["is not a host name"]),
    (ONE + 'check = "healthz"\n', ["is neither a path such as /healthz, nor tcp"]),
    (ONE + 'check = "/a b"\n', ["is neither a path such as /healthz, nor tcp"]),
    (ONE + 'check = "/"\ncheck_status = ["99"]\n', ["is neither a status such as"]),
    (ONE + 'check = "/"\ncheck_status = ["300-200"]\n', ["is neither a status such"]),
    (ONE + 'check = "/"\ncheck_status = []\n', ["is empty"]),
    (ONE + 'check = "tcp"\ncheck_status = ["200"]\n', ["has no effect with check = "]),
    (ONE + 'check_failures = 2\n', ["has no effect without check"]),
    (ONE + 'check_successes = 2\n', ["has no effect without check"]),
    (ONE + 'check_interval = "1s"\n', ["has no effect without check"]),
    (ONE + 'forwarded_from = ["10.0.0.0/8"]\n', ["has no effect with forwarded"]),
    (ONE + 'certificate_key = "k"\n', ["has no effect without certificate"]),
    ('[origins.api]\nurls = ["http://a"]\nca = "x"\n', ["is for https:// servers"]),
    (ONE + 'url = "http://a"\n', ["no such key; did you mean urls?"]),
    (ONE + '[parents.api]\nurl = "http://a:1"\n', ["is also the name of a parent"]),
    ('[origins.direct]\nurls = ["http://a"]\n', ["is also the name of a parent"]),
    ('origin = "ap"\n' + ONE, ["no origin is named 'ap'"]),
    ('origin = "http://a:1"\n' + ONE, ["is a URL beside [origins]"])])
def test_a_mistake_is_named_with_its_place(tmp_path, text, reasons):
    told = mistakes(tmp_path, text)
    assert len(told) == len(reasons), told
    for line, reason in zip(told, reasons, strict=True):
        assert line.startswith(":") and reason in line, told


def test_a_reload_changes_it_in_running_workers(tmp_path):
    via = 'via = "x"\n'
    before = read(tmp_path, via + ONE)
    after = read(tmp_path, via + ONE + 'host = "url"\n[origins.b]\nurls = ["http://b"]\n')
    assert not needs_new_workers(
        Generation(1, before, Policy()), Generation(2, after, Policy()))


def test_it_is_shown_with_its_defaults(tmp_path):
    file = tmp_path / "cutthrough.toml"
    file.write_text(ONE)
    shown = render(gather({}, {}, str(file)))
    assert '[origins.api]\nurls = ["http://api.example.com:80", ' in shown
    assert 'host = "keep"  # default' in shown


def test_without_an_origin_there_is_nothing_to_ask(tmp_path):
    """A request in origin form has the test of a pointer, and any other one nothing."""
    with_one = DryRun(read(tmp_path, ONE + 'host = "url"\n'), Policy()).snapshot.ways
    assert with_one is not None and with_one.has_origins
    assert DryRun(read(tmp_path, ""), Policy()).snapshot.ways is None


def rule(keys: str) -> str:
    return f'[[rules]]\naction = "allow"\n{keys}\n'


@pytest.mark.parametrize(("keys", "reason"), [
    ('origin = "a b"', "is not a name of letters"), ("origin = 1", "takes a name of"),
    ('origin = "a"\nroute = "b"', "route: has no place beside `origin`"),
    ('origin = "a"\ntls = "intercept"', "tls: has no place beside `origin`"),
    ('origin = "a"\nsni = "match"', "sni: has no place beside `origin`"),
    ('origin = "a"\nmethods = ["CONNECT"]', "origin: is of requests in origin form")])
def test_a_rule_that_contradicts_itself_is_refused(keys, reason):
    with pytest.raises(PolicyError, match=reason):
        read_policy(rule(keys), "policy.toml", lambda name: "")


def test_check_names_the_rule_whose_origin_is_missing(tmp_path, capsys):
    file, policy = tmp_path / "c.toml", tmp_path / "p.toml"
    file.write_text(ONE)
    policy.write_text(rule('origin = "api"') + rule('origin = "apl"'))
    assert main(["check", "-c", str(file), "--policy", str(policy), "--user", "ann",
                 "--password", "a word"]) == 2
    assert (f"{policy}:4: origin: no origin of the configuration is named 'apl'; did "
            "you mean api?") in capsys.readouterr().err
