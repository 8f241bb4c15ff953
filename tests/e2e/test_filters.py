"""Filters in a worker: their view and changes, the cost of a fault, and its victims."""

import gzip
import time

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.client import PASSWORD, USER, build_request
from tests.support.filters import FILTERS, RULE
from tests.support.filters import start as start
from tests.support.inside import HERE, ask, enter, over_tls
from tests.support.inside import config as inside
from tests.support.origin import answer, answer_and_close
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

BODY = bytes(range(97, 123)) * 10_000           # 260 000 letters
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (
        BODY[at:at + 7777] for at in range(0, len(BODY), 7777))) + b"0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


FAILED = 'filter_calls_total{result="failed"}'


def wait_for(proxy, text):
    wait_until(lambda: text in proxy.stderr(), text)


def test_a_filter_that_does_nothing_changes_nothing(
        start, start_policy, make_origin, dial):
    plain, proxy, origin = start_policy(RULE), start("Nothing"), make_origin()
    for one in (plain, proxy):
        client = dial(one)
        for _ in range(2):
            assert client.get(origin.url("/a?b"), "X-One: 1").body == b"ok"
        assert client.ask("HEAD", origin.url()).body == b""
    names = [[name for name, _ in request.fields] for request in origin.requests]
    assert names[:3] == names[3:]
    assert [line["reason"] for line in proxy.wait_log(3)] == ["ok"] * 3
    assert len(origin.connections) == 2, "pooled, with filters too"


@pytest.mark.parametrize("name", ["Created", "Nothing"])
def test_many_requests_of_one_segment_are_filtered_one_after_another(
        start, make_origin, dial, name):
    """A function without an `await` is called within the read of its request."""
    url, count, status = make_origin().url(), 3000, 201 if name == "Created" else 200
    client = dial(start(name))
    client.send(build_request("GET", url) * count)
    assert {client.read_response("GET").status for _ in range(count)} == {status}
    assert client.get(url).status == status


def test_heads_are_changed_both_ways(start, make_origin, dial):
    proxy, origin = start("Change"), make_origin()
    client = dial(proxy)
    for _ in range(2):
        reply = client.get(origin.url("/old/x"), "X-Secret: 1", "Accept: */*")
        assert (reply.status, reply.body, reply.get("X-Seen")) == (203, b"ok", "yes")
        assert reply.get("Content-Length") == "2"
    for request in origin.requests:
        assert request.target == "/new/x"
        assert request.get("X-Added") == "by filter" and request.get("X-Secret") is None
        assert request.get("Host") == origin.authority
        assert len(request.all("Via")) == 1
    assert len(origin.connections) == 1


def test_a_changed_target_is_judged_again(start, make_origin, dial):
    """R41: the rules decide about the destination that the filter names."""
    proxy, origin = start("Move"), make_origin()
    client = dial(proxy)
    assert client.get(origin.url("/localhost")).status == 200
    assert origin.requests[0].get("Host") == f"localhost:{origin.port}"
    refused = client.get(origin.url("/192.0.2.1"))
    assert refused.status == 403
    line = proxy.wait_log(2)[1]
    assert (line["host"], line["reason"]) == ("192.0.2.1", "destination_denied")


def test_an_answer_comes_without_the_origin(start, make_origin, dial):
    proxy, origin = start("Local"), make_origin()
    client = dial(proxy)
    for _ in range(2):
        reply = client.get(origin.url("/local"))
        assert (reply.status, reply.body) == (200, b"x" * 300_000)
        assert reply.get("Date") is not None
    assert client.ask("HEAD", origin.url("/local")).get("Content-Length") == "300000"
    assert not origin.connections
    assert client.get(origin.url("/other")).body == b"ok"
    reasons = [line["reason"] for line in proxy.wait_log(4)]
    assert reasons == ["filter_answered"] * 3 + ["ok"]


