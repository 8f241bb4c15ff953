"""Listeners in the file system: permitted callers, the stand-in for an address, the
owner of the file."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess

import httpx
import pytest

import cutthrough
from tests.support.admin import TOKEN, TOLD, Operator
from tests.support.client import AUTH as LINE
from tests.support.client import PASSWORD, USER, WRONG, Client, build_request
from tests.support.handovers import RENEW
from tests.support.handovers import start as start
from tests.support.lines import read_line
from tests.support.origin import echo
from tests.support.proxy import clean_environment
from tests.support.silent import silent
from tests.support.sockets import attempts
from tests.support.successors import end, successor_of
from tests.support.wait import wait_until
from tests.wire.twin_proxy import build_line

ME = f"unix:{os.getuid()}"


@pytest.fixture
def path(directory) -> str:
    return str(directory("run") / "proxy.sock")


@pytest.fixture
def text(path):
    """A configuration with this listener, and one beside it on a port."""
    return ('workers = 2\nlisten = ["127.0.0.1:0"]\n[[listeners]]\n'
            f'address = "unix:{path}"\n')


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def is_there(path: str) -> bool:
    return os.path.exists(path)


@pytest.mark.any_loop
def test_it_serves_requests_and_tunnels(start, text, path, make_origin, opened):
    proxy, origin, far = start(text), make_origin(), make_origin(echo)
    assert f"unix:{path}" in proxy.banner and mode_of(path) == 0o660
    for _ in range(4):
        with Client(0, path) as client:
            assert client.get(origin.url()).status == 200
            assert client.tunnel(far.authority)
            client.send(b"there and back")
            assert client.read_exact(14) == b"there and back"
            client.half_close()
            assert client.at_eof()
    records = proxy.wait_log(8)
    assert {one["client"] for one in records} == {ME}
    assert {one["reason"] for one in records} == {"ok"}


@pytest.mark.any_loop
def test_a_close_is_the_end_of_a_stream_and_no_reset(start, text, path, make_origin):
    """The origin got a reset behind the last byte, and the log had client_reset: the
    kernel reports a hang-up, which over TCP only a reset is."""
    got: list[int] = []
    origin = make_origin(lambda conn: got.append(len(conn.read_rest())))
    proxy, data = start(text), bytes(3 << 20)
    with Client(0, path) as client:
        client.tunnel(origin.authority)
        client.send(data)
    wait_until(lambda: got == [len(data)], "all of it at the origin, and its end")
    (record,) = proxy.wait_log(1)
    assert (record["reason"], record["bytes_up"]) == ("ok", len(data))


@pytest.mark.any_loop
@pytest.mark.parametrize("method", ["CONNECT", "GET"])
def test_a_client_that_closes_before_there_is_an_origin_has_closed(
        start, text, path, opened, method):
    """The log had client_reset: over TCP only a reset is a hang-up."""
    proxy = start(text.replace("workers = 2", "workers = 1"))
    host, port = opened.enter_context(silent("127.0.0.1")).getsockname()
    authority = f"{host}:{port}"
    with Client(0, path) as client:
        client.send(build_request(
            method, authority if method == "CONNECT" else f"http://{authority}/",
            host=authority))
        wait_until(lambda: attempts(proxy, port) == ["SYN_SENT"], "an attempt")
    (record,) = proxy.wait_log(1)
    assert (record["reason"], record["status"]) == ("client_closed", 0)


@pytest.mark.parametrize("early", [b"", b"and bytes behind it"])
async def test_a_client_that_closes_behind_its_request_has_closed(
        path, tmp_path, early):
    """Request and hang-up are one event: no client is left for an answer."""
    log = tmp_path / "access.log"
    async with cutthrough.serve(
            listeners=[{"address": f"unix:{path}"}], user=USER, password=PASSWORD,
            access_log=str(log), access_log_format="json"):
        with socket.create_server(("127.0.0.1", 0)) as origin:
            authority = f"127.0.0.1:{origin.getsockname()[1]}"
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)        # no await: the worker runs after the close
                client.sendall(build_request(
                    "CONNECT", authority, host=authority) + early)
            await asyncio.to_thread(
                wait_until, lambda: log.exists() and log.read_text(), "the line")
    assert read_line(log.read_text())["reason"] == "client_closed"


@pytest.mark.any_loop
def test_bulk_goes_both_ways(start, text, path, make_origin, opened):
    """The relay splices between a unix socket and a TCP socket."""
    start(text)
    client = opened.enter_context(Client(0, path)).tunnel(make_origin(echo).authority)
    data, got = os.urandom(3 << 20), bytearray()
    client.sock.setblocking(False)
    sent = 0
    while len(got) < len(data):
        with contextlib.suppress(BlockingIOError):
            sent += client.sock.send(data[sent:sent + 65536]) if sent < len(data) else 0
        with contextlib.suppress(BlockingIOError):
            got += client.sock.recv(65536)
    assert got == data


@pytest.mark.any_loop
def test_a_stale_file_is_replaced_and_another_program_s_is_not(start, text, path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    proxy = start(text)
    with Client(0, path) as client:
        assert client.get("http://127.0.0.1:1/").status == 502
    with pytest.raises(AssertionError, match="Address already in use"):
        start(text)
    with Client(0, path) as client:
        assert client.get("http://127.0.0.1:1/").status == 502
    proxy.stop()
    assert not is_there(path)


@pytest.mark.any_loop
def test_a_file_that_is_no_socket_stays(start, text, path):
    with open(path, "w") as file:
        file.write("mine")
    with pytest.raises(AssertionError, match="exists, and is not a socket"):
        start(text)
    assert open(path).read() == "mine"


@pytest.mark.any_loop
def test_a_reload_changes_the_mode_of_an_open_socket(start, text, path):
    proxy = start(text + 'mode = "600"\n')
    inode = os.stat(path).st_ino
    assert mode_of(path) == 0o600
    line = proxy.reload(text + 'mode = "666"\n')
    assert f"listeners unix:{path} mode 600 -> 666" in line
    assert mode_of(path) == 0o666 and os.stat(path).st_ino == inode


# chown(2): another user's name needs CAP_CHOWN
@pytest.mark.any_loop
@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_owner_is_set_by_name_or_number(start, text, path):
    proxy = start(text + 'owner = "nobody:12345"\n')
    status = os.stat(path)
    assert (status.st_uid, status.st_gid) == (65534, 12345)
    line = proxy.reload(text + 'owner = "no-such-user"\n')
    assert "reload refused" in line and "listeners.owner: no such user" in line
    proxy.reload(text + 'owner = ":54321"\n')
    assert os.stat(path).st_gid == 54321


@pytest.mark.any_loop
def test_the_socket_stays_over_a_reload_and_an_upgrade(
        start, text, path, make_origin, opened):
    """No caller is refused, and a tunnel runs on in the new program."""
    proxy, far = start(text), make_origin(echo)
    inode = os.stat(path).st_ino
    client = opened.enter_context(Client(0, path)).tunnel(far.authority)
    proxy.reload(RENEW.format(9999) + text)
    wait_until(lambda: "handed 1 tunnel over" in proxy.stderr(), proxy.stderr)
    successor = successor_of(proxy)
    assert proxy.wait_exit() == 0
    assert os.stat(path).st_ino == inode, "the old program leaves the file"
    client.send(b"still here")
    assert client.read_exact(10) == b"still here"
    with Client(0, path) as again:
        assert again.get("http://127.0.0.1:1/").status == 502
    client.close()
    assert proxy.wait_log(1, kind="tunnel")[0]["client"] == ME
    end(successor)
    assert not is_there(path), "the new program's last act"


@pytest.mark.any_loop
def test_a_new_program_that_fails_leaves_the_old_one_its_file(start, text, path):
    proxy = start(text)
    proxy.write_config(text + 'mode = "666"\n[[listeners]]\naddress = "unix:/no/dir"\n')
    proxy.signal(signal.SIGUSR2)
    wait_until(lambda: "upgrade failed" in proxy.stderr(), proxy.stderr)
    with Client(0, path) as client:
        assert client.get("http://127.0.0.1:1/").status == 502


@pytest.mark.any_loop
def test_a_removed_listener_takes_its_file_along(start, text, path):
    proxy = start(text)
    proxy.reload('workers = 2\nlisten = ["127.0.0.1:0"]\n')
    wait_until(lambda: not is_there(path), lambda: path)
    proxy.reload(text)
    with Client(0, path) as client:
        assert client.get("http://127.0.0.1:1/").status == 502


# The stand-in for an address


@pytest.mark.any_loop
def test_rules_by_network_do_not_match_a_caller_without_an_address(
        start, text, path, directory, make_origin):
    policy = directory("policy") / "policy.toml"
    policy.write_text('default = "deny"\n[[rules]]\naction = "allow"\n'
                      'clients = ["0.0.0.0/0", "::/0"]\naddresses = ["127.0.0.0/8"]\n')
    proxy = start(f'policy = "{policy}"\n{text}')
    origin = make_origin()
    with Client(proxy.port) as client:
        assert client.get(origin.url()).status == 200
    with Client(0, path) as client:
        assert client.get(origin.url()).status == 403
    assert proxy.wait_reason("destination_denied")["client"] == ME


@pytest.mark.any_loop
def test_bounds_of_a_client_count_a_user_of_one_socket(start, text, path, opened):
    start("max_connections_per_client = 2\n" + text)
    held = [opened.enter_context(Client(0, path)) for _ in range(2)]
    for one in held:
        one.send(b"GET ")                    # not at rest: it has begun a request
    wait_until(lambda: Client(0, path).get("http://127.0.0.1:1/").status in (502, 503),
               lambda: "an answer")


@pytest.mark.any_loop
def test_guesses_wait_by_user_of_the_socket(start, text, path):
    proxy = start(text)
    with Client(0, path) as client:
        for _ in range(3):
            reply = client.get("http://127.0.0.1:1/", auth=WRONG)
            assert reply.status in (407, 429)
    assert {one["client"] for one in proxy.wait_log(3)} == {ME}


@pytest.mark.any_loop
def test_operators_find_it_by_its_name(
        start, text, path, make_origin, opened, directory):
    token = directory("token") / "token"
    token.write_text(TOKEN)
    proxy = start(f'admin = "127.0.0.1:0"\nadmin_token_file = "{token}"\n' + text)
    operator = Operator(int(TOLD.search(proxy.stderr())[1]))
    client = opened.enter_context(Client(0, path)).tunnel(make_origin(echo).authority)
    (one,) = operator.connections()
    assert one["client"] == ME
    assert [each["id"] for each in operator.connections(f"client={ME}")] == [one["id"]]
    assert operator.metrics()[f'connections_total{{listener="unix:{path}"}}'] == 1
    client.close()


@pytest.mark.any_loop
def test_a_load_balancer_on_this_host_names_clients(start, text, path, make_origin):
    """R50: the file's permissions select the senders of a header."""
    proxy = start('address_floor = "off"\nconnect_ports = "any"\n' + text
                  + "proxy_protocol = true\n")
    origin = make_origin()
    with Client(0, path) as client:
        client.send(build_line("203.0.113.9") + build_request("GET", origin.url()))
        assert client.read_response().status == 200
    (record,) = proxy.wait_log(1)
    assert (record["client"], record["proxied_by"]) == ("203.0.113.9", ME)


# Real clients


@pytest.mark.any_loop
def test_curl_calls_the_socket(start, text, path, make_origin):
    """With --unix-socket curl knows of no proxy: the absolute form has to be given."""
    proxy, url = start(text), make_origin().url()
    done = subprocess.run(
        ["curl", "-sS", "--unix-socket", path, "--request-target", url, "-H",
         LINE.strip(), url],
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert proxy.wait_log(1)[0]["client"] == ME


async def test_an_embedded_proxy_listens_on_a_path_and_removes_it(path):
    async with cutthrough.serve(listeners=[{"address": f"unix:{path}"}]) as proxy:
        assert proxy.address == (f"unix:{path}", 0)
        with pytest.raises(RuntimeError, match="has no URL"):
            _ = proxy.url
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(build_request("GET", "http://127.0.0.1:1/"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 407")
        writer.close()
        transport = httpx.AsyncHTTPTransport(uds=path)
        async with httpx.AsyncClient(transport=transport) as client:
            reply = await client.get("http://127.0.0.1:1/")
            assert reply.status_code == 400, "origin form"
    assert not is_there(path)
