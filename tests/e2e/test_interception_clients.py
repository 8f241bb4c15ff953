"""The clients that people use, in tunnels that are opened: each trusts the proxy's
authority alone, by the variable that it has for that (docs/interception.md).

The origins' own authorities are known to the proxy only, so a client that gets an
answer has been intercepted. The lines in the log show it too.
"""

import contextlib
import hashlib
import os
import queue
import subprocess
import sys

import pytest
from websockets.sync.client import connect

from tests.support import registries
from tests.support.bulk import FLAT, Watch
from tests.support.certificates import authority, client_context
from tests.support.client import USER
from tests.support.inside import (
    ALL,
    NAMES,
    certificate,
    config,
    okay,
    origins,
    over_tls,
)
from tests.support.intercepting import CLIENTS, SERVERS, routed
from tests.support.origin import Connection, Origin, send_events
from tests.support.programs import NODE_PACKAGES, NODE_WEBSOCKET, need, run_behind
from tests.support.proxy import Proxy
from tests.support.site import Site
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

BOTH = ("1.1", "2")
#: The version of HTTP that each has
KINDS = [*((name, version) for name in ("curl", "httpx", "node", "go", "java")
           for version in BOTH),
         *((name, "1.1") for name in ("wget", "urllib", "requests", "aiohttp"))]


@pytest.fixture(scope="module")
def opening(loop_name, directory, nginx):
    """A proxy that opens all tunnels, and knows the origins' authorities."""
    folder = directory("opening")
    known, policy = folder / "origins.pem", folder / "policy.toml"
    known.write_bytes(nginx.ca.read_bytes() + origins().own.certificate.read_bytes())
    policy.write_text(ALL)
    text = config().replace(str(origins().own.certificate), str(known))
    with Proxy(folder, loop=loop_name, config=f'policy = "{policy}"\n{text}') as proxy:
        yield proxy


@pytest.fixture
def proxy(opening, opened):
    opening.mark()
    yield opening
    opened.close()


