#!/usr/bin/env python3
"""Forwards a request by each way through the installed cutthrough; of check_wheel.py.

Needs the package alone: origins and clients are of the standard library. Origins over
TLS have a certificate of an authority that only the system trusts, so the libssl of the
wheel has to find the system's authorities. With --hosts the libraries are the host's:
there is no other OpenSSL to look at. With --emulated the time of the first request is
not judged.
"""

import asyncio
import contextlib
import ctypes
import http.server
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

# A tenth of a processor's speed or less says nothing
MOST_FIRST_S = 3600 if "--emulated" in sys.argv else 10
BODY = b"cut through"
USER, PASSWORD = b"ann", b"of-the-wheel-check"
BASIC = b"Basic " + b64encode(USER + b":" + PASSWORD)
HOST = "127.0.0.1"
PLAIN, SECURE = 3128, 3129              # the network is ours alone
CUTTHROUGH = str(Path(sys.executable).with_name("cutthrough"))
SYSTEM = Path("/etc/ssl/certs/ca-certificates.crt")
OPTIONS = """\
user = "ann"
password_file = "password"
policy = "policy.toml"
intercept_ca = "proxy"
workers = 1
access_log = "off"

[[listeners]]
address = "127.0.0.1:3128"
protocols = ["http", "socks5"]

[[listeners]]
address = "127.0.0.1:3129"
certificates = ["listener.pem"]
certificate_keys = ["listener.key"]
protocols = ["http", "http2"]
"""
POLICY = """\
[[rules]]
name = "opened"
action = "allow"
addresses = ["127.0.0.0/8"]
ports = [%d]
tls = "intercept"

[[rules]]
name = "here"
action = "allow"
addresses = ["127.0.0.0/8"]
"""


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1                       # head and body by one write

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args: object) -> None:
        pass


def start_origin(context: ssl.SSLContext | None = None) -> int:
    """Returns its port."""
    server = http.server.ThreadingHTTPServer((HOST, 0), Origin)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def run(*argv: str) -> None:
    subprocess.run([CUTTHROUGH, *argv], check=True, stdout=subprocess.DEVNULL)


def make_files() -> None:
    """In the working directory: two authorities, and a certificate of each."""
    run("ca", "init", "--dir", "origins")
    run("ca", "issue", "--dir", "origins", "--output", "origin", HOST)
    run("ca", "init", "--dir", "proxy")
    run("ca", "issue", "--dir", "proxy", "--output", "listener", HOST)
    Path("password").write_bytes(PASSWORD)
    Path("cutthrough.toml").write_text(OPTIONS)


@contextlib.contextmanager
def trusted_by_system(authority: Path) -> Iterator[None]:
    before = SYSTEM.read_bytes()
    SYSTEM.write_bytes(before + authority.read_bytes())
    try:
        yield
    finally:
        SYSTEM.write_bytes(before)


# --- clients


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=20)


def trusting(authority: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=f"{authority}/ca.pem")


def over_tls(sock: socket.socket, alpn: str = "http/1.1") -> ssl.SSLSocket:
    context = trusting("proxy")
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(sock, server_hostname=HOST)


def read_exactly(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = sock.recv(count - len(got))
        assert part, f"the connection ended after {got!r}"
        got += part
    return got


def read_until(sock: socket.socket, mark: bytes) -> bytes:
    got = b""
    while not got.endswith(mark):
        got += read_exactly(sock, 1)
    return got


def get(sock: socket.socket, target: str, port: int, *fields: bytes) -> None:
    head = [f"GET {target} HTTP/1.1\r\nHost: {HOST}:{port}".encode(), *fields]
    sock.sendall(b"\r\n".join(head) + b"\r\n\r\n")
    assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert read_exactly(sock, len(BODY)) == BODY


def by_http(sock: socket.socket, port: int) -> None:
    get(sock, f"http://{HOST}:{port}/", port, b"Proxy-Authorization: " + BASIC)


def tunnel(sock: socket.socket, port: int) -> None:
    sock.sendall(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n".encode()
                 + b"Proxy-Authorization: " + BASIC + b"\r\n\r\n")
    assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def by_connect(sock: socket.socket, port: int) -> None:
    tunnel(sock, port)
    get(sock, "/", port)


def by_socks(sock: socket.socket, port: int) -> None:
    """RFC 1928, with RFC 1929."""
    sock.sendall(b"\x05\x01\x02")
    assert read_exactly(sock, 2) == b"\x05\x02"
    sock.sendall(b"\x01" + bytes([len(USER)]) + USER
                 + bytes([len(PASSWORD)]) + PASSWORD)
    assert read_exactly(sock, 2) == b"\x01\x00"
    sock.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(HOST) + struct.pack("!H", port))
    assert read_exactly(sock, 10)[:2] == b"\x05\x00"
    get(sock, "/", port)


def intercepted(sock: socket.socket, port: int) -> None:
    tunnel(sock, port)
    inside = over_tls(sock)             # only the proxy's authority is trusted
    get(inside, "/", port)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """RFC 9113 section 4.1."""
    return (struct.pack("!I", len(payload))[1:] + bytes([kind, flags])
            + struct.pack("!I", stream) + payload)


