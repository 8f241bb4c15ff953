"""Capture by rule, end to end: rows and bodies, secrets, bounds, and failures."""

import gzip
import json
import os
import re
import signal
import socket
import stat
from pathlib import Path

import jsonschema
import psutil
import pytest

from tests.capture.har_schema import SCHEMA
from tests.support.admin import Operator
from tests.support.captures import (
    HELLO,
    POLICY,
    flows,
    rows,
    wait_rows,
    writer,
    writers,
)
from tests.support.captures import database as database
from tests.support.client import CREDENTIALS, build_request
from tests.support.origin import answer, answer_and_close, echo
from tests.support.stream import chunked
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy, database):
    def run(mode="head", config="", action="allow", policy=POLICY):
        return start_policy(policy.format(mode=mode, action=action),
                            f'capture_file = "{database}"\n{config}')
    return run


def counted(proxy) -> dict[str, int]:
    port = re.search(r"admin listener on 127\.0\.0\.1:(\d+)", proxy.stderr())[1]
    text = Operator(int(port)).ask("GET", "/metrics")[1]
    return {name: int(float(n)) for name, n in re.findall(
        r'^cutthrough_capture_exchanges_total\{result="(\w+)"\} (\S+)$', text, re.M)}


# Rows and bodies


def test_a_request_is_kept_with_its_heads_phases_and_decision(
        start, make_origin, dial, database):
    proxy, origin = start(), make_origin(answer(HELLO))
    client = dial(proxy)
    for _ in range(2):
        assert client.get(origin.url("/a?b=c")).body == b"hello"
    first, second = wait_rows(database, 2)
    line = proxy.wait_log(2)[0]
    assert first["request"] == line["id"]
    for key in ("user", "kind", "method", "host", "port", "url", "status", "reason",
                "peer", "rule", "bytes_up", "bytes_down", "client"):
        assert first[key] == line[key], key
    assert (first["rule"], first["reported"], first["reused"]) == ("seen", 0, 0)
    assert first["peer_port"] == origin.port
    assert first["request_head"].startswith("GET /a?b=c HTTP/1.1\r\nHost: ")
    assert "Via: 1.1 " in first["request_head"]
    assert first["response_head"] == HELLO.decode().replace(
        "id=s3cret", "[redacted]").removesuffix("hello")
    assert first["response_head_bytes"] == len(HELLO) - 5
    assert first["request_body"] is None and first["response_body"] is None
    # The phases are those of the log, in microseconds; their sum is below the total
    for phase in ("head", "connect"):
        assert first[f"{phase}_us"] / 1000 == pytest.approx(line[f"{phase}_ms"])
    assert first["dns_us"] is None and first["send_us"] >= 1
    assert (first["send_us"] + first["wait_us"]) / 1000 == pytest.approx(
        line["first_byte_ms"])
    parts = [first[f"{name}_us"] or 0 for name in (
        "head", "auth", "hook", "dns", "connect", "send", "wait", "receive")]
    assert sum(parts) <= first["total_us"]
    assert first["ended_us"] - first["begun_us"] == first["total_us"]
    assert (second["reused"], second["connect_us"]) == (1, None)


def test_full_keeps_bodies_as_they_went_and_as_they_are(
        start, make_origin, dial, database):
    zipped = gzip.compress(b'{"a": 1}')
    reply = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip"
             b"\r\nContent-Type: application/json\r\n\r\n" + chunked([zipped[:9],
                                                                   zipped[9:]]))
    proxy, origin = start("full"), make_origin(answer(reply))
    client = dial(proxy)
    client.ask("POST", origin.url(), "Transfer-Encoding: chunked",
               "Content-Type: text/plain", body=chunked([b"one", b"two"]))
    client.ask("PUT", origin.url(), "Content-Length: 4", body=b"\xff\x00ab")
    one, two = wait_rows(database, 2)
    assert (one["request_body"], one["request_body_bytes"]) == ("onetwo", 6)
    assert (one["response_body"], one["response_body_bytes"],
            one["response_content_bytes"]) == ('{"a": 1}', len(zipped), 8)
    assert (two["request_body"], two["response_body"]) == (b"\xff\x00ab", '{"a": 1}')
    assert one["request_body_state"] is two["response_body_state"] is None


