"""The clients that people use, as they come: by SOCKS, by TLS, and for ssh and DNS."""

import asyncio
import contextlib
import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import threading
from urllib.parse import quote

import pytest

from tests.support import sshd
from tests.support.certificates import authority, client_context
from tests.support.client import PASSWORD, USER
from tests.support.client_ways import (
    BALANCED,
    CERTIFICATE,
    KNOWN,
    OPEN,
    TLS,
    configuration,
)
from tests.support.dns import NameServer
from tests.support.node import NODE
from tests.support.proxy import Proxy, clean_environment
from tests.support.socks import ASSOCIATE, GRANTED, NONE, SocksClient, command, datagram

pytestmark = pytest.mark.any_loop

SECRET = quote(PASSWORD)


@pytest.fixture(scope="module")
def ways(loop_name, directory):
    """A proxy with a listener for each way."""
    with Proxy(directory("ways"), loop=loop_name, config=configuration()) as proxy:
        yield proxy


@pytest.fixture
def proxy(ways):
    ways.mark()
    return ways


@pytest.fixture(scope="session")
def bundle(nginx, directory):
    """The authorities of origin and proxy."""
    path = directory("bundle") / "ca.pem"
    path.write_bytes(nginx.ca.read_bytes() + authority().own.certificate.read_bytes())
    return str(path)


@pytest.fixture
def run(tmp_path, bundle):
    """Runs a client; returns its output."""
    def start(*words: str, sent: bytes = b"", **more: str) -> bytes:
        done = subprocess.run(
            words, input=sent, cwd=tmp_path, capture_output=True, timeout=60,
            env=clean_environment(HOME=str(tmp_path), SSL_CERT_FILE=bundle,
                                  NODE_EXTRA_CA_CERTS=bundle,
                                  GIT_CONFIG_NOSYSTEM="1", **more))
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout
    return start


@pytest.fixture(params=["http", "https"])
def base(request, nginx):
    return nginx.url("") if request.param == "http" else nginx.tls_url("")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Python


@pytest.mark.parametrize(("scheme", "listener", "method"), [
    ("socks5", KNOWN, "SOCKS5"), ("socks5", OPEN, "SOCKS5"), ("socks4", OPEN, "SOCKS4"),
    ("http", KNOWN, "CONNECT")])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_python_socks(proxy, nginx, scheme, listener, method, host):
    from python_socks.async_.asyncio import Proxy as AsyncWay
    from python_socks.sync import Proxy as Way

    user = f"{USER}:{SECRET}@" if listener == KNOWN else ""
    url = f"{scheme}://{user}127.0.0.1:{proxy.ports[listener]}"
    request = f"GET /16k HTTP/1.0\r\nHost: {host}\r\n\r\n".encode()
    with Way.from_url(url, rdns=True).connect(host, nginx.port, timeout=20) as sock:
        sock.sendall(request)
        with sock.makefile("rb") as file:
            assert file.read().endswith(nginx.payload("16k"))

    async def fetch() -> bytes:
        way = AsyncWay.from_url(url, rdns=True)
        sock = await way.connect(host, nginx.port, timeout=20)
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(request)
        found = await reader.read()
        writer.close()
        await writer.wait_closed()
        return found
    assert asyncio.run(fetch()).endswith(nginx.payload("16k"))
    for record in proxy.wait_log(2):
        assert (record["method"], record["host"]) == (method, host)
        assert record["user"] == (USER if user else None)


def test_python_socks_names_a_refusal(proxy):
    from python_socks import ProxyError
    from python_socks.sync import Proxy as Way

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        closed = sock.getsockname()[1]
        way = Way.from_url(f"socks5://127.0.0.1:{proxy.ports[OPEN]}")
        with pytest.raises(ProxyError, match="refused") as caught:
            way.connect("127.0.0.1", closed, timeout=20)
        assert caught.value.error_code == 5
    way = Way.from_url(f"socks5://{USER}:guess@127.0.0.1:{proxy.ports[KNOWN]}")
    with pytest.raises(ProxyError, match="authentication failure"):
        way.connect("127.0.0.1", closed, timeout=20)
    assert [one["reason"] for one in proxy.wait_log(2)] == [
        "connection_refused", "auth_failed"]


