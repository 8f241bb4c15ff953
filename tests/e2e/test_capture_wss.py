"""Messages of WebSockets in intercepted connections, by a real client and origin."""

import base64
import json
import threading

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.server import serve

from tests.support.admin import DOOR, operator_of
from tests.support.captures import flows, wait_rows
from tests.support.flows import get
from tests.support.inside import HERE, config
from tests.support.open_flows import wait_open
from tests.support.websockets import (
    frame,
    mirror,
    origin_context,
    parrot,
    through,
    upgrade,
)

pytestmark = pytest.mark.any_loop

POLICY = (f'[[rules]]\nname = "inside"\naction = "allow"\n{HERE}tls = "intercept"\n'
          'capture = "full"\n')


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


SENT = ["grün " * 50, b"\x00\xff" * 40, "", "x" * 70_000]


@pytest.mark.parametrize("compression", ["deflate", None])
def test_messages_inside_an_interception_are_kept(start_policy, database, compression):
    """R54: the client's messages are readable, and no bytes change."""
    proxy = start_policy(POLICY, config(f'capture_file = "{database}"\n'))
    with mirror(origin_context()) as port:
        with through(proxy, port, compression=compression) as client:
            for message in SENT:
                client.send(message)
                assert client.recv() == message
            assert client.ping(b"here").wait(10)
    row = next(row for row in wait_rows(database, 2) if row["status"] == 101)
    assert row["url"] == f"https://a.example:{port}/chat?room=1"
    assert (row["kind"], row["intercepted"], row["sni"]) == ("tunnel", 1, "a.example")
    assert (row["client_tls_version"], row["peer_tls_version"]) == ("1.3", "1.3")
    assert row["client_cipher"] and row["peer_cipher"]
    assert row["messages_state"] is None
    extension = "permessage-deflate" in row["response_head"]
    assert extension == (compression == "deflate")
    found = json.loads(row["messages"])
    for side in ("request", "response"):
        mine = [one for one in found if one["side"] == side]
        assert [content(one) for one in mine
                if one["kind"] in ("text", "binary")] == SENT
        assert [one["code"] for one in mine if one["kind"] == "close"] == [1000]
    assert ("request", "ping", "here") in [
        (one["side"], one["kind"], one.get("text")) for one in found]
    listed = flows(database, "list", "~websocket").stdout.splitlines()
    assert len(listed) == 2 and f":{port}/chat" in listed[1]


def content(message):
    if message["kind"] == "text":
        return message["text"]
    return base64.b64decode(message["base64"])


@pytest.mark.parametrize("hostile", [
    b"\x82\xff" + b"\xff" * 8 + b"mask" + b"x" * 50,     # 2^64 - 1 bytes
    b"\x82\x7f\x7f" + b"\xff" * 7 + b"x" * 50,           # 2^63 - 1, and they never come
    b"\xf2\x05hello", b"\x83\x05hello", b"\x89\xfe\x01\x00mask" + b"x" * 256,
    b"\x01\x02ab\x01\x02cd", b"\x00" * 300, b"GET / HTTP/1.1\r\n\r\n"])
def test_frames_that_are_none_go_on_as_they_came(
        start_policy, make_origin, dial, database, hostile):
    """R58: the capture shows that it could not read on; the tunnel does not notice."""
    proxy = start_policy(POLICY.replace('tls = "intercept"\n', ""),
                         f'capture_file = "{database}"\n')
    origin, client = make_origin(parrot), dial(proxy)
    upgrade(client, origin)
    good = frame(1, b"good")
    client.send(good + hostile)
    assert client.read_exact(len(good + hostile)) == good + hostile
    client.send(b"more")
    assert client.read_exact(4) == b"more"
    client.close()
    (row,) = wait_rows(database)
    found = json.loads(row["messages"])
    assert [one["text"] for one in found if one["kind"] == "text"][:3] == [
        "welcome", "good", "good"]
    cut = [one for one in found if one.get("state") == "truncated"]
    assert row["messages_state"] == "malformed" or len(cut) == 2
    assert wait_rows(database)[0]["bytes_up"] >= len(good + hostile) + 4


def test_an_origin_that_refuses_the_upgrade_has_no_messages(
        start_policy, database):
    proxy = start_policy(POLICY, config(f'capture_file = "{database}"\n'))

    def refuse(connection, request):
        return connection.respond(426, "not here")

    server = serve(lambda connection: None, "127.0.0.1", 0, ssl=origin_context(),
                   process_request=refuse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port = server.socket.getsockname()[1]
    try:
        with pytest.raises(InvalidStatus, match="426"):
            through(proxy, port)
    finally:
        server.shutdown()
        thread.join()
    row = next(row for row in wait_rows(database, 2) if row["status"] == 426)
    assert row["messages"] is None and row["kind"] == "request"


def test_messages_of_an_open_one_are_read(start_policy, database):
    """Inside an intercepted connection, and compressed."""
    proxy = start_policy(POLICY, DOOR + config(f'capture_file = "{database}"\n'))
    operator = operator_of(proxy)
    with mirror(origin_context()) as port, through(proxy, port) as client:
        client.send("zebra " * 20)
        assert client.recv() == "zebra " * 20
        (row,) = wait_open(operator)
        assert row["url"] == f"https://a.example:{port}/chat?room=1"
        name = row["request"]
        shown = json.loads(get(operator, f"/flows/open/{name}")[2])
        assert shown["intercepted"] == 1 and shown["client_tls_version"] == "1.3"
        found = json.loads(get(operator, f"/flows/open/{name}/messages")[2])
        assert [(one["side"], one["text"]) for one in found] == [
            ("request", "zebra " * 20), ("response", "zebra " * 20)]
    assert wait_rows(database, 2)[-1]["request"] == name
