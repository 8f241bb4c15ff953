"""`https://` proxies: a listener with certificates (R47, R49), reload, upgrade."""

import contextlib
import os
import socket
import ssl
import subprocess

import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.certificates import (
    Authority,
    TlsSocket,
    authority,
    client_context,
    localhost,
)
from tests.support.client import PASSWORD, USER, Client
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.sanitized import SANITIZED
from tests.support.stream import Stream
from tests.support.successors import end, successor_of
from tests.support.tls_listener import call as call
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


@pytest.mark.parametrize("records", ["own", "libssl"])
def test_requests_and_tunnels(serve, reach, make_origin, records):
    proxy = serve(config=f'tls_records = "{records}"\n')
    client = reach(proxy)
    url = make_origin().url()
    for _ in range(3):
        assert client.get(url).status == 200
    tunnel = reach(proxy).tunnel(make_origin(echo).authority, b"early ")
    tunnel.send(b"bytes")
    assert tunnel.read_exact(11) == b"early bytes"
    tunnel.half_close()
    assert tunnel.at_eof()
    assert len(proxy.wait_log(4, reason="ok")) == 4


def test_a_tunnel_carries_megabytes_both_ways(serve, reach, make_origin):
    proxy, data = serve(), os.urandom(3 << 20)
    tunnel = reach(proxy).tunnel(make_origin(echo).authority)
    got = bytearray()
    for at in range(0, len(data), 1 << 16):
        tunnel.send(data[at:at + (1 << 16)])
        got += tunnel.read_exact(1 << 16)
    tunnel.half_close()
    assert got + tunnel.read_rest() == data


@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps what is freed")
def test_memory_goes_back_when_a_flood_of_hellos_is_over(
        serve, reach, call, make_origin):
    """Of 900 parts of a ClientHello 43 MB stayed: the heap was trimmed for the end of a
    thousand connections, and libssl has 42 KB for each of these."""
    proxy = serve(config=f'head_timeout = "60s"\n{DOOR}')
    operator = operator_of(proxy)
    assert reach(proxy).get(make_origin().url()).status == 200
    before, n = proxy.private_kib(), 500
    callers = []
    for _ in range(n):
        callers.append(call(proxy))
        callers[-1].sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03")
    # The worker looks once a second: at what the heap has, too
    wait_until(lambda: operator.metrics()["tls_handshakes_under_way"] >= n, "all", 30)
    assert proxy.private_kib() > before + 20 * n
    while callers:
        callers.pop().close()
    wait_until(lambda: proxy.private_kib() < before + 10 * n,
               lambda: f"{before} KiB again: {proxy.private_kib()}", 30)


@pytest.mark.parametrize(("data", "reason"), [
    (b"GET http://a.example/ HTTP/1.1\r\n\r\n", "tls_failed"),
    (b"CONNECT a.example:443 HTTP/1.1\r\n\r\n", "tls_failed"),
    (b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", "tls_failed"),
    (b"\x05\x01\x00" + b"\0" * 20, "tls_failed"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "client_closed")])
def test_no_handshake_no_answer(serve, call, data, reason):
    """R47. If the bytes are no TLS, an alert or the end comes, but no plain reply."""
    proxy = serve()
    sock = call(proxy)
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionResetError):
        answer = sock.recv(1000)
        assert not answer or answer[0] == 0x15
    assert proxy.wait_reason(reason)["status"] == 0


def test_a_client_without_a_common_version(serve, call):
    proxy = serve(table(localhost(), tls_min_version='"1.3"'))
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        TlsSocket(call(proxy), old)
    proxy.wait_reason("tls_unshared")


def test_a_client_that_does_not_trust_the_certificate(serve, call):
    proxy = serve()
    with pytest.raises(ssl.SSLError):
        TlsSocket(call(proxy), client_context(trusted=Authority("another")))
    proxy.wait_reason("tls_alert")


def test_a_handshake_has_a_deadline_that_no_byte_extends(serve, call):
    proxy = serve(config='head_timeout = "500ms"\n')
    silent, sock = call(proxy), call(proxy)
    for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03":
        sock.sendall(bytes([byte]))
    assert sock.recv(100) == b""
    record = proxy.wait_reason("tls_timeout")
    assert 400 < record["total_ms"] < 5000
    assert silent.recv(100) == b""
    assert len(proxy.wait_log(1)) == 1      # the silent one began no handshake


def test_unfinished_handshakes_do_not_keep_others_out(serve, reach, call, make_origin):
    """R47: beyond the bound the address with the most of them loses one."""
    proxy = serve()
    held = [call(proxy) for _ in range(40)]
    for sock in held:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01")
    assert reach(proxy).get(make_origin().url()).status == 200