@pytest.mark.parametrize("scheme", ["socks5", "https"])
def test_httpx(proxy, nginx, base, bundle, scheme):
    import httpx

    port = proxy.ports[TLS if scheme == "https" else KNOWN]
    way = httpx.Proxy(f"{scheme}://{USER}:{SECRET}@localhost:{port}",
                      ssl_context=client_context() if scheme == "https" else None)
    context = client_context()
    context.load_verify_locations(bundle)
    with httpx.Client(proxy=way, verify=context, trust_env=False, timeout=20) as client:
        for name in ("128k", "1k", "1m"):
            assert client.get(f"{base}/{name}").content == nginx.payload(name)
    assert {record["user"] for record in proxy.wait_log(1)} == {USER}


def test_aiohttp_by_tls(proxy, nginx, base, bundle):
    import aiohttp

    context = client_context()
    context.load_verify_locations(bundle)
    way = f"https://{USER}:{SECRET}@localhost:{proxy.ports[TLS]}"

    async def fetch() -> list[bytes]:
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            async def one(name: str) -> bytes:
                async with session.get(f"{base}/{name}", proxy=way, ssl=context
                                       ) as reply:
                    return await reply.read()
            return await asyncio.gather(*map(one, ("1k", "1m", "128k")))
    assert asyncio.run(fetch()) == [*map(nginx.payload, ("1k", "1m", "128k"))]


# curl


@pytest.mark.parametrize("flag", ["--socks5-hostname", "--socks5", "--socks4a",
                                  "--socks4", "-x"])
def test_curl(run, proxy, nginx, base, bundle, flag):
    """Also both directions in bulk, and TLS to the origin within."""
    by_name = flag in ("-x", "--socks5-hostname", "--socks4a")
    base = base if by_name else base.replace("localhost", "127.0.0.1")
    way = {"-x": f"https://localhost:{proxy.ports[CERTIFICATE]}",
           "--socks5-hostname": f"{USER}:{SECRET}@127.0.0.1:{proxy.ports[KNOWN]}",
           }.get(flag, f"127.0.0.1:{proxy.ports[OPEN]}")
    own = authority().sign(subject="/CN=carl")
    name = f"{flag.strip('-')}-{base.partition(':')[0]}"
    run("curl", "-sS", "--fail", flag, way, "--cacert", bundle,
        "--proxy-cacert", bundle, "--proxy-cert", str(own.certificate),
        "--proxy-key", str(own.key), "-T", str(nginx.root / "1m"),
        f"{base}/store/{name}", "--next", "-sS", "--fail", flag, way,
        "--cacert", bundle, "--proxy-cacert", bundle,
        "--proxy-cert", str(own.certificate), "--proxy-key", str(own.key),
        "-o", "got", f"{base}/1m")
    assert nginx.stored(name) == nginx.payload("1m")
    users = {"-x": "carl", "--socks5-hostname": USER}
    assert {one["user"] for one in proxy.wait_log(1)} == {users.get(flag)}


def test_curl_by_socks_to_another_proxy(run, proxy, shared_proxy, nginx, base, bundle):
    """--preproxy: SOCKS to the first proxy, and HTTP within it to the second."""
    shared_proxy.mark()
    got = run("curl", "-sS", "--fail", "--cacert", bundle, "--preproxy",
              f"socks5h://{USER}:{SECRET}@127.0.0.1:{proxy.ports[KNOWN]}",
              "-x", shared_proxy.url, base + "/1m")
    assert got == nginx.payload("1m")
    (first,), (second,) = proxy.wait_log(1), shared_proxy.wait_log(1)
    assert (first["method"], first["port"]) == ("SOCKS5", shared_proxy.port)
    assert second["method"] == ("CONNECT" if base.startswith("https") else "GET")


