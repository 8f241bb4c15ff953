"""Recording and replay, end to end: requests answered without a network, and misses."""

import contextlib
import importlib.util
import select
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from cutthrough.recording.sessions.modes import State, write_state
from tests.support.certificates import client_context
from tests.support.client import build_request
from tests.support.http2 import Peer
from tests.support.inside import ask, enter, okay, over_tls
from tests.support.inside import config as inside
from tests.support.origin import answer, answer_and_close
from tests.support.recordings import (
    RULE,
    fill,
    made,
    recorded,
    run_verb,
    without_secrets,
)
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_a_recorded_answer_needs_no_network(start, folder, dial):
    fill(folder, made(9), made(9, "/b", method="POST", sent=b"x" * 100_000, body=b"b"))
    proxy = start()
    client = dial(proxy)
    for _ in range(3):
        reply = client.get("http://127.0.0.1:9/a")
        assert (reply.status, reply.body) == (200, b"hello")
        assert reply.get("Content-Length") == "5"
        reply = client.ask("POST", "http://127.0.0.1:9/b", "Content-Length: 100000",
                           body=b"x" * 100_000)
        assert (reply.status, reply.body) == (200, b"b")
    assert {line["reason"] for line in proxy.wait_log(6)} == {"replayed"}


def test_a_name_that_is_replayed_is_not_resolved(start_policy, folder, dial):
    fill(folder, made(80, host="a.example"))
    proxy = start_policy('[[rules]]\naction = "allow"\nhosts = [".example"]\n'
                         'recording = "replay"', f'recording_directory = "{folder}"')
    assert dial(proxy).get("http://a.example/a").body == b"hello"
    assert proxy.wait_log(1)[0]["reason"] == "replayed"


def test_a_miss_is_refused_with_the_nearest_recording_if_clients_may_know(
        start, folder, dial):
    fill(folder, made(9, query="page=1"))
    proxy = start(config='recording_misses = "nearest"')
    client = dial(proxy)
    for _ in range(2):
        reply = client.get("http://127.0.0.1:9/a?page=2")
        assert reply.status == 502
        assert b"recording 1, GET http://127.0.0.1:9/a?page=1: query key page: '2', " \
            b"recorded '1'" in reply.body
    line = proxy.wait_log(2)[1]
    assert line["reason"] == "recording_missed" and line["hook"].startswith(
        "no recording matches; the nearest is recording 1, GET ")


def test_a_miss_goes_on_to_the_origin_if_the_rule_spies(
        start, folder, make_origin, dial):
    origin = make_origin()
    fill(folder, made(origin.port))
    client = dial(start("spy"))
    assert client.get(origin.url("/a")).body == b"hello"
    assert not origin.connections
    assert client.get(origin.url("/b")).body == b"ok"
    body = b"abc" * 50_000
    assert client.ask("POST", origin.url("/c"), f"Content-Length: {len(body)}",
                      body=body).body == b"ok"
    assert origin.requests[-1].body == body
    assert client.ask("POST", origin.url("/c"), "Transfer-Encoding: chunked",
                      body=b"3\r\nabc\r\n0\r\n\r\n").body == b"ok"
    assert client.get(origin.url("/a")).body == b"hello"
    assert len(origin.requests) == 3


def test_a_tunnel_is_refused_if_its_rule_replays(start, folder, dial):
    proxy = start(config='connect_ports = "any"')
    reply = dial(proxy).ask("CONNECT", "127.0.0.1:9")
    assert reply.status == 502 and proxy.wait_log(1)[0]["reason"] == "recording_missed"


def test_requests_inside_a_tunnel_are_answered_without_an_origin(start, folder, dial):
    fill(folder, made(9, scheme="https", host="a.example"))
    proxy = start(keys='tls = "intercept"', config=inside())
    client = enter(proxy, dial(proxy), 9)
    for _ in range(2):
        assert ask(client, "GET", "/a").body == b"hello"
        assert ask(client, "GET", "/b").status == 502
    reasons = [line["reason"] for line in proxy.wait_log(5)]
    assert reasons == ["ok"] + ["replayed", "recording_missed"] * 2