def test_an_answer_to_an_upload_is_the_connection_s_last(start, make_origin, dial):
    proxy, origin = start("Local"), make_origin()
    client = dial(proxy)
    reply = client.ask("POST", origin.url("/local"), "Content-Length: 10")
    assert (reply.status, reply.get("Connection")) == (200, "close")


def test_a_filter_refuses_with_its_reason(start, make_origin, dial):
    proxy, origin = start("Refuse"), make_origin()
    client = dial(proxy)
    for _ in range(2):
        reply = client.get(origin.url())
        assert (reply.status, reply.error) == (403, "http_request_denied")
        assert b"nothing from here, user" in reply.body
    line = proxy.wait_log(2)[1]
    assert line["reason"] == "filter_refused"
    assert line["hook"] == "Refuse: nothing from here, user"


def test_a_response_is_replaced(start, make_origin, dial):
    proxy, origin = start("Replace"), make_origin(answer(SIZED))
    client = dial(proxy)
    assert [client.get(origin.url()).body for _ in range(2)] == [b"not here"] * 2
    assert proxy.wait_log(2)[0]["reason"] == "filter_answered"


@pytest.mark.parametrize("name", ["Upper", "Pieces"])
@pytest.mark.parametrize("script", [answer(SIZED), answer(CHUNKED), answer_and_close(
    b"HTTP/1.1 200 OK\r\n\r\n" + BODY)], ids=["sized", "chunked", "until close"])
def test_bodies_are_changed_both_ways(start, make_origin, dial, name, script):
    """R7, R8: framed again, in one way."""
    proxy, origin = start(name), make_origin(script)
    client = dial(proxy)
    for fields, body in (
            ([f"Content-Length: {len(BODY)}"], BODY),
            (["Transfer-Encoding: chunked"], CHUNKED.partition(b"\r\n\r\n")[2])):
        client.send(build_request("POST", origin.url(), *fields) + body)
        reply = client.read_response("POST")
        assert (reply.status, reply.body) == (200, BODY.upper())
    assert [request.body for request in origin.requests] == [BODY.upper()] * 2
    for request in origin.requests:
        assert (request.get("Content-Length") is None) == (name == "Pieces")
    assert [line["reason"] for line in proxy.wait_log(2)] == ["ok"] * 2


@pytest.mark.parametrize("name", ["Upper", "Pieces"])
@pytest.mark.parametrize("fields", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_what_follows_a_filtered_body_is_the_next_request(
        start, make_origin, dial, name, fields):
    """R6: nothing of it reaches a filter."""
    proxy, origin = start(name), make_origin()
    client = dial(proxy)
    body = b"hello" if "5" in fields else b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"
    client.send((build_request("POST", origin.url(), fields) + body) * 2
                + build_request("GET", origin.url("/free")))
    for method in ("POST", "POST"):
        assert client.read_response(method).body == b"OK"
    assert client.read_response("GET").body == b"ok"
    assert [request.body for request in origin.requests] == [b"HELLO"] * 2 + [b""]


def test_an_upload_that_ends_early_is_no_request(start, make_origin, dial):
    proxy, origin = start("Upper"), make_origin()
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), "Content-Length: 5") + b"he")
    client.half_close()
    assert client.at_eof()
    assert proxy.wait_log(1)[0]["reason"] == "client_closed"
    assert not origin.requests