def test_curl_names_itself_by_a_proxy_header(run, proxy, nginx):
    got = run("curl", "-sS", "--fail", "--haproxy-protocol", "--interface", "127.0.0.1",
              "-x", f"http://{USER}:{SECRET}@127.0.0.1:{proxy.ports[BALANCED]}",
              nginx.url("/16k"))
    assert got == nginx.payload("16k")
    (record,) = proxy.wait_log(1)
    assert record["client"] == record["proxied_by"] == "127.0.0.1"


# Node, Java


def test_node_by_tls(run, proxy, nginx, base):
    """The client of test_clients, with TLS below each request to the proxy."""
    if not shutil.which("node"):    # 100 MB: no script installs it
        pytest.skip("node is not installed")
    text = NODE.replace("http.get({...via", "https.get({...via").replace(
        "http.request({...via", "https.request({...via")
    way = f"https://{USER}:{SECRET}@localhost:{proxy.ports[TLS]}"
    status, found = run("node", "-e", text, base + "/1m", way).decode().split()
    assert (status, found) == ("200", digest_of(nginx.payload("1m")))


JAVA = """
import java.io.FileInputStream;
import java.math.BigInteger;
import java.net.*;
import java.security.*;
import java.security.cert.*;
import javax.net.ssl.*;

public class Fetch {
    public static void main(String[] given) throws Exception {
        Authenticator.setDefault(new Authenticator() {
            protected PasswordAuthentication getPasswordAuthentication() {
                return new PasswordAuthentication(given[3], given[4].toCharArray());
            }
        });
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509")
            .generateCertificate(new FileInputStream(given[5])));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(
            TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        HttpsURLConnection.setDefaultSSLSocketFactory(context.getSocketFactory());
        Proxy way = new Proxy(Proxy.Type.valueOf(given[0]),
            new InetSocketAddress(given[1], Integer.parseInt(given[2])));
        for (int i = 6; i < given.length; i++) {
            HttpURLConnection it = (HttpURLConnection) new URL(given[i])
                .openConnection(way);
            byte[] body = it.getInputStream().readAllBytes();
            MessageDigest hash = MessageDigest.getInstance("SHA-256");
            System.out.printf("%d %064x%n", it.getResponseCode(),
                new BigInteger(1, hash.digest(body)));
        }
    }
}
"""


@pytest.mark.parametrize(("kind", "listener"), [
    ("SOCKS", KNOWN), ("SOCKS", OPEN), ("HTTP", KNOWN)])
def test_java(run, proxy, nginx, tmp_path, kind, listener):
    if not shutil.which("javac"):       # 400 MB: no script installs it
        pytest.skip("no JDK is installed")
    (tmp_path / "Fetch.java").write_text(JAVA)
    out = run("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1",
              "-Djdk.http.auth.tunneling.disabledSchemes=", "Fetch.java", kind,
              "127.0.0.1", str(proxy.ports[listener]), USER, PASSWORD, str(nginx.ca),
              nginx.url("/128k"), nginx.tls_url("/1m"))
    assert out.decode().splitlines() == [
        f"200 {digest_of(nginx.payload(name))}" for name in ("128k", "1m")]
    users = {record["user"] for record in proxy.wait_log(2, reason="ok")}
    assert users == {USER if listener == KNOWN else None}


# ssh and git


@pytest.fixture(scope="module")
def server(directory):
    with contextlib.closing(sshd.Sshd(directory("sshd"))) as running:
        yield running


WAYS_OF_SSH = {
    "nc -X 5": ("nc -X 5 -x 127.0.0.1:{open} %h %p", "SOCKS5"),
    "nc -X connect": ("nc -X connect -x 127.0.0.1:{open} %h %p", "CONNECT"),
    "socat": ("socat - PROXY:127.0.0.1:%h:%p,proxyport={known},proxyauth={user}",
              "CONNECT"),
    "socat by SOCKS": ("socat - SOCKS4A:127.0.0.1:%h:%p,socksport={open}", "SOCKS4")}