def test_what_is_no_tls_ends_if_the_rule_replays(start, folder, dial):
    proxy = start(keys='tls = "intercept"', config=inside())
    client = dial(proxy).tunnel("a.example:9")
    client.send(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert proxy.wait_log(1)[0]["reason"] == "recording_missed"


def test_the_mode_changes_at_run_time_in_all_workers(
        start, folder, make_origin, dial):
    origin = make_origin()
    fill(folder, made(origin.port))
    proxy = start("replay", config="workers = 2")
    wait_until(lambda: proxy.stderr().count("mode rules, session default") == 2, "two")
    write_state(folder, State("off"))
    wait_until(lambda: proxy.stderr().count("mode off, session default") == 2, "off")
    for _ in range(6):
        assert dial(proxy).get(origin.url("/a")).body == b"ok"
    write_state(folder, State("replay", "empty"))
    wait_until(lambda: proxy.stderr().count("mode replay, session empty") == 2, "empty")
    for _ in range(6):
        assert dial(proxy).get(origin.url("/a")).status == 502
    write_state(folder, State())
    wait_until(lambda: proxy.stderr().count("mode rules, session default") == 4, "all")
    assert dial(proxy).get(origin.url("/a")).body == b"hello"


CHUNKED = (b"HTTP/1.1 200 Fine\r\nContent-Type: text/event-stream\r\n"
           b"Set-Cookie: id=s3cret\r\n"
           b"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
           b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\nX-Sum: 18\r\n\r\n")


def test_what_was_recorded_is_replayed_by_all_workers_without_the_origin(
        start, folder, make_origin, dial):
    """R60; the bodies and the fields come back byte for byte, twice and at once."""
    origin = make_origin(answer(CHUNKED))
    body = b"q" * 70_000
    proxy = start("record", config="workers = 2")

    def ask_all():
        client = dial(proxy)
        found = [client.get(origin.url("/a?x=1")),
                 client.ask("POST", origin.url("/b"), f"Content-Length: {len(body)}",
                            body=body),
                 client.ask("POST", origin.url("/c"), "Transfer-Encoding: chunked",
                            body=b"3\r\nabc\r\n0\r\n\r\n")]
        return [(one.raw, one.body, one.trailers) for one in found]

    live = ask_all()
    wait_until(lambda: recorded(folder) == 3, "three recordings")
    write_state(folder, State("replay"))
    wait_until(lambda: proxy.stderr().count("mode replay, session default, 3") == 2,
               "both workers")
    origin.close()
    dialled = len(origin.connections)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: ask_all(), range(16)):
            assert [one[1:] for one in found] == [one[1:] for one in live]
            for ours, theirs in zip(found, live, strict=True):
                assert without_secrets(ours[0]) == without_secrets(theirs[0])
    assert len(origin.connections) == dialled
    reasons = [line["reason"] for line in proxy.wait_log(3 + 48)]
    assert reasons == ["ok"] * 3 + ["replayed"] * 48


def test_no_secret_is_in_any_file_of_the_directory(start, folder, make_origin, dial):
    """R59: credentials always, secrets that the configuration names, and both if an
    answer repeats them."""
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Set-Cookie: id=cook1e\r\nX-Got: bear3r\r\nContent-Length: 62\r\n\r\n"
        b'{"token": "t0psecret", "plain": "no", "auth": "Bearer bear3r"}'))
    proxy = start("record", config='recording_redact_json = ["$.token"]\n'
                  'recording_redact_query = ["key"]')
    client = dial(proxy)
    for _ in range(2):
        assert client.ask("GET", origin.url("/a?key=quer1secret"),
                          "Authorization: Bearer bear3r").status == 200
    wait_until(lambda: recorded(folder) == 2, "two recordings")
    found = b"".join(path.read_bytes() for path in folder.iterdir())
    for secret in (b"cook1e", b"t0psecret", b"quer1secret", b"bear3r"):
        assert secret not in found, secret
    assert b'"plain": "no"' in found
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    write_state(folder, State("replay"))
    wait_until(lambda: "mode replay, session default, 2" in proxy.stderr(), "replay")
    assert client.get(origin.url("/a?key=quer1secret")).status == 200
    assert client.get(origin.url("/a?key=other")).status == 502