@pytest.mark.parametrize("how", ["required", "optional"])
def test_a_client_certificate_is_the_user(serve, reach, make_origin, tmp_path, how):
    ca = authority()
    policy = tmp_path / "policy.toml"
    policy.write_text('default = "deny"\n[groups]\nops = ["alice", "spiffe://td/ns/x"]\n'
                      '[[rules]]\naction = "allow"\ngroups = ["ops"]\n'
                      'addresses = ["127.0.0.0/8"]\n')
    proxy = serve(table(localhost(), client_ca=f'"{ca.own.certificate}"',
                        client_certificate=f'"{how}"'),
                  config=f'policy = "{policy}"\n')
    url = make_origin().url()
    alice = client_context(ca.sign(subject="/CN=alice"))
    bob = client_context(ca.sign(subject="/CN=bob"))
    assert reach(proxy, alice).get(url, auth=None).status == 200
    assert proxy.wait_reason("ok")["user"] == "alice"
    spiffe = client_context(ca.sign("URI:spiffe://td/ns/x"))
    assert reach(proxy, spiffe).get(url, auth=None).status == 200
    assert reach(proxy, bob).get(url, auth=None).status == 403
    assert proxy.wait_reason("destination_denied")["user"] == "bob"
    if how == "required":
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            reach(proxy).get(url)
        proxy.wait_reason("tls_certificate")
    else:
        assert reach(proxy).get(url, auth=None).status == 407
        assert reach(proxy).get(url).status == 403          # the user of a password


def test_curl_uses_it(serve, make_origin, tmp_path):
    ca = authority()
    proxy = serve(table(localhost(), client_ca=f'"{ca.own.certificate}"',
                        client_certificate='"optional"'), flags=("--workers", "2"))
    alice = ca.sign(subject="/CN=alice")
    certificate = ("--proxy-cert", str(alice.certificate),
                   "--proxy-key", str(alice.key))
    credentials = ("--proxy-user", f"{USER}:{PASSWORD}")
    origin = make_origin()
    for identity in (certificate, credentials):
        for tunnel in ((), ("-p",)):
            out = subprocess.run(
                ["curl", "-sS", "-x", f"https://localhost:{proxy.port}",
                 "--proxy-cacert", str(ca.own.certificate), *identity, *tunnel,
                 "--noproxy", "", "-o", "/dev/null", "-w", "%{http_code}",
                 origin.url()],
                capture_output=True, text=True, timeout=60, check=False)
            assert (out.stdout, out.stderr) == ("200", "")
    users = [record["user"] for record in proxy.wait_log(4, reason="ok")]
    assert sorted(users) == ["alice", "alice", USER, USER]


class Prefixed:
    """A socket that sends a prefix before its first bytes, in one segment."""

    def __init__(self, sock: socket.socket, prefix: bytes) -> None:
        self._sock, self._prefix = sock, prefix

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(self._prefix + data)
        self._prefix = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_handshake_behind_a_proxy_header(serve, call, make_origin, at_once):
    proxy = serve(table(localhost(), proxy_protocol="true"),
                  config='proxy_protocol_from = ["127.0.0.1"]\n'
                         'address_floor = "off"\n')
    header = b"PROXY TCP4 192.0.2.7 127.0.0.1 5000 443\r\n"
    sock = call(proxy)
    if at_once:
        sock = Prefixed(sock, header)
    else:
        sock.sendall(header)
    client = Client.__new__(Client)
    Stream.__init__(client, sock)
    client.sock = TlsSocket(sock)
    assert client.get(make_origin().url()).status == 200
    assert proxy.wait_reason("ok")["client"] == "192.0.2.7"
    client.close()


# --- certificates


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_may_read_is_refused(directory, loop_name, mode):
    """R49."""
    made = authority().sign("DNS:localhost")
    made.key.chmod(mode)
    with pytest.raises(AssertionError, match="others than its owner may read it"):
        Proxy(directory("tls"), loop=loop_name, config=table(made))


def serial(client: Client) -> str:
    return client.sock.tls.getpeercert()["serialNumber"]


def test_a_reload_takes_new_certificates_and_keeps_old_ones_for_bad(
        serve, reach, make_origin):
    """R49, and no connection is disturbed."""
    made, other = (authority().sign("DNS:localhost") for _ in range(2))
    proxy = serve(table(made))
    before = reach(proxy)
    was = serial(before)
    tunnel = reach(proxy).tunnel(make_origin(echo).authority)
    made.certificate.write_bytes(other.certificate.read_bytes())
    assert "the key does not belong to the certificate" in proxy.hup()
    assert serial(reach(proxy)) == was
    made.key.write_bytes(other.key.read_bytes())
    assert proxy.hup().endswith("certificates")
    assert serial(reach(proxy)) != was
    assert before.get(make_origin().url()).status == 200
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"


