"""A policy in force: rules by name and by address, and requests that run already."""

import base64
import textwrap

import pytest

from cutthrough.cli.main import main
from tests.support.client import USER, build_request
from tests.support.lines import read_line
from tests.support.origin import echo
from tests.support.policies import LOCAL
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    return start_policy


def test_what_no_rule_allows_is_refused(start, make_origin, dial):
    proxy, origin = start('default = "deny"'), make_origin()
    reply = dial(proxy).get(origin.url())
    assert (reply.status, reply.error) == (403, "http_request_denied")
    assert dial(proxy).connect(origin.authority).status == 403
    for line in proxy.wait_log(2):
        assert line["reason"] == "destination_denied"
    assert not origin.received


def test_a_rule_that_names_the_address_opens_the_floor(start, make_origin, dial):
    proxy, origin, echoing = start(LOCAL), make_origin(), make_origin(echo)
    assert dial(proxy).get(origin.url()).status == 200
    assert dial(proxy).tunnel(echoing.authority)


def test_a_rule_that_names_only_the_host_leaves_the_floor_closed(
        start, make_origin, dial):
    proxy, origin = start("""
        [[rules]]
        action = "allow"
        hosts = ["localhost"]
    """), make_origin()
    url = origin.url().replace("127.0.0.1", "localhost")
    reply = dial(proxy).get(url)
    assert (reply.status, reply.error) == (403, "destination_ip_prohibited")


@pytest.mark.dials_out                      # a query for the other name
def test_a_refused_name_is_not_resolved(start, dial):
    proxy = start("""
        [[rules]]
        action = "deny"
        hosts = ["*.invalid"]
        [[rules]]
        action = "allow"
    """)
    assert dial(proxy).get("http://refused.invalid/").status == 403
    assert dial(proxy).get("http://invalid/").status == 502, "not below *.invalid"


def test_every_request_of_a_connection_is_judged_on_its_own(start, make_origin, dial):
    origin = make_origin()
    port = origin.authority.rpartition(":")[2]
    proxy = start(f"""
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.1/32"]
        ports = [{port}]
        methods = ["GET"]
    """)
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    assert client.ask("HEAD", origin.url()).status == 403
    assert client.get(make_origin().url()).status == 403, "another port"
    assert client.get(origin.url()).status == 200


def test_an_idle_connection_to_an_address_that_is_refused_refuses_no_other(
        start, make_origin, dial):
    """The reply was a 403 if another request had been connected to the refused address,
    though the name has an address that may be dialled."""
    proxy = start("""
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.2/32"]
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.1/32"]
        methods = ["GET"]
    """, 'dns_overrides = ["two.test=127.0.0.1", "two.test=127.0.0.2"]\n')
    origin = make_origin(host="0.0.0.0")
    url = f"http://two.test:{origin.port}/"
    client = dial(proxy)
    assert client.get(url).status == 200
    assert client.ask("HEAD", url).status == 200
    assert [r["peer"] for r in proxy.wait_log(2)] == ["127.0.0.1", "127.0.0.2"]


def test_the_user_of_the_configuration_is_in_the_groups_that_name_him(
        start, make_origin, dial):
    """The user was in no group: a rule that denies his group let him pass, and hooks
    got no group."""
    origin, other = make_origin(), make_origin()
    proxy = start(f"""
        [groups]
        guests = ["{USER}"]
        staff = ["somebody else"]
        [limits.few]
        groups = ["guests"]
        requests_per_second = 0.01
        burst = 2
        [[rules]]
        action = "deny"
        groups = ["guests"]
        ports = [{origin.port}]
        [[rules]]
        action = "deny"
        groups = ["staff"]
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
    """, hook="""
        from cutthrough import Decision

        async def decide(request):
            return Decision(True, reason=" ".join(request.groups))
    """)
    assert dial(proxy).get(origin.url()).status == 403
    assert [dial(proxy).get(other.url()).status for _ in range(3)] == [200, 200, 429]
    assert proxy.wait_log(1, reason="ok")[0]["hook"] == "guests"
    assert not origin.received


def test_a_rule_that_reports_lets_pass_and_says_so(start, make_origin, dial):
    proxy, origin = start("""
        [[rules]]
        name = "watched"
        action = "report"
        addresses = ["127.0.0.0/8"]
    """, 'address_floor = "off"\n'), make_origin()
    assert dial(proxy).get(origin.url()).status == 200
    line = proxy.wait_log(1)[0]
    assert (line["rule"], line["report"]) == ("watched", True)


REFUSED_BEFORE = {
    "port_denied": build_request("CONNECT", "open.test:22", host="open.test:22"),
    "body_too_large": build_request(
        "POST", "http://open.test/", "Content-Length: 9", "Connection: close"),
}


