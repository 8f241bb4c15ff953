"""Sessions of the clients that people use, plain and inside opened tunnels: recorded,
and replayed when their origins are gone, one after another and two at once."""

import contextlib
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support import registries
from tests.support.browsers import KINDS, echo
from tests.support.certificates import authority
from tests.support.inside import HERE, NAMES, certificate, config, origins, over_tls
from tests.support.nginx import PROGRAM, Nginx
from tests.support.origin import Connection
from tests.support.programs import need, run_behind
from tests.support.proxy import Proxy
from tests.support.registries import COMMITTER
from tests.support.site import FETCH, LOADED, WHOLE, Site
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

RULE = f"""
[[rules]]
action = "allow"
{HERE}tls = "intercept"
recording = "record"
"""
WORKERS = 2


class Stage:
    """A proxy of two workers that records, and its sessions."""

    def __init__(self, folder: Path, loop: str, text: str) -> None:
        self.folder = folder / "sessions"
        policy = folder / "policy.toml"
        folder.mkdir(parents=True, exist_ok=True)
        policy.write_text(RULE)
        self.proxy = Proxy(folder, loop=loop, config=(
            f'policy = "{policy}"\nworkers = {WORKERS}\n'
            f'recording_directory = "{self.folder}"\n{text}'))

    def recorded(self) -> int:
        if "default" not in Sessions(self.folder).names():
            return 0
        with contextlib.closing(Sessions(self.folder).open("default")) as session:
            return len(session)

    def replay(self, served: int) -> None:
        """When so many are recorded: from now on all is replayed, or missed."""
        wait_until(lambda: self.recorded() == len(self.asked()) == served,
                   lambda: f"{self.recorded()} of {served}: {self.proxy.log()}")
        write_state(self.folder, State("replay"))
        said = f"mode replay, session default, {served} "
        wait_until(lambda: self.proxy.stderr().count(said) == WORKERS,
                   self.proxy.stderr)
        self.proxy.mark()

    def asked(self) -> list[dict]:
        """The lines of requests that found an origin or a recording, or should have:
        some programs ask without credentials first, and browsers ask their maker."""
        return [one for one in self.proxy.log() if one["method"] != "CONNECT"
                and "rule" in one and one["reason"] != "dns_error"]

    def outcomes(self, n: int) -> set[str]:
        """Of at least n requests since `replay`."""
        wait_until(lambda: len(self.asked()) >= n, lambda: str(self.proxy.lines()))
        return {one["reason"] for one in self.asked()}


@pytest.fixture
def stage(directory, loop_name, opened):
    def start(text: str) -> Stage:
        made = Stage(directory("stage"), loop_name, text)
        opened.enter_context(made.proxy)
        return made
    return start