def test_a_cache_fetches_once_and_replays_then(start, folder, make_origin, dial):
    origin = make_origin()
    proxy = start("cache")
    client = dial(proxy)
    assert client.get(origin.url("/a")).body == b"ok"
    wait_until(lambda: recorded(folder) == 1, "one recording")
    wait_until(lambda: client.get(origin.url("/a")).status == 200
               and proxy.log(reason="replayed"), "replayed")
    count = len(origin.requests)
    for _ in range(5):
        assert client.get(origin.url("/a")).body == b"ok"
    assert len(origin.requests) == count


def test_a_cache_has_a_variant_for_each_value_that_vary_names(
        start, folder, make_origin, dial):
    """RFC 9111 section 4.1: who asked for no coding got what was made for another."""
    def answers(conn):
        while request := conn.read_request():
            body = request.all("accept-encoding")[0].encode()
            conn.send(b"HTTP/1.1 200 OK\r\nVary: Accept-Encoding\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    proxy, origin = start("cache"), make_origin(answers)
    client, codings = dial(proxy), ("br", "identity", "zstd")
    for coding in codings:
        assert client.get(origin.url("/a"), f"Accept-Encoding: {coding}").body == (
            coding.encode())
    wait_until(lambda: recorded(folder) == 3, "three recordings")
    wait_until(lambda: client.get(origin.url("/a"), "Accept-Encoding: zstd").body
               and proxy.log(reason="replayed"), "replayed")
    count = len(origin.requests)
    for coding in codings * 2:
        assert client.get(origin.url("/a"), f"Accept-Encoding: {coding}").body == (
            coding.encode())
    assert len(origin.requests) == count


def test_an_answer_that_ends_with_its_connection_is_recorded_whole(
        start, folder, make_origin, dial):
    """Its client gets it in chunks of ours."""
    proxy, origin = start("cache"), make_origin(
        answer_and_close(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 100_000))
    client = dial(proxy)
    assert client.get(origin.url("/a")).body == b"x" * 100_000
    wait_until(lambda: client.get(origin.url("/a")).body == b"x" * 100_000
               and proxy.log(reason="replayed"), "the recording")


def test_a_body_beyond_the_bound_passes_unrecorded(start, folder, make_origin, dial):
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000))
    proxy = start("record", config='recording_body = "2KiB"')
    assert dial(proxy).get(origin.url("/a")).body == b"x" * 3000
    wait_until(lambda: "is not recorded: a body is longer" in proxy.stderr(), "a line")
    assert recorded(folder) == 0


def test_requests_inside_a_tunnel_are_recorded_and_replayed_with_http_2_too(
        start, folder, make_origin, dial):
    origin = make_origin(over_tls(okay))
    proxy = start("record", 'tls = "intercept"', inside())
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/a").body == b"ok"
    wait_until(lambda: recorded(folder) == 1, "one recording")
    write_state(folder, State("replay"))
    wait_until(lambda: "mode replay, session default, 1" in proxy.stderr(), "replay")
    origin.close()
    client = enter(proxy, dial(proxy), origin.port)
    for _ in range(2):
        assert ask(client, "GET", "/a").body == b"ok"
    if importlib.util.find_spec("cutthrough.http2.transport") is None:
        return
    context = client_context()
    context.set_alpn_protocols(["h2"])
    peer = Peer(enter(proxy, dial(proxy), origin.port, context=context).sock)
    peer.flush()
    for _ in range(2):
        got = peer.wait(peer.get("https://a.example/a"))
        assert (got.status, got.body, got.ended) == (200, b"ok", True)


def test_a_reload_in_the_middle_keeps_mode_and_session(
        start, folder, make_origin, dial):
    origin = make_origin()
    fill(folder, made(origin.port), name="other")
    proxy = start("record")
    write_state(folder, State("replay", "other"))
    wait_until(lambda: "mode replay, session other, 1" in proxy.stderr(), "replay")
    client = dial(proxy)
    assert client.get(origin.url("/a")).body == b"hello"
    assert "generation 2" in proxy.hup()
    assert client.get(origin.url("/a")).body == b"hello"
    assert dial(proxy).get(origin.url("/a")).body == b"hello"
    assert not origin.connections