@pytest.mark.parametrize("form", ["json", "%ct::reason %ct::rule"])
@pytest.mark.parametrize("reason", REFUSED_BEFORE)
def test_what_was_refused_before_the_rules_blames_none(start, dial, form, reason):
    """The log named the first rule of the file for the first request of a connection,
    and the default for a later one, but neither had judged the request."""
    proxy = start("""
        [[rules]]
        name = "no"
        action = "deny"
        hosts = ["denied.test"]
    """, f'max_body = 8\nconnect_ports = [443]\naccess_log_format = "{form}"\n')
    first, later = dial(proxy), dial(proxy)
    assert later.get("http://denied.test/").status == 403
    for client in (first, later):
        client.send(REFUSED_BEFORE[reason])
        assert client.read_response().status in (403, 413)
    assert dial(proxy).get("http://other.test/").status == 403
    lines = wait_until(lambda: len(proxy.lines()) == 4 and proxy.lines(), "four lines")
    if form == "json":
        lines = [read_line(line) for line in lines]
        told = [(line["reason"], line.get("rule", "-")) for line in lines]
        assert "rule" not in lines[1]
    else:
        told = [tuple(line.split()) for line in lines]
    assert told == [
        ("destination_denied", "no"), (reason, "-"), (reason, "-"),
        ("destination_denied", "default")]


BY_ADDRESS = """
    [limits.few]
    tunnels = 1
    requests_per_second = 0.001
    burst = 2
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.1"]
    limits = "few"
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
"""
NAMES = 'dns_overrides = ["near.test=127.0.0.1", "far.test=127.0.0.2"]\n'


def test_limits_of_a_rule_that_hangs_on_the_address_apply(start, make_origin, dial):
    """A name alone does not select the rule: when the limits were taken by name, they
    were the limits of a rule that did not match, or there were no limits."""
    proxy, near = start(BY_ADDRESS, NAMES), make_origin()
    far = make_origin(host="127.0.0.2")
    client = dial(proxy)
    for _ in range(4):
        assert client.get(f"http://far.test:{far.port}/").status == 200
    url = f"http://near.test:{near.port}/"
    assert [client.get(url).status for _ in range(4)] == [200, 200, 429, 429]
    assert len(near.connections) == 1, "the second one went by a pooled connection"
    assert client.get(f"http://far.test:{far.port}/").status == 200
    assert proxy.wait_reason("rate_limited")["host"] == "near.test"


def test_tunnels_are_counted_where_the_address_names_the_limits(
        start, make_origin, dial):
    rules = BY_ADDRESS.replace("burst = 2", "burst = 1000")
    proxy, origin = start(rules, NAMES), make_origin(echo)
    authority = f"near.test:{origin.port}"
    for _ in range(3):
        assert dial(proxy).connect("near.test:1").status == 502
        proxy.wait_reason("connection_refused")
    held = dial(proxy).tunnel(authority)
    assert dial(proxy).connect(authority).status == 429
    held.close()
    wait_until(lambda: dial(proxy).connect(authority).status == 200, "room for another")


def test_a_reload_judges_the_next_request_by_the_new_rules(start, make_origin, dial):
    proxy, origin = start(LOCAL), make_origin()
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    proxy.policy.write_text('default = "deny"')
    assert proxy.hup() == "generation 2: rules 0 (+0 -1)"
    assert client.get(origin.url()).status == 403
    proxy.policy.write_text("[[rules]]\nacton = 'allow'\n")
    assert "acton" in proxy.hup()
    assert client.get(origin.url()).status == 403


def test_running_tunnels_are_cut_where_the_rule_says_so(start, make_origin, dial):
    proxy, origin = start(LOCAL), make_origin(echo)
    stays = dial(proxy)
    stays.tunnel(origin.authority)
    proxy.policy.write_text('default = "deny"')
    proxy.hup()
    stays.send(b"still")
    assert stays.read_exact(5) == b"still", "a refusal without cut"
    proxy.policy.write_text(textwrap.dedent(LOCAL))
    proxy.hup()

    def passes():
        client = dial(proxy)
        return client if client.connect(origin.authority).status == 200 else None

    goes = wait_until(passes, "the workers to have heard of it")
    proxy.policy.write_text("cut = true\n")
    proxy.hup()
    for tunnel in (stays, goes):
        with pytest.raises(ConnectionResetError):
            tunnel.read_rest()
    assert {line["reason"] for line in proxy.wait_log(2)} == {"destination_denied"}


