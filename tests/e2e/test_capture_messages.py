"""Captured messages: of WebSockets, and server-sent events; the TLS around them."""

import json
import ssl
import stat

import pytest
from websockets.frames import Opcode

from tests.support.captures import HELLO, POLICY, flows, wait_rows
from tests.support.certificates import client_context, localhost
from tests.support.handovers import RENEW, handed
from tests.support.origin import answer
from tests.support.parents import parent
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table
from tests.support.tls_parents import ca, over_tls, server_context
from tests.support.wait import wait_until
from tests.support.websockets import frame, parrot, talk, upgrade

pytestmark = pytest.mark.any_loop


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def start(start_policy, database):
    def run(mode="full", config=""):
        return start_policy(POLICY.format(mode=mode, action="allow"),
                            f'capture_file = "{database}"\n{config}')
    return run


def test_a_websocket_is_kept_as_messages(start, make_origin, dial, database):
    proxy, origin = start(), make_origin(parrot)
    client = dial(proxy)
    upgrade(client, origin)
    talk(client, frame(Opcode.TEXT, b"zebra"), frame(Opcode.BINARY, b"\x00\xff"))
    client.close()
    (row,) = wait_rows(database)
    found = json.loads(row["messages"])
    assert [(one["side"], one["kind"], one.get("text")) for one in found] == [
        ("response", "text", "welcome"), ("request", "text", "zebra"),
        ("response", "text", "zebra"), ("request", "binary", None),
        ("response", "binary", None)]
    times = [one["at_us"] for one in found]
    assert times == sorted(times)
    assert row["begun_us"] <= times[0] <= times[-1] <= row["ended_us"]
    assert row["messages_state"] is row["request_body"] is row["response_body"] is None
    assert (row["kind"], row["status"]) == ("tunnel", 101)
    shown = flows(database, "show", str(row["id"])).stdout
    assert "> " in shown and "text (5 bytes) zebra" in shown
    assert "binary (2 bytes) 00 ff" in shown
    assert flows(database, "list", "~bq zebra").stdout.count("\n") == 2
    assert flows(database, "list", "~bq welcome").stdout.count("\n") == 1
    assert flows(database, "search", "zebra").stdout.count("\n") == 2
    assert flows(database, "search", "at_us").stdout.count("\n") == 1, "no keys"


def test_no_byte_of_a_websocket_is_kept_by_heads(start, make_origin, dial, database):
    proxy, origin = start("head"), make_origin(parrot)
    client = dial(proxy)
    upgrade(client, origin)
    client.close()
    (row,) = wait_rows(database)
    assert row["status"] == 101 and row["messages"] is None


def test_messages_end_at_the_bound_and_the_client_gets_all(
        start, make_origin, dial, database):
    proxy, origin = start(config='capture_body = "1KiB"\n'), make_origin(parrot)
    client = dial(proxy)
    upgrade(client, origin)
    for _ in range(10):
        talk(client, frame(Opcode.TEXT, b"x" * 300))
    client.close()
    (row,) = wait_rows(database)
    assert row["messages_state"] == "truncated"
    for side in ("request", "response"):
        kept = [one for one in json.loads(row["messages"]) if one["side"] == side]
        assert 3 <= len(kept) <= 5 and kept[-1]["state"] == "truncated"


def test_a_secret_of_a_websocket_does_not_reach_the_disk(
        start, make_origin, dial, database):
    """R59."""
    proxy = start(config='capture_redact_json = ["$..password"]\n')
    origin = make_origin(parrot)
    client = dial(proxy)
    upgrade(client, origin)
    talk(client, frame(Opcode.TEXT, b'{"user": {"password": "s3cret1"}, "b": "plain"}'))
    client.close()
    wait_rows(database)
    files = list(database.parent.glob("flows.db*"))
    whole = b"".join(path.read_bytes() for path in files)
    assert b"plain" in whole and b"s3cret" not in whole
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_websocket_that_changes_its_worker_keeps_what_was_captured(
        start, make_origin, dial, database):
    proxy, origin = start(), make_origin(parrot)
    client = dial(proxy)
    upgrade(client, origin)
    talk(client, frame(Opcode.TEXT, b"before"))
    proxy.reload(f'policy = "{proxy.policy}"\ncapture_file = "{database}"\n'
                 + RENEW.format(1))
    wait_until(lambda: handed(proxy) == [(1, 0)], proxy.stderr)
    talk(client, frame(Opcode.TEXT, b"after"))
    client.close()
    (row,) = wait_rows(database)
    assert [one["text"] for one in json.loads(row["messages"])] == [
        "welcome", "before", "before"]
    assert row["messages_state"] == "truncated"


def test_events_are_messages_of_the_body(start, make_origin, dial, database):
    body = b"event: tick\ndata: 1\n\ndata: 2\n\n"
    proxy = start()
    origin = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n"
        b"\r\n%s" % (len(body), body)))
    assert dial(proxy).get(origin.url()).body == body
    (row,) = wait_rows(database)
    assert row["messages"] is None
    shown = json.loads(flows(database, "show", "--json", str(row["id"])).stdout)
    assert shown["messages"] == [
        {"side": "response", "kind": "event", "text": "1", "event": "tick"},
        {"side": "response", "kind": "event", "text": "2"}]


def test_the_tls_of_both_sides_is_kept(serve, reach, make_origin, tmp_path, database):
    policy = tmp_path / "captured.toml"
    policy.write_text('default = "deny"\n[[rules]]\naction = "allow"\n'
                      'addresses = ["127.0.0.0/8"]\ncapture = "head"\n')
    context = server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    way, origin = make_origin(over_tls(answer(HELLO), context)), make_origin()
    proxy = serve(table(localhost()) + parent(way, "https", ca=ca(), plain="absolute",
                                              resolve="parent"),
                  f'policy = "{policy}"\nroute = "corp"\ncapture_file = "{database}"\n')
    assert reach(proxy, client_context()).get(origin.url()).body == b"hello"
    (row,) = wait_rows(database)
    assert (row["parent"], row["client_tls_version"], row["peer_tls_version"]) == (
        "corp", "1.3", "1.2")
    assert row["client_cipher"].startswith("TLS_AES_")
    assert row["peer_cipher"].startswith("TLS_ECDHE_")
    assert row["tls_version"] is None