@pytest.fixture
def run(proxy, tmp_path):
    """Runs a program, which trusts the proxy's authority by this variable."""
    def start(*words: str, trust: str, **more: str) -> str:
        done = run_behind(proxy.url, tmp_path, *words, trust=trust,
                          trusted=authority().own.certificate, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return start


def inside(proxy, n: int, *reasons: str) -> list[tuple[str, str]]:
    """Method and path of at least n requests. Each was intercepted, and served; or
    its reason is one of these."""
    records = wait_until(
        lambda: len(found := [one for one in proxy.log(user=USER)
                              if one["method"] != "CONNECT"]) >= n and found,
        lambda: f"{n} requests inside: {proxy.lines()}")
    assert {one.get("intercepted") for one in records} == {True}
    assert {one["reason"] for one in records} <= {*(reasons or ("ok",))}
    return [(one["method"], "/" + "".join(one["url"].split("/", 3)[3:]))
            for one in records]


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- requests


@pytest.fixture
def client(run, programs):
    """Runs the program of this name with the arguments of tests.support.programs."""
    def start(name: str, *words: str) -> list[list[str]]:
        if words[0] == "2":
            pytest.importorskip("cutthrough.http2.transport")
        first, trust = programs.command(name)
        out = run(*first, *words, trust=trust)
        return [line.split()[:3] for line in out.splitlines()]
    return start


@pytest.mark.parametrize(("name", "version"), KINDS)
def test_requests(proxy, nginx, client, name, version):
    stored = f"{name}-{version}-inside"
    paths = [f"/store/{stored}", "/1k", "/1m", "/128k"]
    found = client(name, version, str(nginx.root / "128k"),
                   *map(nginx.tls_url, paths))
    assert found == [[version, "200", digest_of(nginx.payload(one))]
                     for one in ("128k", "1k", "1m", "128k")]
    assert sorted(inside(proxy, 5)) == sorted(
        [("PUT", paths[0]), *(("GET", path) for path in paths)])


@pytest.mark.parametrize(("name", "version"), [
    (name, version) for name in ("curl", "go", "node", "java", "httpx")
    for version in BOTH])
def test_100_mib_both_ways(proxy, nginx, client, name, version):
    # Buffers and code pages are there before growth is measured
    client("curl", version, str(nginx.root / "1m"), nginx.tls_url("/store/warm"))
    stored = nginx.root / "store" / f"bulk-{name}-{version}"
    with Watch(proxy) as watch:
        ((*_, digest),) = client(name, version, str(nginx.root / "100m"),
                                 nginx.tls_url(f"/store/{stored.name}"))
    stored.unlink()
    assert digest == digest_of(nginx.payload("100m"))
    assert watch.growth < FLAT, f"grew by {watch.growth >> 10} KiB"
    assert len(inside(proxy, 4)) == 4


# --- package managers, git


def test_git_clones_and_pushes(run, proxy, make_origin, tmp_path):
    """3 MB are more than git sends in one piece: it sends chunks, after a question.

    That push is of HTTP/1.1: by HTTP/2 libcurl 7.88 at times sends no END_STREAM behind
    a body without a length, with both windows open; to nginx, without a proxy, too.
    A small one goes by HTTP/2.
    """
    root = tmp_path / "served"
    root.mkdir()
    registries.make_repository(root)
    origin = make_origin(over_tls(registries.git_server(root)))
    url = f"https://a.example:{origin.port}/repo.git"
    data = os.urandom(3 << 20)

    def git(*words: str) -> None:
        run("git", "-c", "user.name=test", "-c", "user.email=test@localhost", *words,
            trust="GIT_SSL_CAINFO")
    git("clone", "-q", url, "one")
    (tmp_path / "one" / "file").write_bytes(data)
    git("-C", "one", "add", "file")
    git("-C", "one", "commit", "-q", "-m", "one")
    git("-c", "http.version=HTTP/1.1", "-C", "one", "push", "-q", "origin", "HEAD:main")
    git("clone", "-q", url, "two")
    assert (tmp_path / "two" / "file").read_bytes() == data
    (tmp_path / "two" / "small").write_bytes(data[:1000])
    git("-C", "two", "add", "small")
    git("-C", "two", "commit", "-q", "-m", "two")
    git("-C", "two", "push", "-q", "origin", "HEAD:main")
    git("-C", "one", "pull", "-q", "origin", "main")
    assert (tmp_path / "one" / "small").read_bytes() == data[:1000]
    assert inside(proxy, 10).count(("POST", "/repo.git/git-receive-pack")) >= 2
    pushes = [one for one in origin.requests if "git-receive-pack" in one.target
              and one.method == "POST"]
    assert {one.get("Via")[:2] for one in pushes} == {"1.", "2 "}
    assert "chunked" in [one.framing for one in origin.requests]


def test_pip_installs(run, proxy, nginx, tmp_path):
    registries.make_pip_index(nginx.root, nginx.payload("1m"))
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir",
        "--disable-pip-version-check", "--target", "installed", "--index-url",
        nginx.tls_url("/simple/"), registries.NAME, trust="PIP_CERT",
        PIP_CONFIG_FILE="/dev/null")
    data = tmp_path / "installed" / "cutthrough_tiny" / "data"
    assert data.read_bytes() == nginx.payload("1m")
    folder = f"/simple/{registries.NAME}/"
    assert inside(proxy, 2) == [("GET", folder), ("GET", folder + registries.WHEEL)]


def test_npm_installs(run, proxy, nginx, tmp_path):
    need("npm")
    registries.make_npm_registry(nginx.root, nginx.tls_url(""), nginx.payload("1m"))
    (tmp_path / "app").mkdir()
    run("npm", "install", "--prefix", "app", "--no-audit", "--no-fund",
        "--no-update-notifier", "--cache", "cache", "--registry",
        nginx.tls_url("/npm/"), registries.NAME, trust="npm_config_cafile")
    data = tmp_path / "app" / "node_modules" / registries.NAME / "data"
    assert data.read_bytes() == nginx.payload("1m")
    path = f"/npm/{registries.NAME}"
    assert inside(proxy, 2) == [("GET", path), ("GET", f"{path}.tgz")]


def test_apt_downloads(run, proxy, nginx, tmp_path):
    need("apt-get", "dpkg-deb")
    made = registries.make_apt_repository(nginx.root, nginx.payload("1m"))
    home = registries.make_apt_home(
        tmp_path / "apt", nginx.tls_url("/apt"), proxy.url, authority().own.certificate)
    for words in (("update",), ("download", registries.NAME)):
        run("apt-get", "-qq", *words, trust="TRUSTED", APT_CONFIG=home)
    (deb,) = tmp_path.glob("*.deb")
    assert deb.read_bytes() == made
    proxy.wait_log(1, url=nginx.tls_url(f"/apt/./{deb.name}"))
    assert ("GET", "/apt/./Packages") in inside(proxy, 3)