def test_a_response_that_ends_early_is_not_passed_as_whole(start, make_origin, dial):
    proxy, origin = start("Upper"), make_origin(answer_and_close(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"))
    assert dial(proxy).get(origin.url()).status == 502
    assert proxy.wait_log(1)[0]["reason"] == "response_truncated"


def test_a_parent_gets_the_changed_request(
        start, start_policy, make_origin, dial, tmp_path):
    behind, origin, file = start_policy(RULE), make_origin(), tmp_path / "credentials"
    file.write_text(f"{USER}:{PASSWORD}\n")
    file.chmod(0o600)
    proxy = start("Change", "Upper", config=(
        f'route = "next"\n[parents.next]\nurl = "http://127.0.0.1:{behind.port}"\n'
        f'credentials_file = "{file}"\n'))
    client = dial(proxy)
    client.send(build_request("POST", origin.url("/old"), "Content-Length: 5")
                + b"hello")
    reply = client.read_response("POST")
    assert (reply.status, reply.body) == (203, b"OK")
    request = origin.requests[0]
    assert (request.target, request.body) == ("/new", b"HELLO")


@pytest.mark.parametrize("name", ["Upper", "Pieces"])
def test_a_client_of_http_1_0_gets_a_body_without_chunks(
        start, make_origin, dial, name):
    proxy, origin = start(name), make_origin(answer(CHUNKED))
    client = dial(proxy)
    client.send(build_request("GET", origin.url(), version="HTTP/1.0"))
    head, _, body = client.read_rest().partition(b"\r\n\r\n")
    assert body == BODY.upper() and b"chunked" not in head.lower()


def test_a_coded_body_is_decoded_for_a_filter(start, make_origin, dial):
    coded = gzip.compress(BODY)
    proxy, origin = start("Upper"), make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nETag: \"1\"\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(coded), coded)))
    reply = dial(proxy).get(origin.url(), "Accept-Encoding: gzip")
    assert reply.body == BODY.upper()
    assert reply.get("Content-Encoding") is None and reply.get("ETag") is None


def test_what_is_only_looked_at_goes_on_as_it_came(start, make_origin, dial):
    coded = gzip.compress(BODY)
    proxy, origin = start("Look"), make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nETag: \"1\"\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(coded), coded)))
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), "Content-Length: 5") + b"hello")
    reply = client.read_response("POST")
    assert (reply.body, reply.get("ETag")) == (coded, '"1"')
    assert origin.requests[0].body == b"hello"


def test_a_body_s_filter_answers_and_refuses(start, make_origin, dial):
    proxy, origin = start("Late"), make_origin(answer(CHUNKED))
    client = dial(proxy)
    for path, status, body in (("/", 410, b"gone"), ("/refuse", 403, b""),
                               ("/", 410, b"gone")):
        reply = client.get(origin.url(path))
        assert reply.status == status and reply.body.endswith(body)
    client.send(build_request("POST", origin.url(), "Content-Length: 4") + b"stop")
    reply = client.read_response("POST")
    assert (reply.status, reply.body) == (400, b"stopped")
    assert [line["reason"] for line in proxy.wait_log(4)] == [
        "filter_answered", "filter_refused", "filter_answered", "filter_answered"]


def test_an_answer_after_the_head_cuts_the_response_short(start, make_origin, dial):
    proxy, origin = start("TooLate"), make_origin(answer(SIZED))
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    got = client.read_rest()
    assert got.startswith(b"HTTP/1.1 200") and b"410" not in got
    assert proxy.wait_log(1)[0]["reason"] == "filter_failed"


def test_a_client_that_waits_for_100_gets_it_from_the_filter(start, make_origin, dial):
    proxy, origin = start("Upper"), make_origin()
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), "Content-Length: 5",
                              "Expect: 100-continue"))
    assert client.read_exact(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"hello")
    assert client.read_response("POST").status == 200
    assert origin.requests[0].get("Expect") is None
    assert origin.requests[0].body == b"HELLO"


def test_a_body_beyond_the_bound_is_a_fault_or_passes(start, make_origin, dial):
    """R31."""
    proxy, origin = start("Upper", keys='max_body = "1KiB"'), make_origin(answer(SIZED))
    assert dial(proxy).get(origin.url()).status == 502
    assert proxy.wait_log(1)[0]["reason"] == "filter_failed"
    passing = start("Upper", keys='max_body = "1KiB"\non_fault = "pass"')
    client = dial(passing)
    assert [client.get(origin.url()).body for _ in range(2)] == [BODY] * 2
    small = make_origin()
    assert client.get(small.url()).body == b"OK"