def test_the_verbs_show_and_change_what_a_running_proxy_does(
        start, folder, make_origin, dial, tmp_path):
    origin = make_origin()
    proxy = start("record")
    client = dial(proxy)
    assert client.get(origin.url("/a")).body == b"ok"
    wait_until(lambda: recorded(folder) == 1, "one recording")
    assert run_verb(folder, "mode") == "mode rules, session as configured\n"
    assert run_verb(folder, "mode", "replay") == (
        "mode replay, session as configured\n")
    wait_until(lambda: "mode replay, session default, 1" in proxy.stderr(), "replay")
    assert run_verb(folder, "recordings", "list") == "default\t1\n"
    line = run_verb(folder, "recordings", "list", "default")
    assert line == f"1\tGET\t200\t2\t{origin.url('/a')}\n"
    for form, name in (("json", "j"), ("yaml", "y"), ("vcr", "v.yaml"),
                       ("har", "h.har")):
        run_verb(folder, "recordings", "export", "default", str(tmp_path / name),
                 "--form", form)
        run_verb(folder, "recordings", "import", f"from-{form}", str(tmp_path / name))
        assert recorded(folder, f"from-{form}") == 1
        run_verb(folder, "mode", "--session", f"from-{form}")
        wait_until(lambda form=form: f"session from-{form}, 1" in proxy.stderr(), form)
        assert client.get(origin.url("/a")).body == b"ok"
    run_verb(folder, "recordings", "delete", "from-har", "--id", "1")
    wait_until(lambda: client.get(origin.url("/a")).status == 502, "deleted")
    assert len(origin.requests) == 1


def test_workers_take_the_answers_of_a_sequence_in_turn(start, folder, dial):
    """Each worker had places of its own: with two, every answer came twice."""
    fill(folder, *[made(9, body=b"%d" % number) for number in range(20)])
    proxy = start(config="workers = 2")
    wait_until(lambda: proxy.stderr().count("session default, 20") == 2, "both")
    found = [dial(proxy).get("http://127.0.0.1:9/a").body for _ in range(22)]
    assert found == [b"%d" % min(number, 19) for number in range(22)]
    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(lambda _: dial(proxy).get("http://127.0.0.1:9/a").body,
                          range(16))} == {b"19"}
    write_state(folder, State())
    wait_until(lambda: proxy.stderr().count("session default, 20") == 4, "both again")
    with ThreadPoolExecutor(8) as pool:
        again = [*pool.map(lambda _: dial(proxy).get("http://127.0.0.1:9/a").body,
                           range(20))]
    assert sorted(again, key=int) == [b"%d" % number for number in range(20)]


def test_a_lock_of_the_places_holds_up_those_alone_that_take_one(
        start_policy, folder, make_origin, dial):
    """R64: the worker's loop waited for it, for a second a minute."""
    fill(folder, *[made(9, body=b"%d" % number) for number in range(2)])
    proxy = start_policy("""
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        paths = ["/plain"]
    """ + RULE.format(mode="replay", keys=""), f'recording_directory = "{folder}"')
    taker, other, origin = dial(proxy), dial(proxy), make_origin()
    assert taker.get("http://127.0.0.1:9/a").body == b"0"
    (places,) = [one for one in folder.glob(".places-*") if one.name.count("-") == 2]
    with contextlib.closing(sqlite3.connect(places, isolation_level=None)) as base:
        base.execute("BEGIN IMMEDIATE")
        for client, url in ((taker, "http://127.0.0.1:9/a"),
                            (other, origin.url("/plain"))):
            client.send(build_request("GET", url))
        assert other.read_response("GET").status == 200
        assert select.select([taker.sock], [], [], 0)[0] == []
        assert taker.read_response("GET").body == b"0", "of the worker's own places"
        base.execute("ROLLBACK")
    wait_until(lambda: "each worker has places of its own" in proxy.stderr(),
               proxy.stderr)