@pytest.mark.parametrize("how", ["CONNECT", "Upgrade"])
def test_what_becomes_a_tunnel_after_the_reload_is_cut_like_one(
        start, make_origin, dial, tmp_path, how):
    """It began under the old rules and was no tunnel when the new ones cut them: it
    came to be one a moment later, for as long as a tunnel may live."""
    asked, go = tmp_path / "asked", tmp_path / "go"

    def switch(conn):
        conn.read_request()
        wait_until(go.exists, "the reload")
        conn.send(b"HTTP/1.1 101 Now\r\nUpgrade: raw\r\nConnection: upgrade\r\n\r\n")
        conn.stall()

    proxy = start(LOCAL, hook=f"""
        import asyncio, pathlib
        from cutthrough import Decision

        async def decide(request):
            pathlib.Path("{asked}").touch()
            while request.method == "CONNECT" and not pathlib.Path("{go}").exists():
                await asyncio.sleep(0.01)
            return Decision(True)
    """)
    client = dial(proxy)
    if how == "CONNECT":
        origin = make_origin(echo)
        client.send(build_request("CONNECT", origin.authority, host=origin.authority))
        wait_until(asked.exists, "the question")
    else:
        origin = make_origin(switch)
        client.send(build_request(
            "GET", origin.url(), "Connection: upgrade", "Upgrade: raw"))
        origin.wait_requests(1)
    proxy.policy.write_text("cut = true\n")
    proxy.hup()
    go.touch()
    assert client.read_response("CONNECT").status == 403
    proxy.wait_reason("destination_denied")


@pytest.mark.dials_out                      # a query for other.test
def test_what_is_proposed_for_a_log_lets_the_refused_pass(
        start, make_origin, dial, capsys):
    proxy = start('default = "deny"', 'address_floor = "off"\n'
                  'dns_overrides = ["a.test=127.0.0.1"]\n')
    origin, tunnel = make_origin(), make_origin(echo)
    url = origin.url().replace("127.0.0.1", "a.test")
    authority = tunnel.authority.replace("127.0.0.1", "a.test")
    assert dial(proxy).get(url).status == 403
    assert dial(proxy).connect(authority).status == 403
    assert dial(proxy).get("http://other.test/").status == 403
    assert dial(proxy).get(origin.url()).status == 403
    proxy.wait_log(4)
    assert main(["suggest", "--log", str(proxy.log_path)]) == 0
    proxy.policy.write_text(capsys.readouterr().out)
    assert proxy.hup() == "generation 2: rules 3 (+3 -0)"
    assert dial(proxy).get(url).status == 200
    assert dial(proxy).tunnel(authority)
    assert dial(proxy).get("http://other.test/").status == 502, "no such name"
    assert dial(proxy).ask("POST", url).status == 403, "nobody asked for that"
    assert dial(proxy).get(origin.url()).status == 403, "an address opens the floor"


def test_a_dial_failure_is_no_refusal_nor_a_refusal_a_dial_failure(
        start, make_origin, dial):
    """R28: a rule refuses one address of a name; no program listens at the other."""
    proxy = start("""
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.3"]
    """, """dns_overrides = ["mixed.test=127.0.0.2", "mixed.test=127.0.0.3",
        "denied.test=127.0.0.2"]\n""")
    origin = make_origin(host="127.0.0.2")
    url = f"http://%s:{origin.port}/"
    reply = dial(proxy).get(url % "mixed.test")
    assert (reply.status, reply.error) == (502, "connection_refused")
    reply = dial(proxy).get(url % "denied.test")
    assert (reply.status, reply.error) == (403, "http_request_denied")
    assert not origin.connections


def test_a_user_that_the_policy_lists_may_come_in(start, make_origin, dial):
    bcrypt = pytest.importorskip("bcrypt")
    mark = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    proxy, origin = start(f"""
        [users.alice]
        password = "{mark}"
        groups = ["staff"]
        [[rules]]
        action = "allow"
        groups = ["staff"]
        addresses = ["127.0.0.0/8"]
    """), make_origin()
    code = base64.b64encode(b"alice:secret").decode()
    assert dial(proxy).get(origin.url(), auth=f"Basic {code}").status == 200
    assert dial(proxy).get(origin.url()).status == 403, f"{USER} is in no group"


def test_a_method_is_denied_in_small_letters(start_policy, make_origin, dial):
    """The origin got "delete", which many frameworks take for DELETE."""
    proxy, origin = start_policy("""
        [[rules]]
        action = "deny"
        methods = ["DELETE", "PATCH"]
        """ + LOCAL), make_origin()
    for method in ("DELETE", "delete", "Patch"):
        assert dial(proxy).ask(method, origin.url()).status == 403
    assert dial(proxy).ask("search", origin.url()).status == 200
    assert [request.method for request in origin.requests] == ["search"]


def test_a_method_is_allowed_by_its_name(start_policy, make_origin, dial):
    proxy = start_policy("""
        default = "deny"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.1"]
        methods = ["PATCH", "PROPFIND"]
        """)
    url = make_origin().url()
    for method, status in (("PATCH", 200), ("PROPFIND", 200), ("PROPPATCH", 403),
                           ("GET", 403), ("patch", 403)):
        client = dial(proxy)
        client.send(build_request(method, url))
        assert client.read_response(method).status == status, method