def test_a_reload_that_ends_tls_leaves_it_to_connections_before_their_handshake(
        serve, reach, call, dial, make_origin):
    """The number of their context was free: their handshake was reset, or would meet
    what another reload had put there."""
    url, proxy = make_origin().url(), serve(flags=("--workers", "1"))
    before = call(proxy)
    assert reach(proxy).get(url).status == 200          # accepted behind it
    proxy.reload('[[listeners]]\naddress = "127.0.0.1:0"\n')
    assert dial(proxy).get(url).status == 200
    assert TlsSocket(before).tls.version()
    proxy.reload(table(localhost()))
    assert reach(proxy).get(url).status == 200


def test_changed_files_are_read_without_a_signal(serve, reach):
    made, other = (authority().sign("DNS:localhost") for _ in range(2))
    proxy = serve(table(made))
    was = serial(reach(proxy))
    for mine, theirs in zip(made, other, strict=True):
        mine.write_bytes(theirs.read_bytes())
    wait_until(lambda: serial(reach(proxy)) != was, "the new certificate", 30)
    wait_until(lambda: "generation 2: certificates" in proxy.stderr(), "the line")


def test_a_listener_may_begin_and_end_to_speak_tls(serve, reach, call, make_origin):
    port = free_port()
    plain = f'[[listeners]]\naddress = "127.0.0.1:{port}"\n'
    secure = table(localhost()).replace("127.0.0.1:0", f"127.0.0.1:{port}")
    proxy = serve(plain)
    url = make_origin().url()
    with proxy.client() as client:
        assert client.get(url).status == 200
    proxy.reload(secure)
    assert reach(proxy).get(url).status == 200
    proxy.reload(plain)
    with proxy.client() as client:
        assert client.get(url).status == 200


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


# --- sessions


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_by_all_workers_a_reload_and_an_upgrade(
        serve, reach, make_origin, version):
    context = client_context()
    context.maximum_version = version
    proxy = serve(flags=("--workers", "2"))
    url = make_origin().url()

    def visit(session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession]:
        client = reach(proxy, context, session)
        assert client.get(url).status == 200
        found = client.sock.tls.session_reused, client.sock.tls.session
        client.close()
        return found

    reused, session = visit(None)
    assert not reused
    for _ in range(6):                      # both workers, by any likelihood
        reused, session = visit(session)
        assert reused
    proxy.hup()
    reused, session = visit(session)
    assert reused
    successor = successor_of(proxy)
    reused, session = visit(session)
    assert reused
    end(successor)


def test_a_tunnel_over_tls_drains_at_an_upgrade(serve, reach, make_origin):
    """Its keys are in its worker's memory: it does not move, and is not cut."""
    proxy = serve()
    tunnel = reach(proxy).tunnel(make_origin(echo).authority)
    successor = successor_of(proxy)
    tunnel.send(b"still here")
    assert tunnel.read_exact(10) == b"still here"
    tunnel.half_close()
    assert tunnel.at_eof()
    end(successor)


# --- openssl(1) as a client, because Python's ssl cannot do this


def command(proxy: Proxy, *flags: str) -> list[str]:
    return ["openssl", "s_client", "-connect", f"127.0.0.1:{proxy.port}", "-CAfile",
            str(authority().own.certificate), *flags]


def s_client(proxy: Proxy, *flags: str, given: bytes = b"") -> str:
    return subprocess.run(
        command(proxy, *flags), input=given, timeout=60, capture_output=True,
        check=False).stdout.decode(errors="replace")


def test_no_renegotiation_and_no_compression(serve):
    """R47."""
    proxy = serve()
    assert "Compression: NONE" in s_client(proxy, "-tls1_2")
    for flags in ([], ["-legacy_renegotiation"]):
        with subprocess.Popen(
                command(proxy, "-tls1_2", *flags), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
            client.stdin.write(b"R\n")             # and no end: it would leave
            client.stdin.flush()
            assert b":no renegotiation:" in client.stdout.read()        # our alert


def test_no_early_data(serve, tmp_path, make_origin):
    """R47: a request that comes as early data is not answered before the handshake."""
    proxy = serve()
    session, early = tmp_path / "session", tmp_path / "early"
    early.write_bytes(b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n")
    s_client(proxy, "-tls1_3", "-sess_out", str(session), "-ign_eof",
             given=b"GET / HTTP/1.0\r\n\r\n")
    out = s_client(
        proxy, "-tls1_3", "-sess_in", str(session), "-early_data", str(early))
    assert "Early data was accepted" not in out
    assert "Max Early Data: 0" in s_client(
        proxy, "-tls1_3", "-ign_eof", given=b"GET / HTTP/1.0\r\n\r\n")


def test_a_key_update_is_answered(serve):
    """RFC 8446 section 4.6.3: `K` requests one of both sides."""
    proxy = serve()
    out = s_client(proxy, "-tls1_3", "-ign_eof", given=b"K\n" * 3)
    assert "HTTP/1.1 4" in out or "closed" in out
    assert proxy.process.poll() is None