def test_a_body_that_ends_with_its_connection_is_kept_as_it_is(
        start, make_origin, dial, database):
    """The client gets it in chunks of ours."""
    proxy, origin = start("full"), make_origin(
        answer_and_close(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"))
    assert dial(proxy).get(origin.url()).framing == "chunked"
    (row,) = wait_rows(database, 1)
    assert (row["response_body"], row["response_body_bytes"]) == ("hello", 5)
    assert row["response_body_state"] is None


def test_a_body_ends_at_its_bound_and_the_client_gets_all(
        start, make_origin, dial, database):
    data = bytes(range(256)) * 8192         # 2 MiB
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    proxy, origin = start("full", 'capture_body = "100KiB"\n'), make_origin(
        answer(reply))
    got = dial(proxy).ask("POST", origin.url(), f"Content-Length: {len(data)}",
                          body=data)
    assert got.body == data and origin.requests[0].body == data
    (row,) = wait_rows(database)
    for side in ("request", "response"):
        assert row[f"{side}_body"] == data[:100 << 10]
        assert row[f"{side}_body_bytes"] == len(data)
        assert row[f"{side}_body_state"] == "truncated"


def test_a_tunnel_is_kept_by_its_first_bytes_and_never_by_its_content(
        start, make_origin, dial, database):
    proxy, origin = start("full", "peek_tunnels = true\n"), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    client.send(b"GET /s3cret HTTP/1.1\r\n\r\n")
    client.read_until(b"\r\n\r\n")
    client.half_close()
    assert client.read_rest() == b""
    (row,) = wait_rows(database)
    assert (row["kind"], row["method"], row["protocol"], row["reason"]) == (
        "tunnel", "CONNECT", "http", "ok")
    assert row["url"] == origin.authority and row["bytes_up"] == 24
    assert row["request_head"] is row["response_body"] is None


def test_an_upgrade_is_a_tunnel_with_heads(start, make_origin, dial, database):
    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                  b"Upgrade: x\r\n\r\nraw")
        conn.stall()

    proxy, origin = start("full"), make_origin(script)
    client = dial(proxy)
    client.send(build_request("GET", origin.url("/chat"), "Connection: Upgrade",
                              "Upgrade: x"))
    client.read_until(b"raw")
    client.close()
    (row,) = wait_rows(database)
    assert (row["kind"], row["status"], row["method"]) == ("tunnel", 101, "GET")
    assert row["request_head"].startswith("GET /chat HTTP/1.1\r\n")
    assert row["response_head"].startswith("HTTP/1.1 101 ")
    assert row["response_body"] is None


def test_a_refused_request_and_one_without_an_answer_are_kept(
        start, make_origin, dial, database):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    proxy = start("full")
    assert dial(proxy).get(f"http://127.0.0.1:{port}/x").status == 502
    (row,) = wait_rows(database)
    assert (row["status"], row["reason"], row["response_head"]) == (
        502, "connection_refused", None)
    assert row["request_head"].startswith("GET /x ") and row["wait_us"] is None
    refusing = start("full", action="deny")
    assert dial(refusing).get(f"http://127.0.0.1:{port}/y").status == 403
    row = wait_rows(database, 2)[1]
    assert (row["status"], row["reason"]) == (403, "destination_denied")


def test_nothing_is_kept_without_a_rule_that_says_so(
        start, make_origin, dial, database):
    proxy, origin = start(), make_origin()
    other = make_origin(host="127.0.0.2")
    assert dial(proxy).get(other.url()).status == 200
    assert dial(proxy).get(origin.url(), auth=None).status == 407
    assert dial(proxy).get(origin.url()).status == 200
    (row,) = wait_rows(database)
    assert row["port"] == origin.port


# Secrets and bounds of bodies


def check_secrets(database):
    files = list(database.parent.glob("flows.db*"))
    whole = b"".join(path.read_bytes() for path in files)
    assert b"plain" in whole and b"s3cret" not in whole
    assert CREDENTIALS.partition(" ")[2].encode() not in whole
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_no_byte_of_a_secret_reaches_the_disk(start, make_origin, dial, database):
    """R59: the files are searched."""
    reply = (b"HTTP/1.1 200 OK\r\nSet-Cookie: a=s3cret1\r\nX-Token: s3cret2\r\n"
             b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s")
    body = b'{"user": {"password": "s3cret3"}, "kept": "plain"}'
    proxy = start("full", 'capture_redact_fields = ["x-token"]\n'
                  'capture_redact_query = ["key"]\n'
                  'capture_redact_json = ["$..password"]\n')
    origin = make_origin(answer(reply % (len(body), body)))
    client = dial(proxy)
    client.ask("POST", origin.url("/?key=s3cret4&a=b"), "Authorization: Basic s3cret5",
               "Cookie: a=s3cret6", "Content-Type: application/x-www-form-urlencoded",
               "Content-Length: 15", body=b"key=s3cret7&b=1")
    cut = b'{"password": "s3cret8'
    client.ask("POST", origin.url(), "Content-Type: application/json",
               f"Content-Length: {len(cut)}", body=cut)
    assert client.get(origin.url()).status == 200
    first, second, _ = wait_rows(database, 3)
    assert json.loads(first["response_body"]) == {
        "user": {"password": "[redacted]"}, "kept": "plain"}
    assert first["request_body"] == "key=[redacted]&b=1"
    assert (second["request_body"], second["request_body_state"]) == (None, "redacted")
    wait_until(lambda: flows(database, "search", "plain").stdout.count("\n") > 1,
               "the index")
    names = {path.name for path in database.parent.glob("flows.db*")}
    assert names == {"flows.db", "flows.db-wal", "flows.db-shm"}
    check_secrets(database)                  # before SQLite empties its log of changes
    rings = next(fd for fd in Path(f"/proc/{writer(proxy).pid}/fd").iterdir()
                 if "cutthrough-rings" in os.readlink(fd))
    wait_until(lambda: b"s3cret" not in rings.read_bytes(), "an erased ring")
    proxy.stop()
    check_secrets(database)
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


# A full ring, and processes that die


def test_a_writer_that_is_killed_is_replaced_and_nothing_waits(
        start, make_origin, dial, database):
    proxy, origin = start(), make_origin(answer(HELLO))
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    wait_rows(database)
    before = writer(proxy)
    before.kill()
    for _ in range(20):
        assert client.get(origin.url()).status == 200
    assert len(wait_rows(database, 21)) == 21
    assert "the writer of captured exchanges" in proxy.stderr()
    assert writer(proxy).pid != before.pid


def test_a_writer_that_hangs_costs_flows_and_no_requests(
        start, make_origin, dial, database):
    """R58: the ring fills, and each exchange without room is counted."""
    data = b"x" * 400_000
    proxy = start("full", 'admin = "127.0.0.1:0"\n')
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + data))
    client = dial(proxy)
    assert client.get(origin.url()).body == data
    wait_rows(database)
    stopped = writer(proxy)
    stopped.suspend()
    try:
        for _ in range(160):                # 64 MB, twice the ring
            assert client.get(origin.url()).body == data
    finally:
        stopped.resume()
    lost = wait_until(
        lambda: (now := counted(proxy))["captured"] + now["dropped"] == 161 and now,
        lambda: f"161 flows: {counted(proxy)}")
    assert lost["partial"] and not lost["unwritten"]
    found = wait_rows(database, lost["captured"])
    assert len(found) == lost["captured"]
    for row in found:                       # a body with a gap counts as partial
        assert (row["response_body"] == data.decode()) == (
            row["response_body_state"] is None)


