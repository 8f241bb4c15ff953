"""`cutthrough flows` by the admin listener, and `follow` both ways."""

import contextlib
import json
import signal
import socket
import threading

import pytest

from cutthrough.cli import main as cli
from tests.capture.flows import row
from tests.support.archives import archive, entry
from tests.support.client import PASSWORD, USER
from tests.support.flow_verbs import flows as flows
from tests.support.flow_verbs import following
from tests.support.flows import database as database
from tests.support.flows import fill, fill_new, reads
from tests.support.flows import keep_filled as keep_filled
from tests.support.flows import start as start
from tests.support.origin import answer
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

GRPC = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n\r\n"
JSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
# Their answers are the same from the database and by the listener
SAME = (
    ("list",), ("list", "~d", "h1"), ("list", "--limit", "2"), ("list", "~c", "999"),
    ("list", "--limit", "0"), ("search", "needle"), ("search", "needle", "--filter",
    "~c 200"), ("show", "1"), ("show", "2", "--view", "hex"), ("show", "3"),
    ("show", "1", "--json"), ("show", "2", "--body", "response"), ("show", "4"),
    ("copy", "1"), ("copy", "3", "--as", "json"), ("diff", "1", "1"),
    ("diff", "1", "2"))


@pytest.fixture
def operator(start, database):
    """Of a proxy with five flows in its database."""
    _, operator = start()
    fill_new(database, five_rows())
    return operator


@pytest.fixture
def kept_operator(keep_filled):
    """For tests that change nothing."""
    return keep_filled(five_rows())[1]


def five_rows():
    return [
        row(1, host="h1.test", response_head=JSON, response_body='{"a":[1]}',
            request_trailers="X-Sum: 7\r\n", client_http="2", detail="why",
            client_tls_us=5, request_body="needle"),
        row(2, response_head=GRPC, response_body=b"\0\0\0\0\2\x08\x05"),
        row(3, method="POST", request_body=b"\0\xff", host="h1.test"),
        row(4, kind="tunnel", status=101, messages=json.dumps([{
            "at_us": 1, "side": "request", "kind": "text", "bytes": 2, "text": "hi"}])),
        row(5)]


def test_the_listener_answers_as_the_database_does(operator, database, flows):
    for words in SAME:
        found = flows(operator, *words)
        assert found == flows(database, *words), words
        assert not found[2]
    out = flows(operator, "export")[1]
    assert json.loads(out) == json.loads(flows(database, "export")[1])
    out = flows(operator, "export", "--id", "3")[1]
    assert json.loads(out) == json.loads(flows(database, "export", "--id", "3")[1])
    rows = list(map(json.loads, flows(operator, "list", "--json")[1].splitlines()))
    assert [one["id"] for one in rows] == [5, 4, 3, 2, 1]
    assert ("127.0.0.1", "copy", "3", 1) in reads(database), "logged with its client"


def test_flows_are_changed_by_the_listener(operator, flows, tmp_path):
    assert flows(operator, "tag", "2", "--tag", "odd") == (0, "", "")
    assert len(flows(operator, "list", "~tag odd")[1].splitlines()) == 2
    assert flows(operator, "delete", "--id", "1", "--id", "9") == (1, "1 deleted\n", "")
    assert flows(operator, "delete", "~d", "h1")[1] == "1 deleted\n"
    made, odd, long = tmp_path / "a.har", tmp_path / "odd", tmp_path / "long"
    made.write_bytes(archive(entry()))
    odd.write_text("none")
    with long.open("wb") as file:
        file.truncate((64 << 20) + 1)
    status, out, errors = flows(operator, "import", str(odd), str(long), str(made))
    assert (status, out) == (1, f"{made}: 1 imported, 0 were there, 0 refused\n")
    assert "400: the file is neither" in errors and "longer than 64 MiB" in errors
    out = tmp_path / "out.har"
    assert flows(operator, "export", "~u x.y=1", "-o", str(out))[0] == 0
    assert len(json.loads(out.read_text())["log"]["entries"]) == 1
    assert out.stat().st_mode & 0o777 == 0o600
    assert flows(operator, "delete", "--all")[1] == "4 deleted\n"


def test_a_flow_of_the_listener_is_replayed(start, make_origin, dial, flows, tmp_path):
    proxy, operator = start()
    origin = make_origin(answer(HELLO))
    assert dial(proxy).get(origin.url("/a")).status == 200
    wait_until(lambda: flows(operator, "show", "1")[0] == 0, "the flow")
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    status, out, _ = flows(operator, "replay", "1", "--proxy",
                           f"127.0.0.1:{proxy.port}", "--user", USER,
                           "--password-file", str(secret), "--diff")
    assert (status, len(origin.requests)) == (0, 2), out


@pytest.mark.parametrize("words", [
    ("show", "9"), ("copy", "4"), ("export", "--id", "9"), ("tag", "9", "--tag", "a"),
    ("list", "~x"), ("follow", "~x"), ("diff", "1", "9")])
def test_a_refusal_is_told(kept_operator, flows, words):
    status, out, errors = flows(kept_operator, *words)
    assert status == (2 if words[0] == "diff" else 1) and out == ""
    assert errors.startswith("cutthrough: ") and errors.count("\n") == 1


@pytest.mark.parametrize("words", [
    ("list", "--file", "x"), ("export", "--limit", "3"),
    ("import", "x", "--keep-credentials"), ("list", "--url-file", "x")])
def test_what_is_not_for_the_listener_is_refused(kept_operator, flows, words):
    status, _, errors = flows(kept_operator, *words)
    assert status == 2 and words[-2].removeprefix("x") in errors