@pytest.fixture
def run(tmp_path):
    """Runs a program through the proxy in a directory of its own."""
    def start(proxy: Proxy, place: str, *words: str, trust: str, **more: str) -> str:
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        done = run_behind(proxy.url, folder, *words, trust=trust,
                          trusted=authority().own.certificate, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return start


SCHEMES = pytest.mark.parametrize("scheme", ["http", "https"])


def twice_and_both(use) -> list:
    """The results of `use` for four names: one after another, and two at once."""
    with ThreadPoolExecutor(2) as pool:
        return [use("again"), use("once-more"), *pool.map(use, ("left", "right"))]


# --- package managers


@pytest.fixture
def packages(directory):
    if PROGRAM is None:
        pytest.skip("nginx is not installed")
    with contextlib.closing(Nginx(directory("packages"))) as server:
        yield server


@SCHEMES
def test_pip_and_npm_install_from_a_session(stage, run, packages, tmp_path, scheme):
    need("npm")
    data = packages.payload("128k")
    url = packages.url if scheme == "http" else packages.tls_url
    registries.make_pip_index(packages.root, data)
    registries.make_npm_registry(packages.root, url(""), data)
    made = stage(config().replace(str(origins().own.certificate), str(packages.ca)))

    def install(place: str) -> list[bytes]:
        run(made.proxy, place, sys.executable, "-m", "pip", "install", "--quiet",
            "--no-cache-dir", "--disable-pip-version-check", "--target", "installed",
            "--index-url", url("/simple/"), "--trusted-host", "127.0.0.1",
            registries.NAME, trust="PIP_CERT", PIP_CONFIG_FILE="/dev/null")
        (tmp_path / place / "app").mkdir()
        run(made.proxy, place, "npm", "install", "--prefix", "app", "--no-audit",
            "--no-fund", "--no-update-notifier", "--cache", "cache", "--registry",
            url("/npm/"), registries.NAME, trust="npm_config_cafile")
        home = tmp_path / place
        return [(home / "installed" / "cutthrough_tiny" / "data").read_bytes(),
                (home / "app" / "node_modules" / registries.NAME / "data").read_bytes()]

    assert install("first") == [data, data]
    made.replay(4)
    packages.close()
    assert twice_and_both(install) == [[data, data]] * 4
    assert made.outcomes(16) == {"replayed"}


# --- git

LANES = """
[recording_routes.git]
paths = ["/repo.git/**"]
lane = "x-lane"
"""


@SCHEMES
def test_git_clones_and_pushes_from_a_session(
        stage, run, make_origin, tmp_path, scheme):
    """A push changes the answer to the next clone: each client has its own sequence."""
    root = tmp_path / "served"
    root.mkdir()
    registries.make_repository(root)
    server = registries.git_server(root)
    origin = make_origin(over_tls(server) if scheme == "https" else server)
    url = f"{scheme}://a.example:{origin.port}/repo.git"
    data = os.urandom(50_000)
    made = stage(config(LANES))

    def work(place: str) -> bytes:
        def git(*words: str) -> None:
            run(made.proxy, place, "git", "-c", f"http.extraHeader=X-Lane: {place}",
                *words, trust="GIT_SSL_CAINFO", **COMMITTER)
        git("clone", "-q", url, "one")
        one = tmp_path / place / "one"
        (one / "file").write_bytes(data)
        git("-C", "one", "add", "file")
        git("-C", "one", "commit", "-q", "-m", "one")
        git("-C", "one", "push", "-q", "origin", "HEAD:main")
        git("clone", "-q", url, "two")
        return (tmp_path / place / "two" / "file").read_bytes()

    assert work("first") == data
    n = len(origin.requests)
    made.replay(n)
    origin.close()
    assert twice_and_both(work) == [data] * 4
    assert made.outcomes(4 * n) == {"replayed"}
    assert len(origin.requests) == n


# --- a client of a language model: its answer is a stream

CHAT = """
import hashlib, httpx, json, os, sys, uuid
text, n = b"", 0
with httpx.Client(headers={"Authorization": "Bearer " + sys.argv[2]}) as client:
    for question in ("one", "two"):
        body = {"model": "m", "stream": True, "user": str(uuid.uuid4()),
                "messages": [{"role": "user", "content": question}]}
        with client.stream("POST", sys.argv[1], json=body) as reply:
            assert reply.status_code == 200, reply.read()
            for piece in reply.iter_raw():
                text, n = text + piece, n + 1
print(hashlib.sha256(text).hexdigest(), len(text))
"""
CHAT_ROUTE = """
[recording_routes.chat]
paths = ["/v1/chat/completions"]
body = "json"
ignored_paths = ["$.user"]
"""


def speak(conn: Connection) -> None:
    """As a language model does: an event for each word."""
    while request := conn.read_request():
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        said = hashlib.sha256(request.body).hexdigest()
        events = [b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % word.encode()
                  for word in said]
        for event in (*events, b"data: [DONE]\n\n"):
            conn.send(b"%x\r\n%s\r\n" % (len(event), event))
        conn.send(b"0\r\n\r\n")


@SCHEMES
def test_a_chat_streams_from_a_session(stage, run, make_origin, scheme):
    secret = "sk-" + os.urandom(12).hex()
    origin = make_origin(over_tls(speak) if scheme == "https" else speak)
    made = stage(config(CHAT_ROUTE))
    url = f"{scheme}://a.example:{origin.port}/v1/chat/completions"

    def chat(place: str) -> str:
        return run(made.proxy, place, sys.executable, "-c", CHAT, url, secret,
                   trust="SSL_CERT_FILE")

    said = chat("first")
    made.replay(2)
    origin.close()
    assert twice_and_both(chat) == [said] * 4
    assert made.outcomes(8) == {"replayed"}
    assert len(origin.requests) == 2
    for path in made.folder.rglob("*"):
        assert secret.encode() not in path.read_bytes(), path


# --- gRPC: its origin has HTTP/2 alone


def test_calls_of_grpc_are_answered_from_a_session(stage):
    """Messages, trailers, and a status without a message."""
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("cutthrough.http2.transport")
    from tests.support.grpc_echo import Service

    server = grpc.server(ThreadPoolExecutor(8), handlers=(Service(),))
    chain, key = certificate().pem
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    made = stage(config())
    trust = grpc.ssl_channel_credentials(authority().own.certificate.read_bytes())

    def call(place: str) -> list:
        with grpc.secure_channel(f"a.example:{port}", trust, options=[
                ("grpc.http_proxy", made.proxy.url),
                ("grpc.use_local_subchannel_pool", 1)]) as channel:
            got, about = channel.unary_unary("/t.T/Echo").with_call(
                bytes(100_000), timeout=30)
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/t.T/Fail")(b"", timeout=30)
            counted = list(channel.unary_stream("/t.T/Count")(b"500", timeout=30))
            return [got, dict(about.trailing_metadata()), counted,
                    caught.value.code(), caught.value.details()]

    try:
        said = call("first")
        assert said[0] == bytes(100_000) and said[1]["x-seen"] == "a trailer"
        assert len(said[2]) == 500 and said[3] is grpc.StatusCode.NOT_FOUND
        made.replay(3)
    finally:
        server.stop(0).wait(30)
    assert twice_and_both(call) == [said] * 4
    # Some wait for the connection that another was about to make when it was replayed
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, map(str, range(40)))) == [said] * 40
    assert made.outcomes(132) == {"replayed"}


