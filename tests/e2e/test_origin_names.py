"""An origin that refuses its server name: once more without, if the option says so."""

import shutil
import socket
import ssl
import subprocess

import pytest

from tests.support import inside
from tests.support.certificates import TlsSocket
from tests.support.inside import ALL, certificate, config, enter, okay
from tests.support.origin import Connection, Script
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

RETRY = "retry_without_sni = true\n"
UNRECOGNIZED = ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Unnamed:
    """The script of an origin that refuses each server name, with this alert."""

    def __init__(self, made=None, alert: int = UNRECOGNIZED, always: bool = False,
                 script: Script = okay, version: ssl.TLSVersion | None = None) -> None:
        """`always`: also a client that names none."""
        self.names: list[str | None] = []
        self._script = script
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*(made or certificate()))
        if version is not None:
            self._context.maximum_version = version

        def judge(sock, name: str | None, context) -> int | None:
            self.names.append(name)
            return alert if name or always else None
        self._context.sni_callback = judge

    def __call__(self, conn: Connection) -> None:
        try:
            conn.sock = TlsSocket(conn.sock, self._context, server_side=True)
            conn.sock.shake()
        except (ssl.SSLError, ConnectionError):
            return
        self._script(conn)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_asked_once_more_without_the_name(
        start_policy, make_origin, dial, version) -> None:
    """The client names its server all the same; a later request needs no handshake."""
    proxy = start_policy(ALL, config(RETRY))
    script = Unnamed(version=version)
    client = enter(proxy, dial(proxy), make_origin(script).port)
    for _ in range(2):
        assert inside.ask(client).status == 200
    assert script.names == ["a.example", None]
    records = proxy.wait_log(3)
    assert [record["reason"] for record in records] == ["ok"] * 3
    assert records[0]["connect_ms"] and records[0]["origin_tls_ms"]
    assert "unrecognized_name" in proxy.stderr()


def test_a_further_connection_of_the_client_gets_no_name(
        start_policy, make_origin, dial) -> None:
    """The origin closes after each answer: the name is not tried again."""
    closing = inside.answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
                            b"Content-Length: 0\r\n\r\n")
    script = Unnamed(script=closing)
    proxy = start_policy(ALL, config(RETRY))
    client = enter(proxy, dial(proxy), make_origin(script).port)
    for _ in range(3):
        assert inside.ask(client).status == 200
    assert script.names == ["a.example", None, None, None]


def test_without_the_option_the_handshake_fails(
        start_policy, make_origin, dial) -> None:
    proxy, script = start_policy(ALL, config()), Unnamed()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(proxy, dial(proxy), make_origin(script).port)
    assert "unrecognized" in proxy.wait_reason("origin_tls")["hook"]
    assert script.names == ["a.example"]


@pytest.mark.parametrize(("more", "names"), [
    ({"always": True}, ["a.example", None]),
    ({"alert": ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE}, ["a.example"])])
def test_it_is_asked_once_and_after_this_alert_alone(
        start_policy, make_origin, dial, more, names) -> None:
    proxy, script = start_policy(ALL, config(RETRY)), Unnamed(**more)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(proxy, dial(proxy), make_origin(script).port)
    proxy.wait_reason("origin_tls")
    assert script.names == names


def test_the_certificate_has_to_have_the_name_all_the_same(
        start_policy, make_origin, dial) -> None:
    proxy = start_policy(ALL, config(RETRY))
    script = Unnamed(certificate("DNS:b.example"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        enter(proxy, dial(proxy), make_origin(script).port)
    proxy.wait_reason("origin_certificate")
    assert script.names == ["a.example", None]


def test_requests_inside_dial_it_without_the_name(
        start_policy, make_origin, dial) -> None:
    closed = [True]

    def leave_first(conn: Connection) -> None:
        """The CONNECT's connection ends before a request can take it."""
        if closed:
            closed.pop()
            return
        okay(conn)
    script = Unnamed(script=leave_first)
    proxy = start_policy(ALL, config(RETRY))
    client = enter(proxy, dial(proxy), make_origin(script).port)
    wait_until(lambda: not closed, "the first connection's end")
    assert inside.ask(client).status == 200
    assert script.names[:2] == ["a.example", None]
    assert set(script.names[2:]) == {None}


def test_the_second_connection_goes_the_same_way(
        start_policy, make_origin, dial, start_proxy) -> None:
    """Through a parent: nothing goes to the origin directly."""
    parent = start_proxy(
        "--connect-ports", "any", "--dns-overrides", "a.example=127.0.0.1")
    proxy = start_policy(ALL, config(
        RETRY + f'route = "up"\n[parents.up]\nurl = "http://127.0.0.1:{parent.port}"\n'
        "pass_credentials = true\n"))
    script = Unnamed()
    client = enter(proxy, dial(proxy), make_origin(script).port)
    assert inside.ask(client).status == 200
    assert script.names == ["a.example", None]
    client.close()
    assert len(parent.wait_log(2, method="CONNECT")) == 2


def test_s_server_refuses_the_name_and_answers_without(
        start_policy, dial, directory) -> None:
    if not shutil.which("openssl"):     # its library serves the other tests
        pytest.skip("openssl is not installed")
    made = certificate()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert",
         made.certificate, "-key", made.key, "-cert2", made.certificate, "-key2",
         made.key, "-servername", "other.example", "-servername_fatal", "-www"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert server.stdout is not None
        while b"ACCEPT" not in server.stdout.readline():
            assert server.poll() is None
        proxy = start_policy(ALL, config(RETRY))
        client = enter(proxy, dial(proxy), port)
        inside.send(client, "GET", "/")
        assert client.read_response("GET").status == 200
    finally:
        server.kill()
        server.communicate()
