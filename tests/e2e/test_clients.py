"""The clients that people use, as they come: plain and TLS, through the proxy."""

import asyncio
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.certificates import authority, localhost
from tests.support.client import PASSWORD, USER
from tests.support.node import NODE
from tests.support.programs import build_go

pytestmark = pytest.mark.any_loop

PAGE = b"<!doctype html><title>origin</title>\n"


def environment(proxy, nginx, home: Path, **more: str) -> dict[str, str]:
    """The variables of a shell with a proxy configured, and nothing of this shell's."""
    ca = str(nginx.ca)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "http_proxy": proxy.url,
        "https_proxy": proxy.url,
        "HTTP_PROXY": proxy.url,
        "HTTPS_PROXY": proxy.url,
        "no_proxy": "",
        "SSL_CERT_FILE": ca,
        "CURL_CA_BUNDLE": ca,
        "GIT_SSL_CAINFO": ca,
        "GIT_CONFIG_NOSYSTEM": "1",
        "NODE_EXTRA_CA_CERTS": ca,
        **more,
    }


@pytest.fixture
def run(proxy, nginx, tmp_path):
    """Runs a client; returns its standard output. Skips if it is not installed."""

    def start(*command: str, **more: str) -> bytes:
        if not shutil.which(command[0]):
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(
            command,
            env=environment(proxy, nginx, tmp_path, **more),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    return start


@pytest.fixture(params=["http", "https"])
def base(request, nginx):
    return nginx.url("") if request.param == "http" else nginx.tls_url("")


def test_curl(run, proxy, base):
    assert run("curl", "-sS", "--fail", base + "/index.html") == PAGE
    record = proxy.wait_reason("ok")
    assert record["method"] == ("CONNECT" if base.startswith("https") else "GET")
    assert record["user"] == USER


def test_curl_reuses_its_connection(run, proxy, nginx):
    urls = [nginx.url(path) for path in ("/index.html", "/1k", "/empty", "/index.html")]
    out = run(
        "curl", "-sS", "--fail", "-w", "%{num_connects}\n", "-o", "/dev/null", *urls
    )
    assert len(proxy.wait_log(4)) == 4
    assert out.split().count(b"1") <= 2


def test_curl_learns_what_to_send_from_the_407(run, proxy, nginx):
    """--proxy-anyauth: the first request has no credentials."""
    run("curl", "-sS", "--fail", "--proxy-anyauth", nginx.url("/index.html"))
    assert {record["status"] for record in proxy.wait_log(2)} == {407, 200}


def test_curl_uploads(run, nginx, base):
    name = "curl-" + base.partition(":")[0]
    run("curl", "-sS", "--fail", "-T", str(nginx.root / "128k"), f"{base}/store/{name}")
    assert nginx.stored(name) == nginx.payload("128k")


def test_curl_uploads_chunked_and_expects_100(run, nginx):
    source = str(nginx.root / "1m")
    fields = ("-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue")
    run(
        "curl", "-sS", "--fail", "-T", source, *fields, nginx.url("/store/curl-chunked")
    )
    assert nginx.stored("curl-chunked") == nginx.payload("1m")


def test_curl_asks_for_a_range(run, nginx):
    got = run("curl", "-sS", "--fail", "-r", "100-199", nginx.url("/16k"))
    assert got == nginx.payload("16k")[100:200]


def test_wget(run, nginx, base):
    command = ["wget", "-q", "-O", "-", f"--ca-certificate={nginx.ca}"]
    assert run(*command, base + "/index.html") == PAGE
    assert run(*command, base + "/128k") == nginx.payload("128k")


def test_git_clones(run, nginx, base, tmp_path, repository):
    run("git", "clone", "-q", base + "/repo.git", "clone")
    assert (tmp_path / "clone" / "file").read_bytes() == repository


URLLIB = """
import sys, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=20).read())
"""


def test_urllib(run, nginx, base):
    assert run(sys.executable, "-c", URLLIB, base + "/128k") == nginx.payload("128k")


def test_node(run, proxy, nginx, base):
    status, digest = run("node", "-e", NODE, base + "/1m", proxy.url).decode().split()
    assert (status, digest) == ("200", hashlib.sha256(nginx.payload("1m")).hexdigest())


GO = """
package main

import (
	"crypto/sha256"; "crypto/tls"; "crypto/x509"; "fmt"; "io"
	"net/http"; "net/url"; "os"
)

func main() {
	pem, _ := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	proxy, _ := url.Parse(os.Args[1])
	client := http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for _, target := range os.Args[2:] {
		reply, err := client.Get(target)
		if err != nil { fmt.Println(err); os.Exit(1) }
		hash := sha256.New()
		io.Copy(hash, reply.Body)
		reply.Body.Close()
		fmt.Printf("%d %x\\n", reply.StatusCode, hash.Sum(nil))
	}
}
"""


@pytest.fixture(scope="session")
def go_client(tmp_path_factory):
    return build_go(GO, tmp_path_factory.mktemp("go"))


def test_go(run, proxy, nginx, go_client):
    out = run(
        go_client, proxy.url, nginx.url("/1m"), nginx.url("/128k"), nginx.tls_url("/1m")
    )
    expected = [
        f"200 {hashlib.sha256(nginx.payload(n)).hexdigest()}"
        for n in ("1m", "128k", "1m")
    ]
    assert out.decode().splitlines() == expected


def test_go_by_socks_and_tls(run, start_proxy, nginx, go_client, tmp_path):
    made, port = localhost(), '[[listeners]]\naddress = "127.0.0.1:0"\n'
    proxy = start_proxy(
        config=f'{port}protocols = ["socks5"]\n{port}'
        f'certificates = ["{made.certificate}"]\ncertificate_keys = ["{made.key}"]\n')
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(
        nginx.ca.read_bytes() + authority().own.certificate.read_bytes())
    user = f"{USER}:{quote(PASSWORD)}"
    for way in (f"socks5://{user}@127.0.0.1:{proxy.ports[0]}",
                f"https://{user}@localhost:{proxy.ports[1]}"):
        out = run(go_client, way, nginx.url("/1m"), nginx.tls_url("/1m"),
                  SSL_CERT_FILE=str(bundle))
        digest = hashlib.sha256(nginx.payload("1m")).hexdigest()
        assert out.decode().splitlines() == [f"200 {digest}"] * 2
    assert {record["user"] for record in proxy.wait_log(4, reason="ok")} == {USER}


def test_requests(proxy, nginx, base):
    import requests

    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(nginx.ca)
        session.proxies = {"http": proxy.url, "https": proxy.url}
        assert session.get(base + "/128k", timeout=20).content == nginx.payload("128k")
        name = "requests-" + base.partition(":")[0]
        pieces = iter([nginx.payload("16k"), nginx.payload("1k")])
        put = session.put(f"{base}/store/{name}", data=pieces, timeout=20)
        assert put.status_code in (201, 204)
        assert nginx.stored(name) == nginx.payload("16k") + nginx.payload("1k")
        assert session.head(base + "/1m", timeout=20).headers["Content-Length"] == str(
            1 << 20
        )


def test_httpx(proxy, nginx, base):
    import httpx

    context = ssl.create_default_context(cafile=str(nginx.ca))
    with httpx.Client(
        proxy=proxy.url, verify=context, trust_env=False, timeout=20
    ) as client:
        for name in ("128k", "1k", "1m"):
            assert client.get(f"{base}/{name}").content == nginx.payload(name)


def test_httpx_says_that_the_proxy_refused(proxy, nginx, base):
    import httpx

    wrong = f"http://{USER}:not-it@127.0.0.1:{proxy.port}"
    context = ssl.create_default_context(cafile=str(nginx.ca))
    with httpx.Client(
        proxy=wrong, verify=context, trust_env=False, timeout=20
    ) as client:
        if base.startswith("https"):
            with pytest.raises(httpx.ProxyError, match="407"):
                client.get(base + "/1k")
        else:
            assert client.get(base + "/1k").status_code == 407


def test_aiohttp(proxy, nginx, base):
    import aiohttp

    context = ssl.create_default_context(cafile=str(nginx.ca))
    through = {"proxy": proxy.url, "ssl": context}

    async def fetch() -> list[bytes]:
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def one(name: str) -> bytes:
                async with session.get(f"{base}/{name}", **through) as reply:
                    assert reply.status == 200
                    return await reply.read()

            names = ["128k", "1k", "16k", "1m"] * 3
            return await asyncio.gather(*map(one, names))

    assert asyncio.run(fetch()) == [
        nginx.payload(name) for name in ["128k", "1k", "16k", "1m"] * 3
    ]


def test_tls_in_the_tunnel_ends_with_its_own_close(proxy, nginx, dial):
    """close_notify passes as any other byte: the TLS of both ends sees a clean end."""
    client = dial()
    client.tunnel(f"localhost:{nginx.tls_port}")
    context = ssl.create_default_context(cafile=str(nginx.ca))
    with context.wrap_socket(client.sock, server_hostname="localhost") as secure:
        secure.sendall(
            b"GET /1m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        got = bytearray()
        while data := secure.recv(65536):
            got += data
    assert got.endswith(nginx.payload("1m"))
