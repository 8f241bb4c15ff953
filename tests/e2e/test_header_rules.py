"""Fields that a rule sets, adds and removes (`headers`), by each way through us."""

import pytest

from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.inside import ask, config, enter, over_tls
from tests.support.inside_http2 import reach as reach
from tests.support.origin import answer
from tests.support.parents import parent

pytestmark = pytest.mark.any_loop

SECRET = "key-0123456789"
OK = (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: nginx/1\r\nX-Kept: k\r\n\r\nok")
okay = answer(OK)
HEADERS = f"""
[headers.team.request]
set = {{ X-Team = "platform", X-Key = "{SECRET}", X-User = "{{user}}@{{client}}" }}
remove = ["Cookie"]
[headers.team.response]
remove = ["Server"]
add = {{ X-Kept = "too", X-For = "{{user}}" }}
"""
RULE = """
[[rules]]
name = "all"
action = "allow"
addresses = ["127.0.0.0/8"]
headers = ["team"]
"""
MODULE = """
class Looks:
    async def on_request_head(self, flow):
        assert "X-Key" not in flow.request.headers
        flow.request.headers["X-Seen"] = flow.request.headers.get("Cookie", "none")

class Reads:
    async def on_request_body(self, flow, body):
        return body.upper()

    async def on_response_body(self, flow, body):
        return body.upper()
"""


def check(request, body: bytes = b"") -> None:
    assert request.all("X-Team") == ["platform"]
    assert request.all("X-Key") == [SECRET]
    assert request.all("X-User") == ["user@127.0.0.1"]
    assert request.get("Cookie") is None
    assert request.body == body


def check_reply(reply, body: bytes = b"ok") -> None:
    assert (reply.status, reply.body) == (200, body)
    assert reply.get("Server") is None
    assert reply.all("X-Kept") == ["k", "too"]
    assert reply.all("X-For") == ["user"]


@pytest.fixture
def start(start_policy):
    def make(rule: str = "", more: str = "", **kinds):
        return start_policy(HEADERS + RULE + rule, more, **kinds)
    return make


@pytest.mark.parametrize("body", [b"", b"a body"])
def test_fields_are_changed_on_their_way_to_the_origin_and_back(
        start, make_origin, dial, body):
    proxy, origin = start(), make_origin(okay)
    client = dial(proxy)
    for _ in range(3):                       # of one kept connection
        fields = ["Cookie: c", "X-Team: forged", "X-Key: forged", "X-User: root"]
        if body:
            fields.append(f"Content-Length: {len(body)}")
        check_reply(client.ask("POST", origin.url("/a"), *fields, body=body))
    assert len(origin.requests) == 3
    for request in origin.requests:
        check(request, body)


def test_bytes_are_counted_as_the_client_sent_them(
        start, start_policy, make_origin, dial):
    origin = make_origin(okay)
    counts = []
    for proxy in (start(), start_policy(RULE.replace("headers", "# headers"))):
        dial(proxy).get(origin.url("/a"), "Cookie: " + "c" * 500)
        counts.append(proxy.wait_log(1)[0]["bytes_up"])
    assert counts[0] == counts[1]


def test_they_are_changed_inside_an_opened_tunnel(start, make_origin, dial):
    proxy = start('tls = "intercept"', config())
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    for _ in range(2):
        check_reply(ask(client, "GET", "/", "Cookie: c", "X-Key: forged"))
    for request in origin.requests:
        check(request)


def test_they_are_changed_for_clients_of_http2(start, make_origin, reach):
    pytest.importorskip("cutthrough.http2.transport")
    proxy = start('tls = "intercept"', config())
    origin = make_origin(over_tls(okay))
    peer = reach(proxy, origin.port)
    reply = peer.wait(peer.get("https://a.example/one"))
    fields = dict(reply.fields)
    assert reply.status == 200 and "server" not in fields and fields["x-for"] == "user"
    check(origin.requests[0])


def test_a_parent_gets_them_and_its_credentials_stay(start_policy, make_origin, dial):
    way = make_origin(okay)
    proxy = start_policy(HEADERS + RULE + 'route = "corp"',
                         parent(way, resolve="parent", plain="absolute"))
    check_reply(dial(proxy).get("http://127.0.0.1:9/a", "Cookie: c"))
    assert way.requests[0].target == "http://127.0.0.1:9/a"
    check(way.requests[0])


@pytest.mark.parametrize("names", ['"looks"', '"reads"', '"looks", "reads"'])
def test_filters_see_the_fields_of_the_client(start_policy, make_origin, dial, names):
    origin = make_origin(okay)
    proxy = start_policy(
        f'[filters.looks]\ncode = "own:Looks"\n[filters.reads]\ncode = "own:Reads"\n'
        f"{HEADERS}{RULE}filters = [{names}]", modules={"own": MODULE})
    upper = "reads" in names
    reply = dial(proxy).ask("POST", origin.url("/a"), "Cookie: c", "Content-Length: 1",
                            body=b"b")
    check_reply(reply, b"OK" if upper else b"ok")
    check(origin.requests[0], b"B" if upper else b"b")
    assert origin.requests[0].get("X-Seen") == ("c" if "looks" in names else None)


@pytest.mark.parametrize("how", ["plain", "parent", "filters"])
def test_what_a_rule_sets_is_in_no_log_and_no_capture(
        start_policy, make_origin, dial, database, how):
    """R82."""
    origin = make_origin(okay)
    rule, more, kinds = 'capture = "full"\n', f'capture_file = "{database}"\n', {}
    if how == "parent":
        rule, more = rule + 'route = "corp"', more + parent(
            origin, resolve="parent", plain="absolute")
    if how == "filters":
        rule = f'{rule}filters = ["reads"]\n[filters.reads]\ncode = "own:Reads"'
        kinds = {"modules": {"own": MODULE}}
    proxy = start_policy(HEADERS + RULE + rule, more, **kinds)
    dial(proxy).ask("POST", origin.url("/a"), "X-Own: mine", "Content-Length: 4",
                    body=b"body")
    check(origin.requests[0], b"BODY" if how == "filters" else b"body")
    wait_rows(database, 1)
    proxy.stop()
    written = b"".join(path.read_bytes() for path in database.parent.iterdir()
                       if path.is_file())
    assert b"mine" in written
    assert SECRET.encode() not in written + proxy.log_path.read_bytes()


def test_a_head_that_becomes_too_large_is_refused(start_policy, make_origin, dial):
    fields = ", ".join(f'F{number} = "{"x" * 1000}"' for number in range(32))
    proxy = start_policy(f"[headers.team.request]\nadd = {{ {fields} }}\n{RULE}",
                         'max_head = "256KiB"')
    origin = make_origin(okay)
    reply = dial(proxy).get(origin.url("/a"), "X-Own: " + "o" * 250_000)
    assert reply.status == 431 and b"head_too_large" in reply.body
    assert proxy.wait_log(1)[0]["reason"] == "head_too_large"


def test_a_reload_changes_them(start, start_policy, make_origin, dial):
    proxy, origin = start(), make_origin(okay)
    client = dial(proxy)
    check_reply(client.get(origin.url("/a")))
    proxy.policy.write_text(proxy.policy.read_text().replace("platform", "other"))
    assert "headers" in proxy.hup()
    dial(proxy).get(origin.url("/b"))
    assert origin.requests[-1].get("X-Team") == "other"