def test_a_disk_that_is_full_costs_flows_and_no_requests(
        start, make_origin, dial, database):
    proxy = start(config='admin = "127.0.0.1:0"\n')
    origin = make_origin(answer(HELLO))
    client = dial(proxy)
    assert client.get(origin.url()).status == 200
    wait_rows(database)
    psutil.Process(writer(proxy).pid).rlimit(psutil.RLIMIT_FSIZE, (
        os.path.getsize(f"{database}-wal"), psutil.RLIM_INFINITY))
    for _ in range(5):
        assert client.get(origin.url()).status == 200
    wait_until(lambda: "cannot be written" in proxy.stderr(), proxy.stderr)
    wait_until(lambda: counted(proxy)["unwritten"] >= 1, lambda: str(counted(proxy)))
    writer(proxy).rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY,) * 2)
    assert client.get(origin.url("/after")).status == 200
    wait_until(lambda: any(row["url"].endswith("/after") for row in rows(database)),
               "a row after the disk has room again")


def test_a_worker_that_is_killed_leaves_what_it_had_captured(
        start, make_origin, dial, database):
    proxy = start(config='admin = "127.0.0.1:0"\n')
    origin = make_origin(answer(HELLO))
    held = writer(proxy)
    (worker,) = [one for one in proxy.workers() if one.pid != held.pid]
    with proxy.client() as client:
        assert client.get(origin.url("/before")).status == 200
        proxy.wait_log()                    # written behind the capture's END
    worker.kill()
    wait_until(lambda: "died: signal SIGKILL" in proxy.stderr(), proxy.stderr)

    def answers() -> bool:
        with proxy.client() as client:
            return client.get(origin.url("/after")).status == 200
    wait_until(answers, "another worker")
    urls = [row["url"][-6:] for row in wait_rows(database, 2)]
    assert urls[0] == "before" and urls[1:] == ["/after"] * len(urls[1:])
    # The killed worker's last second was in no metric
    wait_until(lambda: counted(proxy)["captured"] == len(urls), lambda: f"{urls}")