def field(name: bytes, value: bytes) -> bytes:
    """A literal without indexing (RFC 7541 section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def by_http2(sock: ssl.SSLSocket, port: int) -> None:
    assert sock.selected_alpn_protocol() == "h2"
    head = b"".join((
        field(b":method", b"GET"), field(b":scheme", b"http"), field(b":path", b"/"),
        field(b":authority", f"{HOST}:{port}".encode()),
        field(b"proxy-authorization", BASIC)))
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
                 + frame(1, 0x05, 1, head))
    body, ended = b"", False
    while not ended:
        head = b"\0" + read_exactly(sock, 9)
        size, kind, flags, stream = struct.unpack("!IBBI", head)
        payload = read_exactly(sock, size)
        assert kind not in (3, 7), f"frame {kind}: {payload!r}"
        if kind == 4 and not flags:
            sock.sendall(frame(4, 1, 0, b""))
        if stream == 1:
            body += payload if kind == 0 else b""
            ended = bool(flags & 1)
    assert body == BODY


# --- the installed program


@contextlib.contextmanager
def served(origin: int) -> Iterator[int]:
    """Yields the process id of `cutthrough serve` when it has answered a request."""
    started = time.monotonic()
    process = subprocess.Popen([CUTTHROUGH, "serve", "-c", "cutthrough.toml"],
                               stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        for line in process.stderr:
            print(line, end="")
            if " listening on " in line:
                break
        with connect(PLAIN) as sock:
            by_http(sock, origin)
        took = time.monotonic() - started
        print(f"first request: {took:.2f} s after the start")
        assert took <= MOST_FIRST_S
        yield process.pid
        process.terminate()
        assert process.wait(30) == 0, "a drain ends with 0"
    finally:
        process.kill()
        process.wait()


def libraries(pid: int | str) -> list[str]:
    """Those of TLS and HTTP/2 in a process's memory."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return sorted(set(re.findall(r"/\S*/lib(?:ssl|crypto|nghttp2)\S*", maps)))


def check_ways(plain: int, secure: int) -> None:
    def timed(way: str, do: Callable[[], None]) -> None:
        started = time.monotonic()
        do()
        print(f"{way}: {1000 * (time.monotonic() - started):.1f} ms")

    def call(do: Callable[..., None], port: int, origin: int,
             wrap: Callable[[socket.socket], socket.socket] = lambda sock: sock
             ) -> Callable[[], None]:
        def way() -> None:
            with connect(port) as sock:
                do(wrap(sock), origin)
        return way

    timed("HTTP", call(by_http, PLAIN, plain))
    timed("CONNECT", call(by_connect, PLAIN, plain))
    timed("SOCKS 5", call(by_socks, PLAIN, plain))
    timed("TLS listener", call(by_http, SECURE, plain, over_tls))
    timed("HTTP/2 over TLS",
          call(by_http2, SECURE, plain, lambda sock: over_tls(sock, "h2")))
    timed("interception", call(intercepted, PLAIN, secure))


def check_together(origin: int) -> None:
    """Both libraries of one process shake hands with each other, in its one loop."""
    import cutthrough
    from cutthrough.net.tls.certificates import version

    async def ask() -> None:
        listener = {"address": f"{HOST}:0", "certificates": ["listener.pem"],
                    "certificate_keys": ["listener.key"]}
        async with cutthrough.serve(listeners=[listener], user=USER.decode(),
                                    password=PASSWORD.decode(),
                                    policy="policy.toml",
                                    intercept_ca="proxy") as proxy:
            reader, writer = await asyncio.open_connection(
                HOST, proxy.port, ssl=trusting("proxy"))
            writer.write(f"GET http://{HOST}:{origin}/ HTTP/1.1\r\n"
                         f"Host: {HOST}:{origin}\r\n".encode()
                         + b"Proxy-Authorization: " + BASIC + b"\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            assert await reader.readexactly(len(BODY)) == BODY
            writer.close()
            await writer.wait_closed()

    asyncio.run(ask())
    ours = version()
    loaded = libraries("self")
    print(f"one process: {ssl.OPENSSL_VERSION} of Python, {ours} of cutthrough")
    for path in loaded:
        print(f"    {path}")
    [systems] = [path for path in loaded if "/libcrypto" in path]
    library = ctypes.CDLL(systems)
    library.OpenSSL_version.restype = ctypes.c_char_p
    assert library.OpenSSL_version(0).decode() == ssl.OPENSSL_VERSION != ours


def main() -> None:
    if sys.argv[1:2] == ["--together"]:
        check_together(int(sys.argv[2]))
        return
    plain = start_origin()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_files()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("origin.pem", "origin.key")
        secure = start_origin(context)
        Path("policy.toml").write_text(POLICY % secure)
        with trusted_by_system(Path("origins/ca.pem")), served(plain) as pid:
            check_ways(plain, secure)
            [worker] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[:1]
            print(*libraries(worker), sep="\n")
        if "--hosts" in sys.argv:
            return
        # Then with the system's OpenSSL before all else in the search for symbols
        systems = libraries("self")
        for preload in ("", ":".join(systems)):
            subprocess.run(
                [sys.executable, __file__, "--together", str(plain)], check=True,
                env={**os.environ, "LD_PRELOAD": preload})
        os.chdir("/")


if __name__ == "__main__":
    main()