# --- a browser

PAGES = ("site.test", "other.test")


@pytest.mark.dials_out                  # a browser sends requests to its maker
def test_a_browser_loads_a_page_from_a_session(stage, directory, opened):
    program, path = KINDS["chromium"]
    if path is None:
        pytest.skip("chromium is not installed")
    site = Site(certificate(*(f"DNS:{name}" for name in PAGES)))
    overrides = [f"{name}=127.0.0.1" for name in PAGES]
    made = stage(config().replace(NAMES, f"dns_overrides = {overrides}\n") + """
connect_ports = "any"
[[listeners]]
address = "127.0.0.1:0"
auth = "none"
user = "bob"
pac = true
""")

    def visit(place: str) -> list:
        with program(directory(place), names=("proxy.test",),
                     trusted=authority().own.certificate,
                     pac=f"http://proxy.test:{made.proxy.port}/proxy.pac") as client:
            assert client.visit(site.url("https", "site.test")) == ""
            return [client.run(LOADED), client.run(FETCH),
                    echo(client, site.url("wss", "site.test"))]

    try:
        assert visit("first") == [WHOLE, 300_000, 70_000]
        n = len(site.requests)
        made.replay(n)
    finally:
        site.close()
    assert twice_and_both(visit) == [[WHOLE, 300_000, 70_000]] * 4
    assert len(site.requests) == n
    assert {one["reason"] for one in made.asked() if one["host"] in PAGES} == {
        "replayed"}