@pytest.fixture(params=WAYS_OF_SSH)
def ssh(request, proxy, server):
    """The command, and the method in the log."""
    way, method = WAYS_OF_SSH[request.param]
    # A backslash: a colon separates socat's parameters
    user = f"{USER}:{PASSWORD}".replace(":", "\\:")
    return server.command(way.format(
        open=proxy.ports[OPEN], known=proxy.ports[KNOWN], user=user)), method


def test_ssh(run, proxy, ssh):
    command, method = ssh
    data = os.urandom(1 << 20)
    assert run(*command, f"{sshd.USER}@localhost", "cat", sent=data) == data
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["reason"]) == (method, "ok")


def test_git_over_ssh(run, ssh, server, nginx, repository, tmp_path):
    command, _ = ssh
    run("git", "clone", "-q",
        f"ssh://{sshd.USER}@localhost:{server.port}{nginx.root}/repo.git", "clone",
        GIT_SSH_COMMAND=shlex.join(command))
    assert (tmp_path / "clone" / "file").read_bytes() == repository


# Programs that know no proxy


@pytest.fixture
def chained(proxy, tmp_path):
    """The words before a command, for proxychains by this kind of proxy."""
    def chain(kind: str, listener: int) -> list[str]:
        user = f" {USER} {PASSWORD}" if listener == KNOWN else ""
        path = tmp_path / "chains.conf"
        path.write_text("strict_chain\nproxy_dns\n[ProxyList]\n"
                        f"{kind} 127.0.0.1 {proxy.ports[listener]}{user}\n")
        return ["proxychains4", "-q", "-f", str(path)]
    return chain


@pytest.mark.parametrize(("kind", "listener", "method"), [
    ("socks5", KNOWN, "SOCKS5"), ("socks4", OPEN, "SOCKS4"), ("http", KNOWN, "CONNECT")
    ])
def test_proxychains(run, proxy, nginx, chained, kind, listener, method):
    host = "127.0.0.1" if kind == "socks4" else "localhost"
    got = run(*chained(kind, listener), "curl", "-sS", "--fail",
              f"http://{host}:{nginx.port}/1m")
    assert got == nginx.payload("1m")
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["reason"]) == (method, "ok")


def test_dig_over_tcp(run, proxy, chained):
    with NameServer({"a.test": "192.0.2.7"}) as names:
        got = run(*chained("socks5", KNOWN), "dig", "+short", "+tcp", "+tries=1",
                  f"@{names.address}", "a.test")
        assert (got, names.asked_over_tcp) == (b"192.0.2.7\n", ["a.test"])
    assert proxy.wait_log(1)[0]["port"] == 53


class Relay(threading.Thread):
    """Sends a program's datagrams to one destination, through an association."""

    def __init__(self, port: int, destination: str) -> None:
        super().__init__(daemon=True)
        self.client = SocksClient(port)
        assert self.client.method(NONE) == NONE
        self.client.send(command("0.0.0.0:0", ASSOCIATE))
        code, *self.proxy = self.client.read_reply()
        assert code == GRANTED
        self.head = datagram(destination, b"")
        self.near, self.far = (socket.socket(type=socket.SOCK_DGRAM) for _ in "ab")
        for sock in self.near, self.far:
            sock.bind(("127.0.0.1", 0))
            sock.settimeout(20)
        self.port = self.near.getsockname()[1]
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            data, program = self.near.recvfrom(65536)
            self.far.sendto(self.head + data, tuple(self.proxy))
            self.near.sendto(self.far.recv(65536)[len(self.head):], program)

    def close(self) -> None:
        self.join()
        for one in self.near, self.far, self.client:
            one.close()


def test_dig_over_udp(run, proxy):
    with NameServer({"a.test": "192.0.2.7"}) as names, contextlib.closing(
            Relay(proxy.ports[OPEN], f"{names.address}:53")) as relay:
        got = run("dig", "+short", "+tries=1", "@127.0.0.1", "-p", str(relay.port),
                  "a.test")
        assert (got, names.asked) == (b"192.0.2.7\n", ["a.test"])
        assert not names.asked_over_tcp
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["reason"]) == ("UDP", "ok")