def test_without_its_token_the_listener_says_nothing(kept_operator, capfd):
    where = f"127.0.0.1:{kept_operator.where}"
    assert cli.main(["flows", "list", "--admin", where]) == 1
    assert "give the token with --token-file" in capfd.readouterr().err


@pytest.mark.parametrize("by_listener", [True, False])
def test_flows_are_followed_as_they_come(operator, database, flows, tmp_path,
                                         by_listener):
    where = operator if by_listener else database
    with following(where, tmp_path, "~c 200 & !~d h1", "-n", "1") as (lines, process):
        wait_until(lambda: len(lines) == 2, lambda: process.poll())
        assert lines[0][:2] == ["ID", "TIME"] and lines[1][0] == "5"
        fill(database, [row(6, host="h1.test"), row(7, url="http://new\x1b.test/"),
                        row(8, status=404)])
        wait_until(lambda: len(lines) == 3, lambda: str(lines))
        fill(database, [row(9)])
        wait_until(lambda: len(lines) == 4, lambda: str(lines))
        assert [line[0] for line in lines[2:]] == ["7", "9"]
        assert lines[2][-1] == "http://new\\u{1b}.test/" and lines[2][2:5] == [
            "ann", "GET", "200"]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT
    with following(where, tmp_path, "--json", "-n", "0") as (lines, process):
        wait_until(lambda: [one[1] for one in reads(database)].count("watch") == 2,
                   "its begin")
        fill(database, [row(10)])
        wait_until(lambda: lines, lambda: process.poll())
        assert json.loads(" ".join(lines[0]))["id"] == 10


class Door:
    """A way to the admin listener that can be shut, on a port of its own."""

    def __init__(self, operator):
        self._to = operator.where
        self._shut = socket.create_server(("127.0.0.1", 0))
        self.where = self._shut.getsockname()[1]
        self._pairs = []
        self.open()

    def open(self):
        self._shut.close()
        self._server = socket.create_server(("127.0.0.1", self.where))
        threading.Thread(target=self._accept, args=[self._server]).start()

    def _accept(self, server):
        with contextlib.suppress(OSError):       # it is shut
            while True:
                client, _ = server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._pairs.append((client, far))
                for one, other in ((client, far), (far, client)):
                    threading.Thread(target=self._pass, args=[one, other]).start()

    def _pass(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def shut(self):
        """Idempotent."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for pair in self._pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._pairs.clear()


@pytest.fixture
def door(operator, opened):
    made = Door(operator)
    opened.callback(made.shut)
    return made


@pytest.mark.usefixtures("flows")          # they write the token
def test_a_stream_that_ends_goes_on_where_it_was(door, database, tmp_path):
    with following(door, tmp_path, "-n", "1") as (lines, process):
        wait_until(lambda: len(lines) == 2, lambda: str(lines))
        fill(database, [row(6)])
        wait_until(lambda: len(lines) == 3, lambda: str(lines))
        door.shut()
        assert process.stderr.readline().startswith("cutthrough: 127.0.0.1:")
        fill(database, [row(7)])
        door.open()
        wait_until(lambda: len(lines) == 4, lambda: str(lines))
        fill(database, [row(8)])
        wait_until(lambda: len(lines) == 5, lambda: str(lines))
        assert [line[0] for line in lines[1:]] == ["5", "6", "7", "8"]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT
        assert process.stderr.read() == "", "it was told once"


@pytest.mark.usefixtures("flows")
def test_a_token_that_is_no_longer_taken_ends_the_stream(door, tmp_path):
    with following(door, tmp_path, "-n", "1") as (lines, process):
        wait_until(lambda: len(lines) == 2, lambda: str(lines))
        door.shut()
        process.stderr.readline()
        with refusing(door.where):
            assert process.wait(30) == 1
        assert "401" in process.stderr.read()


@contextlib.contextmanager
def refusing(port):
    """A listener there that takes no token."""
    with socket.create_server(("127.0.0.1", port)) as server:
        def run():
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n"
                               b"Connection: close\r\n\r\n")
        thread = threading.Thread(target=run)
        thread.start()
        yield
        thread.join()


def test_reads_are_listed_by_the_listener(operator, database, flows):
    flows(operator, "show", "3")
    flows(database, "show", "2")
    status, out, errors = flows(operator, "reads")
    assert (status, errors) == (0, "") and out == flows(database, "reads")[1]
    assert "  admin 127.0.0.1  show 3  1 found\n" in out and "  uid " in out


@pytest.mark.parametrize("words", [("send",), ("replay", "1")])
def test_a_request_is_sent_by_the_listener(start, make_origin, dial, flows, tmp_path,
                                           words):
    proxy, operator = start()
    origin = make_origin(answer(HELLO))
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    assert dial(proxy).get(origin.url("/a")).status == 200
    wait_until(lambda: flows(operator, "show", "1")[0] == 0, "the flow")
    url = [origin.url("/a/b")] if words == ("send",) else ["--url", origin.url("/a/b")]
    status, out, errors = flows(operator, *words, *url, "--user", USER,
                                "--password-file", str(secret), "-H", "X-One: 1")
    assert (status, errors) == (0, ""), out
    assert out.endswith("\r\n\r\nhi") and origin.requests[1].target == "/a/b"
    status, out, _ = flows(operator, *words, *url)
    assert status == 0 and out.startswith("HTTP/1.1 407 "), "the token is no user"


def test_authorities_are_for_a_proxy_of_the_command_line(kept_operator, flows):
    status, _, errors = flows(kept_operator, "send", "http://a.test/", "--cacert", "x")
    assert status == 2 and "--cacert" in errors


def test_without_a_way_nothing_is_sent(capfd):
    assert cli.main(["flows", "send", "http://a.test/"]) == 2
    assert "--proxy" in capfd.readouterr().err
