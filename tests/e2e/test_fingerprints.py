"""The fingerprints of clients of TLS listeners, and of HTTP/2, in log and rules."""

import contextlib
import hashlib
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

from tests.support import inside
from tests.support.certificates import authority, client_context, localhost
from tests.support.client import AUTH, PASSWORD, USER
from tests.support.inside import ALL, HERE, config, enter, okay, over_tls
from tests.support.origin import answer
from tests.support.tls_listener import call as call
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table
from tests.support.wait import wait_until
from tests.wire.twin_hello import (
    SIGNATURES,
    VERSIONS_13,
    Hello,
    build_body,
    build_message,
    build_records,
    named,
    read_hello,
)

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

SHOWN = ("--fingerprints",)
LOCAL = f'[[rules]]\nname = "known"\naction = "allow"\n{HERE}'
OTHER = "t13d9999h2_000000000000_000000000000"
OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Between:
    """A relay in front of a proxy, which keeps what its first client sends."""

    def __init__(self, port: int) -> None:
        self.sent = b""
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._socks = [self._server]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                proxy = socket.create_connection(("127.0.0.1", self._port))
                keeps = len(self._socks) == 1
                self._socks += [client, proxy]
                for args in ((client, proxy, keeps), (proxy, client, False)):
                    thread = threading.Thread(target=self._pass, args=args, daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _pass(self, source: socket.socket, sink: socket.socket, keeps: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if keeps:
                    self.sent += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    @property
    def hello(self) -> Hello:
        """By the twin, which shares no code with the proxy."""
        found = read_hello(self.sent)
        assert isinstance(found, Hello)
        return found

    def close(self) -> None:
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in [*self._threads]:
            thread.join(10)
        for sock in self._socks:
            sock.close()


@pytest.fixture
def between(opened) -> object:
    def make(port: int) -> Between:
        found = Between(port)
        opened.callback(found.close)
        return found
    return make


def curl(port: int, url: str, *words: str) -> list[str]:
    return ["curl", "-sS", "-o", "/dev/null", "--proxy-cacert",
            str(authority().own.certificate), "-x", f"https://localhost:{port}",
            "--proxy-user", f"{USER}:{PASSWORD}", *words, url]


def s_client(port: int, url: str, *words: str) -> list[str]:
    return ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{port}", *words]


def node(port: int, url: str) -> list[str]:
    return ["node", "-e", f"""
        const s = require('tls').connect({{host: '127.0.0.1', port: {port},
            servername: 'localhost', rejectUnauthorized: false}});
        process.stdin.pipe(s); s.resume()"""]


@pytest.mark.parametrize("client", [
    lambda port, url: curl(port, url),
    lambda port, url: curl(
        port, url, "--proxy-tls13-ciphers", "TLS_AES_128_GCM_SHA256"),
    lambda port, url: s_client(port, url),
    lambda port, url: s_client(port, url, "-tls1_2", "-servername", "localhost"),
    lambda port, url: s_client(port, url, "-alpn", "h2,http/1.1"),
    lambda port, url: s_client(port, url, "-groups", "P-521:P-256"),
    lambda port, url: node(port, url)],
    ids=["curl", "curl-cipher", "openssl", "openssl-1.2", "openssl-alpn", "retry",
         "node"])
def test_the_log_has_the_plain_readers_fingerprint_of_real_clients(
        serve, make_origin, between, client) -> None:
    """With P-521 first the server asks for another hello: the first one counts."""
    proxy = serve(flags=SHOWN)
    relay, origin = between(proxy.port), make_origin(answer(OKAY))
    command = client(relay.port, origin.url())
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    request = (f"GET {origin.url()} HTTP/1.1\r\nHost: x\r\n{AUTH}"
               "Connection: close\r\n\r\n")
    subprocess.run(command, input=request.encode(), capture_output=True, timeout=60)
    record = proxy.wait_log(1)[0]
    assert record["client_tls_version"] in ("1.2", "1.3")
    assert (record["client_ja4"], record["client_ja3"]) == (
        relay.hello.ja4, relay.hello.ja3)


def test_a_kept_connection_has_one_fingerprint(serve, reach, make_origin) -> None:
    proxy, url = serve(flags=SHOWN), make_origin(answer(OKAY)).url()
    client = reach(proxy)
    for _ in range(3):
        assert client.get(url).status == 200
    assert len({record["client_ja4"] for record in proxy.wait_log(3)}) == 1


def test_nothing_is_shown_if_nobody_asks(serve, reach, make_origin) -> None:
    proxy = serve()
    assert reach(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    record = proxy.wait_log(1)[0]
    assert not {"client_ja4", "client_ja3", "http2_fingerprint"} & record.keys()


def test_a_plain_listener_has_no_fingerprint(start_policy, make_origin, dial) -> None:
    proxy = start_policy(LOCAL, "fingerprints = true\n")
    assert dial(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    assert "client_ja4" not in proxy.wait_log(1)[0]


def test_a_format_has_the_variants(serve, reach, make_origin) -> None:
    names = ("ja4", "ja3", "ja4_r", "ja4_o", "ja4_ro")
    proxy = serve(flags=("--access-log-format", " ".join(
        f"%ct::client_{name}" for name in names) + " %ct::http2_fingerprint"))
    assert reach(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    wait_until(lambda: len(proxy.lines()) == 1, proxy.lines)
    found = dict(zip(names, proxy.lines()[0].split(), strict=False))
    proxy.log = lambda **wanted: []     # they are no JSON
    assert proxy.lines()[0].endswith(" -")
    a, b, c = found["ja4_r"].split("_", 2)
    assert found["ja4"] == "_".join((a, *(
        hashlib.sha256(part.encode()).hexdigest()[:12] for part in (b, c))))
    a, b, c = found["ja4_ro"].split("_", 2)
    assert found["ja4_o"] == "_".join((a, *(
        hashlib.sha256(part.encode()).hexdigest()[:12] for part in (b, c))))
    assert ",0000," in f",{c}"


def test_a_failed_handshake_has_its_fingerprint(serve) -> None:
    proxy = serve(flags=SHOWN)
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA")           # no forward secrecy
    with socket.create_connection(("127.0.0.1", proxy.port)) as sock, \
            pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname="localhost")
    record = proxy.wait_reason("tls_unshared")
    assert record["client_ja4"].startswith("t12d")


# Rules


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_rule_denies_by_ja4(start_policy, reach, make_origin, method) -> None:
    """Two kinds of client software: only one is in the list."""
    policy = (f'[[rules]]\nname = "old"\naction = "deny"\n'
              f'client_ja4 = ["{OTHER}", "{{}}"]\n{LOCAL}')
    probe = start_policy(LOCAL, "fingerprints = true\n" + table(localhost()))
    origin = make_origin(answer(OKAY))
    old, new = client_context(), client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert reach(probe, old).get(origin.url()).status == 200
    found = probe.wait_log(1)[0]["client_ja4"]
    proxy = start_policy(policy.format(found), 'connect_ports = "any"\n'
                         + table(localhost()))

    def ask(context: ssl.SSLContext) -> int:
        client = reach(proxy, context)
        if method == "GET":
            return client.get(origin.url()).status
        client.send(f"CONNECT 127.0.0.1:{origin.port} HTTP/1.1\r\n"
                    f"Host: 127.0.0.1:{origin.port}\r\n{AUTH}\r\n".encode())
        return client.read_response("CONNECT").status

    assert ask(old) == 403
    record = proxy.wait_reason("destination_denied")
    assert (record["rule"], record["client_ja4"]) == ("old", found)
    assert ask(new) == 200


def test_a_rule_lets_only_one_client_pass(
        start_policy, reach, dial, make_origin) -> None:
    """A client without TLS has no fingerprint, and meets no list."""
    proxy = start_policy(
        LOCAL + 'client_ja4 = ["*_*_000000000000"]\n', table(localhost()))
    url = make_origin(answer(OKAY)).url()
    assert reach(proxy).get(url).status == 403
    assert proxy.wait_reason("destination_denied")["client_ja4"].startswith("t13d")
    other = start_policy(LOCAL + 'client_ja4 = ["*_*_000000000000"]\n')
    assert dial(other).get(url).status == 403


# Inside interceptions


def test_a_request_inside_has_the_inner_clients(
        start_policy, make_origin, dial) -> None:
    """Its CONNECT came by a plain connection, which has none."""
    proxy = start_policy(ALL, config("fingerprints = true\npeek_tunnels = true\n"))
    origin = make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port)
    assert inside.ask(client).status == 200
    connect, inner = proxy.wait_log(2)
    assert "client_ja4" not in connect
    assert inner["client_ja4"] == inner["ja4"] == connect["ja4"]
    assert inner["client_ja3"] == inner["ja3"]


def test_a_connect_is_judged_by_its_own_connection(
        start_policy, make_origin, reach) -> None:
    """The listener's client and the one in its tunnel differ, after a reload too."""
    inner = client_context()
    inner.maximum_version = ssl.TLSVersion.TLSv1_2
    rules = (f'[[rules]]\nname = "outer"\naction = "allow"\n{HERE}'
             'methods = ["CONNECT"]\nclient_ja4 = ["{outer}"]\ntls = "intercept"\n'
             f'[[rules]]\nname = "inner"\naction = "allow"\n{HERE}'
             'client_ja4 = ["{inner}"]\n')
    probe = start_policy(ALL, config("fingerprints = true\n" + table(localhost())))
    origin = make_origin(over_tls(okay))
    assert inside.ask(enter(probe, reach(probe), origin.port, context=inner)
                      ).status == 200
    outer_ja4, inner_ja4 = (one["client_ja4"] for one in probe.wait_log(2))
    assert outer_ja4 != inner_ja4
    proxy = start_policy(rules.format(outer=outer_ja4, inner=inner_ja4),
                         config(table(localhost())))
    client = enter(proxy, reach(proxy), origin.port, context=inner)
    assert inside.ask(client).status == 200
    proxy.hup()
    assert inside.ask(client).status == 200
    assert [one["rule"] for one in proxy.wait_log(3)] == ["outer", "inner", "inner"]


# Filters


PASS = """
    class PassFingerprints:
        async def on_request_head(self, flow):
            for field, name in (("X-Client-JA4", "client_ja4"),
                                ("X-Client-HTTP2", "http2_fingerprint")):
                del flow.request.headers[field]
                if name in flow.fingerprints:
                    flow.request.headers[field] = flow.fingerprints[name]
"""


def test_a_filter_passes_them_on_and_removes_forged_ones(
        start_policy, reach, dial, make_origin) -> None:
    """The example of docs/fingerprints.md, with TLS and without."""
    policy = (LOCAL + 'filters = "pass"\n[filters.pass]\n'
              'code = "passing:PassFingerprints"\n')
    proxy, other = (start_policy(policy, more, modules={"passing": PASS})
                    for more in (table(localhost()), ""))
    origin = make_origin(answer(OKAY))
    forged = ("X-Client-JA4: forged", "x-client-ja4: again", "X-Client-HTTP2: forged")
    assert reach(proxy).get(origin.url(), *forged).status == 200
    by_tls = origin.requests[0]
    assert len(by_tls.all("X-Client-JA4")) == 1
    assert by_tls.get("X-Client-JA4").startswith("t13d")
    assert by_tls.get("X-Client-HTTP2") is None
    assert dial(other).get(origin.url(), *forged).status == 200
    assert not origin.requests[1].all("X-Client-JA4")


def test_a_rules_headers_pass_them_on_in_place_of_forged_ones(
        start_policy, reach, dial, make_origin) -> None:
    policy = ('[headers.prints.request]\nset = { X-Client-JA4 = "{client_ja4}", '
              'X-Client-HTTP2 = "{http2_fingerprint}" }\n'
              + LOCAL + 'headers = "prints"\n')
    proxy, other = (start_policy(policy, more) for more in (table(localhost()), ""))
    origin = make_origin(answer(OKAY))
    forged = ("X-Client-JA4: forged", "x-client-ja4: again", "X-Client-HTTP2: forged")
    assert reach(proxy).get(origin.url(), *forged).status == 200
    (ja4,) = origin.requests[0].all("X-Client-JA4")
    assert ja4.startswith("t13d")
    assert origin.requests[0].all("X-Client-HTTP2") == [""]
    assert dial(other).get(origin.url(), *forged).status == 200
    assert origin.requests[1].all("X-Client-JA4") == [""]


# Hostile hellos


def hello_of(context: ssl.SSLContext) -> bytes:
    """The record that this client would send."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(
            ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


@pytest.mark.parametrize(("record", "piece"), [
    (1 << 14, 1), (1, 1 << 16), (7, 3), (300, 1 << 16)])
def test_a_hello_in_many_records_or_pieces_has_the_same(
        serve, call, record, piece) -> None:
    """Its client leaves behind it: the fingerprint is there as soon as it is whole."""
    proxy, data = serve(flags=SHOWN), hello_of(client_context())
    wanted = read_hello(data)
    message = data[5:]
    sent = build_records(message, *[record] * (len(message) // record))
    sock = call(proxy)
    for at in range(0, len(sent), piece):
        sock.sendall(sent[at:at + piece])
    assert sock.recv(1) == b"\x16"
    sock.close()
    assert proxy.wait_log(1)[0]["client_ja4"] == wanted.ja4


@pytest.mark.parametrize("padding", [17_000, 64_000])
def test_a_large_hello_has_none(serve, call, padding) -> None:
    """Of more than 16 KiB; libssl answers it all the same, or not."""
    proxy = serve(flags=SHOWN)
    message = build_records(build_message(build_body(
        named(b"localhost"), VERSIONS_13, SIGNATURES, (21, bytes(padding)))),
        *[16000] * 4)
    sock = call(proxy)
    sock.sendall(message)
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(4096):
        pass
    assert "client_ja4" not in proxy.wait_log(1)[0]


def test_a_rules_headers_have_the_variants_and_what_was_forged(
        start_policy, reach, make_origin) -> None:
    names = ("client_ja4", "client_ja4_r", "client_ja4_o", "client_ja4_ro",
             "client_ja3")
    fields = ", ".join(f'X-{name} = "{{{name}}}"' for name in names)
    proxy = start_policy(
        f'[headers.prints.request]\nset = {{ {fields}, X-Forged = "{{dropped}}" }}\n'
        + LOCAL + 'headers = "prints"\n',
        "access_log_format = '" + " ".join(f"%ct::{name}" for name in names) + "'\n"
        + table(localhost()))
    origin = make_origin(answer(OKAY))
    assert reach(proxy).get(origin.url(), "x-client_ja3: forged").status == 200
    (request,) = origin.requests
    got = [request.all(f"X-{name}") for name in names]
    assert all(len(values) == 1 and values[0] for values in got)
    wait_until(lambda: proxy.log_path.read_text().split() == [
        values[0] for values in got], "the log has the same")
    assert request.all("X-Forged") == ["x-client_ja3"]