def test_a_fault_is_that_request_s_alone(start, make_origin, dial):
    proxy, origin = start("Fail"), make_origin()
    client = dial(proxy)
    for _ in range(3):
        reply = client.get(origin.url())
        assert (reply.status, reply.error) == (502, "proxy_internal_error")
    assert client.get(origin.url("/free")).status == 200
    wait_for(proxy, "the filter Fail failed in on_request_head (1 so far): LookupError")
    passing = start("Fail", keys='on_fault = "pass"')
    assert dial(passing).get(origin.url()).status == 200


def test_a_fault_in_the_middle_of_a_body_cuts_it_short(start, make_origin, dial):
    proxy, origin = start("FailLater"), make_origin(answer(SIZED))
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    got = client.read_rest()
    assert got.startswith(b"HTTP/1.1 200") and not got.endswith(b"0\r\n\r\n")
    line = proxy.wait_log(1)[0]
    assert (line["reason"], line["status"]) == ("filter_failed", 200)


def test_an_exceeded_budget_ends_a_request(start, make_origin, dial):
    proxy, origin = start("Hang", keys='budget = "100ms"'), make_origin()
    began = time.monotonic()
    assert dial(proxy).get(origin.url()).status == 504
    assert time.monotonic() - began < 5
    assert proxy.wait_log(1)[0]["reason"] == "filter_timeout"
    wait_for(proxy, "more than 100 ms")
    wait_for(proxy, "end filter_timeout")


def test_a_client_that_goes_ends_its_filter(start, make_origin, dial):
    proxy, origin = start("Hang", keys='budget = "50s"'), make_origin()
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    wait_for(proxy, "hang began")
    client.reset()
    wait_for(proxy, "hang ended")
    wait_for(proxy, "end client_reset")
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"


def test_a_slow_filter_holds_its_own_connection_alone(start, make_origin, dial):
    """R31: and reads no more than it can pass on."""
    proxy, origin = start("SlowPieces", keys='budget = "9s"'), make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000)))
    slow, quick = dial(proxy), make_origin()
    slow.send(build_request("GET", origin.url()))
    began = time.monotonic()
    assert dial(proxy).get(quick.url("/free")).status == 200
    assert time.monotonic() - began < 2
    assert slow.read_response().body == bytes(8_000_000)


def test_a_reader_that_is_slow_holds_up_its_origin(start, make_origin, dial):
    sent = []

    def stream(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(2000):
            conn.send(bytes(100_000))
            sent.append(1)

    proxy, origin = start("Pieces"), make_origin(stream)
    client = dial(proxy, receive_buffer=4096)
    client.send(build_request("GET", origin.url()))
    client.read_exact(1000)
    before = -1
    while before != len(sent):                  # until it does not move
        before = len(sent)
        time.sleep(0.5)
    assert len(sent) < 500


def test_requests_under_way_end_with_their_filters(start, make_origin, dial):
    """A reload in the middle."""
    proxy, origin = start("SlowPieces", keys='budget = "9s"'), make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)))
    client = dial(proxy)
    client.send(build_request("GET", origin.url()))
    client.read_exact(100)
    proxy.policy.write_text(RULE.replace("    ", ""))
    assert "refused" not in proxy.hup()
    client.read_exact(1_000_000)
    wait_until(lambda: dial(proxy).get(origin.url()).status == 200, "the new policy")


def test_a_tunnel_has_no_filters(start, make_origin, dial):
    proxy, origin = start("Fail"), make_origin()
    tunnel = dial(proxy).tunnel(origin.authority)
    tunnel.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert tunnel.read_response().status == 200


def test_the_filters_of_a_rule_that_depends_on_the_address_run(
        start, make_origin, dial):
    proxy, origin = start("Change", rule='hosts = ["localhost"]'), make_origin()
    client = dial(proxy)
    for _ in range(2):
        assert client.get(f"http://localhost:{origin.port}/").get("X-Seen") == "yes"
    assert len(origin.connections) == 1