def test_a_reload_begins_and_ends_capture(start, make_origin, dial, database):
    proxy, origin = start(), make_origin(answer(HELLO))
    client = dial(proxy)
    assert client.get(origin.url("/1")).status == 200
    first = writer(proxy)
    policy = proxy.policy.read_text()
    proxy.policy.write_text(policy.replace('capture = "head"', ""))
    assert "rules 2" in proxy.hup()
    wait_until(lambda: not writers(proxy), "no writer")
    assert client.get(origin.url("/2")).status == 200
    proxy.policy.write_text(policy.replace('"head"', '"full"'))
    proxy.hup()
    assert writer(proxy).pid != first.pid
    assert client.get(origin.url("/3")).status == 200
    assert [row["url"][-1] for row in wait_rows(database, 2)] == ["1", "3"]
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    assert "killed" not in proxy.stderr()


def test_all_that_was_captured_is_written_before_the_end(
        start, make_origin, dial, database):
    proxy, origin = start(), make_origin(answer(HELLO))
    client = dial(proxy)
    for _ in range(300):
        assert client.get(origin.url()).status == 200
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    assert len(rows(database)) == 300


def test_the_bounds_of_the_configuration_hold(start, make_origin, dial, database):
    """R58."""
    proxy = start(config="capture_count = 7\n")
    client, origin = dial(proxy), make_origin(answer(HELLO))
    for number in range(30):
        assert client.get(origin.url(f"/{number}")).status == 200
    wait_until(lambda: [row["url"].rpartition("/")[2] for row in rows(database)] == [
        str(n) for n in range(23, 30)], lambda: str(len(rows(database))))


# The verb


def test_flows_are_listed_shown_searched_and_exported(
        start, make_origin, dial, database):
    proxy, origin = start("full"), make_origin(answer(HELLO))
    client = dial(proxy)
    client.ask("POST", origin.url("/zebra"), "Content-Type: text/plain",
               "Content-Length: 3", body=b"gnu")
    assert client.get(origin.url("/lion")).status == 200
    wait_rows(database, 2)
    listed = flows(database, "list")
    assert listed.returncode == 0 and listed.stderr == ""
    heads, lion, zebra = listed.stdout.splitlines()
    assert heads.split() == ["ID", "TIME", "USER", "METHOD", "STATUS", "REASON", "MS",
                             "BYTES", "URL"]
    assert lion.endswith("/lion") and zebra.endswith("/zebra") and " 200 " in zebra
    assert flows(database, "list", "~m POST").stdout.count("\n") == 2
    (one,) = map(json.loads, flows(
        database, "list", "--json", "~bq", "gnu").stdout.splitlines())
    assert one["url"].endswith("/zebra") and one["rule"] == "seen"
    shown = flows(database, "show", str(one["id"])).stdout
    assert "POST /zebra HTTP/1.1" in shown and "gnu" in shown and "hello" in shown
    wait_until(lambda: "/zebra" in flows(database, "search", "gnu").stdout, "the index")
    out = database.parent / "out.har"
    assert flows(database, "export", "-o", str(out)).returncode == 0
    archive = json.loads(out.read_text())
    jsonschema.validate(archive, SCHEMA)
    first, second = archive["log"]["entries"]
    assert first["request"]["postData"]["text"] == "gnu"
    assert second["response"]["content"] == {
        "size": 5, "mimeType": "x-unknown", "compression": 0, "text": "hello"}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    told = flows(database, "reads").stdout
    assert "export" in told and "show" in told and "~m POST" in told


@pytest.mark.parametrize(("words", "status", "reason"), [
    (("list", "~x", "a"), 2, "none of"),
    (("list", "--file", "/nowhere/flows.db"), 1, "No such file"),
    (("show", "4711"), 1, "there is no flow 4711"),
])
def test_what_flows_cannot_do_is_said(start, make_origin, dial, database, words,
                                      status, reason):
    proxy, origin = start(), make_origin(answer(HELLO))
    assert dial(proxy).get(origin.url()).status == 200
    wait_rows(database)
    done = flows(database, *words)
    assert done.returncode == status and reason in done.stderr


@pytest.mark.parametrize("mode", ["head", "full"])
def test_what_is_under_way_at_the_reload_that_ends_capture_is_captured(
        start, make_origin, dial, database, mode):
    """It kept its rule, and with `head` and for tunnels its row was lost without a
    word, because bodies alone kept the worker's capture."""
    proxy, echoing = start(mode), make_origin(echo)
    tunnel = dial(proxy).tunnel(echoing.authority)
    proxy.policy.write_text('[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]')
    assert "generation 2" in proxy.hup()
    tunnel.send(b"hello")
    assert tunnel.read_exact(5) == b"hello"
    tunnel.close()
    proxy.wait_log(1)
    proxy.stop()                            # the rest in the rings is written
    assert [row["kind"] for row in rows(database)] == ["tunnel"]