# --- connections that stay open


def test_a_websocket(proxy, opened):
    site = opened.enter_context(contextlib.closing(Site(certificate())))
    with connect(site.url("wss", "a.example") + "echo?a=b", proxy=proxy.url,
                 ssl=client_context()) as client:
        for message in ("text", os.urandom(70_000), os.urandom(1_000_000), ""):
            client.send(message)
            assert client.recv(timeout=30) == message
        assert client.ping().wait(30)
    assert inside(proxy, 1) == [("GET", "/echo?a=b")]


@pytest.mark.parametrize("version", BOTH)
def test_server_sent_events(proxy, make_origin, version):
    """Each event is at the client before the origin has sent the next one."""
    if version == "2":
        pytest.importorskip("cutthrough.http2.transport")
    events = queue.Queue()

    def script(conn: Connection) -> None:
        conn.read_request()
        send_events(conn, events)

    origin = make_origin(over_tls(script))
    command = ["curl", "-sSN", "--max-time", "60", f"--http{version}", "--noproxy", "",
               "-x", proxy.url, "--cacert", str(authority().own.certificate),
               f"https://a.example:{origin.port}/events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            for n in range(5):
                event = b"id: %d\ndata: %s\n\n" % (n, b"x" * 10**n)
                events.put(event)
                assert process.stdout.read(len(event)) == event
        finally:
            events.put(b"")
        assert process.stdout.read() == b""
    assert process.returncode == 0
    assert inside(proxy, 1) == [("GET", "/events")]


def test_a_websocket_of_node(run, proxy, opened):
    need("node")
    if not os.path.isdir(f"{NODE_PACKAGES}/ws"):
        pytest.skip("node-ws is not installed")     # `make har-judges` does it
    site = opened.enter_context(contextlib.closing(Site(certificate())))
    assert run("node", "-e", NODE_WEBSOCKET, site.url("wss", "a.example"),
               trust="NODE_EXTRA_CA_CERTS",
               NODE_PATH=NODE_PACKAGES) == "4 1000\n"
    assert inside(proxy, 1) == [("GET", "/")]


# --- a client that knows of no proxy


REDIRECTED = """
[[listeners]]
address = "0.0.0.0:3129"
transparent = "redirect"
auth = "none"
auth_none_from = ["10.9.0.0/24"]
"""


@pytest.mark.parametrize("version", BOTH)
def test_redirected_connections(directory, opened, loop_name, version):
    if version == "2":
        pytest.importorskip("cutthrough.http2.transport")
    router, folder = opened.enter_context(routed()), directory("redirected")
    policy = folder / "policy.toml"
    here = '[[rules]]\naction = "allow"\nhosts = ["here.test"]\n'
    policy.write_text(f'{here}methods = ["CONNECT"]\ntls = "intercept"\n'
                      f'{here}paths = ["/api/**"]\n')
    names = f'dns_overrides = ["here.test={SERVERS[4]}"]\n'
    proxy = opened.enter_context(Proxy(
        folder, loop=loop_name, config=f'policy = "{policy}"\naddress_floor = "off"\n'
        + config(REDIRECTED).replace(NAMES, names)))
    router.intercept("redirect", "3129", "--in", "near", "--ports", "443")
    origin = opened.enter_context(
        Origin(over_tls(okay, certificate("DNS:here.test")), SERVERS[4], port=443))

    def ask(path: str) -> str:
        with router.among_clients():
            return subprocess.run(
                ["curl", "-sS", f"--http{version}", "--noproxy", "*", "--resolve",
                 f"here.test:443:{SERVERS[4]}", "--cacert",
                 str(authority().own.certificate), "-o", "/dev/null", "-w",
                 "%{response_code} %{http_version}", f"https://here.test{path}"],
                capture_output=True, text=True, timeout=60, check=True).stdout
    assert ask("/api/1") == f"200 {version}"
    assert ask("/admin") == f"403 {version}"
    assert [one.target for one in origin.requests] == ["/api/1"]
    records = proxy.wait_log(4, intercepted=True)
    assert sorted((one["client"], one["method"], one["host"], one["reason"])
                  for one in records) == sorted(
        (CLIENTS[4], *rest) for rest in (
            ("TUNNEL", "here.test", "ok"), ("TUNNEL", "here.test", "ok"),
            ("GET", "here.test", "ok"), ("GET", "here.test", "path_denied")))