@pytest.mark.parametrize("name", ["Change", "Upper"])
def test_requests_inside_an_interception_have_filters(
        start_policy, make_origin, dial, name):
    """R41."""
    proxy = start_policy(
        f'[filters.f]\ncode = "sieve:{name}"\n[[rules]]\naction = "allow"\n{HERE}'
        'tls = "intercept"\nfilters = "f"\n', inside(), modules={"sieve": FILTERS})
    origin = make_origin(over_tls(answer(CHUNKED)))
    client = enter(proxy, dial(proxy), origin.port)
    reply = ask(client, path="/old")
    assert (reply.status, reply.body) == (
        (203, BODY) if name == "Change" else (200, BODY.upper()))
    assert ask(client, path="/old").status == reply.status
    for request in origin.requests:
        assert request.target == ("/new" if name == "Change" else "/old")
        assert request.get("Host") == f"a.example:{origin.port}"
    assert len(origin.connections) == 1
    records = proxy.wait_log(3)
    assert [record["intercepted"] for record in records] == [True] * 3


@pytest.mark.parametrize("on_fault", ["refuse", "pass"])
def test_a_changed_target_inside_an_interception_is_a_fault(
        start_policy, make_origin, dial, on_fault):
    """R56: only the CONNECT names the host. Error log and count had nothing."""
    proxy = start_policy(
        f'[filters.f]\ncode = "sieve:Move"\non_fault = "{on_fault}"\n[[rules]]\n'
        f'action = "allow"\n{HERE}tls = "intercept"\nfilters = "f"\n',
        inside(DOOR), modules={"sieve": FILTERS})
    origin = make_origin(over_tls(answer(SIZED)))
    client = enter(proxy, dial(proxy), origin.port)
    reply = ask(client, path="/b.example")
    if on_fault == "refuse":
        assert reply.status == 502 and not origin.requests
        assert proxy.wait_log(2)[1]["reason"] == "filter_failed"
    else:
        assert reply.status == 200
        assert origin.requests[0].get("Host") == f"a.example:{origin.port}"
    wait_for(proxy, "the filter f failed in on_request_head (1 so far): ValueError: "
             "the target cannot change inside an interception")
    wait_until(lambda: operator_of(proxy).metrics()[FAILED] == 1, "the count")
    if on_fault == "pass":              # the same target is no change
        assert ask(client, path="/A.example").status == 200
        assert operator_of(proxy).metrics()[FAILED] == 1


@pytest.mark.parametrize(("name", "path", "fault"), [
    ("MoveLate", "/", "on_request_body (1 so far): the target cannot change"),
    ("Swell", "/up", "on_request_head (1 so far): the head is"),
    ("Swell", "/down", "on_response_head (1 so far): the head is"),
    ("Swell", "/respond", "respond (1 so far): the head is"),
    ("TooLate", "/", "respond (1 so far): answers too late")])
def test_what_cannot_be_sent_is_a_fault(start, make_origin, dial, name, path, fault):
    proxy, origin = start(name, config=DOOR), make_origin()
    client = dial(proxy)
    client.send(build_request("POST", origin.url(path), "Content-Length: 2") + b"hi")
    assert proxy.wait_log(1)[0]["reason"] == "filter_failed"
    wait_for(proxy, f"the filter {name} failed in {fault}")
    wait_until(lambda: operator_of(proxy).metrics()[FAILED] == 1, "the count")


@pytest.mark.parametrize("via", ["off", "me"])
def test_without_via_no_field_is_lost(start, make_origin, dial, via):
    """The last field was taken for our Via: the changed head lacked it."""
    proxy, origin = start("Change", config=f'via = "{via}"\n'), make_origin()
    reply = dial(proxy).get(origin.url("/a"), "X-First: 1", "X-Last: 2")
    assert (reply.status, reply.body) == (203, b"ok")
    (request,) = origin.requests
    assert (request.get("X-First"), request.get("X-Last")) == ("1", "2")
