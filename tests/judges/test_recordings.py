"""Recordings of other programs before us, and ours before them: mitmproxy's dumps, and
cassettes of VCR.py. `make har-judges` installs both."""

import base64
import gzip
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cutthrough.recording.formats.vcr import write_cassette
from cutthrough.recording.model.recording import Chunk, Recording, Response
from tests.judges.places import HOME
from tests.recording.answers import request
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

PYTHON = HOME / "mitmproxy/bin/python"
# With the other judges mitmproxy and VCR.py are 600 MB, which a verb of make installs
pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="make har-judges runs it")

SENT = "00ff80"
PACKED = gzip.compress(b'{"packed": true}', mtime=0)
# Path: status, fields, body
ANSWERS = {
    "/text": (200, [("Content-Type", "text/plain; charset=utf-8")],
              "größer\r\n".encode()),
    "/binary": (200, [("Content-Type", "image/png")], bytes(range(256))),
    "/gzip": (200, [("Content-Type", "application/json"), ("Content-Encoding", "gzip")],
              PACKED),
    "/moved": (302, [("Location", "/text"), ("Set-Cookie", "a=1; Path=/"),
                     ("Set-Cookie", "b=2; Path=/")], b""),
    "/none": (404, [], b"\0"),
}
# Asks for the URLs of argv: by GET, and by POST with a body. Without redirections.
ASK = """
import base64, http.client, json, os, sys, urllib.parse
def ask(url, body):
    proxy = urllib.parse.urlsplit(os.environ.get("http_proxy", ""))
    where = urllib.parse.urlsplit(url)
    one = http.client.HTTPConnection(*((proxy.hostname, proxy.port) if proxy.hostname
                                       else (where.hostname, where.port)))
    known = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    one.request("POST" if body else "GET", url if proxy.hostname else where.path, body,
                {"Proxy-Authorization": f"Basic {known}"} if proxy.username else {})
    answer = one.getresponse()
    return [answer.status, sorted(answer.getheaders()),
            base64.b64encode(answer.read()).decode()]
def ask_all():
    print(json.dumps([ask(url, body) for url in sys.argv[1:]
                      for body in (None, bytes.fromhex(os.environ["SENT"]))]))
"""
VCR = """
import vcr
path = os.environ["CASSETTE"]
with vcr.use_cassette(path, record_mode=os.environ["MODE"],
                      serializer="json" if path.endswith(".json") else "yaml",
                      match_on=["method", "uri", "body"]):
    ask_all()
"""


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, fields, body = ANSWERS[self.path]
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Sent", sent.hex())
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def urls():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield [f"http://127.0.0.1:{server.server_port}{path}" for path in ANSWERS]
    server.shutdown()
    thread.join()
    server.server_close()


def run(*words, **env):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=120, cwd=ROOT,
        env=clean_environment(**env), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def replayed(path, folder, urls, sent=SENT):
    """The answers that a client gets after the file's import. No origin is asked."""
    sessions = folder / "sessions"
    sessions.mkdir(mode=0o700)
    added = run(sys.executable, "-m", "cutthrough", "recordings", "import",
                "--directory", sessions, "theirs", path)
    assert added == f"{2 * len(urls)} recordings added to theirs\n"
    return json.loads(run(
        sys.executable, "-m", "cutthrough", "run", "--cassette", "theirs", "--mode",
        "none", "--directory", sessions, "--ca", folder / "ca", "--", sys.executable,
        "-c", f"{ASK}\nask_all()", *urls, SENT=sent))


def shown(answers, *left_out):
    """Without some fields, and without the values of cookies, which are not kept."""
    def show(name, value):
        is_cookie = name == "Set-Cookie"
        return [name, re.sub(r"=[^;]+", "=", value, count=1) if is_cookie else value]

    return [[status, [show(*pair) for pair in fields
                      if pair[0].lower() not in ("via", *left_out)], body]
            for status, fields, body in answers]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_cassette_that_vcr_py_has_written_is_replayed(tmp_path, urls, form):
    path, sent = tmp_path / f"theirs.{form}", SENT
    if form == "json":                       # which has no bytes
        urls, sent = [url for url in urls if url.endswith(("text", "moved"))], "6162"
    theirs = json.loads(run(PYTHON, "-c", ASK + VCR, *urls, CASSETTE=str(path),
                            MODE="once", SENT=sent))
    assert shown(replayed(path, tmp_path, urls, sent)) == shown(theirs)


def test_a_dump_that_mitmproxy_has_written_is_replayed(tmp_path, urls):
    """Content without its coding, as in a HAR."""
    path, said = tmp_path / "theirs.flows", tmp_path / "said"
    with said.open("wb") as file, subprocess.Popen(
            [HOME / "mitmproxy/bin/mitmdump", "-w", path, "--listen-host", "127.0.0.1",
             "--listen-port", "0", "--set", f"confdir={tmp_path}"], stdout=file,
            stderr=file, env=clean_environment(PYTHONUNBUFFERED="1")) as process:
        try:
            port = wait_until(lambda: re.search(
                r"listening at \D*127\.0\.0\.1:(\d+)", said.read_text()),
                said.read_text)
            theirs = json.loads(run(
                sys.executable, "-c", f"{ASK}\nask_all()", *urls, SENT=SENT,
                http_proxy=f"http://127.0.0.1:{port[1]}"))
        finally:
            process.terminate()
    packed = base64.b64encode(PACKED).decode()
    plain = base64.b64encode(gzip.decompress(PACKED)).decode()
    left_out = ("content-length", "content-encoding", "transfer-encoding")
    assert shown(replayed(path, tmp_path, urls), *left_out) == [
        [status, fields, plain if body == packed else body]
        for status, fields, body in shown(theirs, *left_out)]


def test_vcr_py_plays_our_cassette(tmp_path):
    path = tmp_path / "ours.yaml"
    url = "http://a.example"
    made = [
        Recording(number=number, request=request(path, sent), response=Response(
            status=status, reason="Fine", fields=tuple(fields),
            chunks=(Chunk(0, body),) if body else ()))
        for number, ((path, (status, fields, body)), sent) in enumerate(
            ((one, sent) for one in ANSWERS.items()
             for sent in (b"", bytes.fromhex(SENT))), 1)]
    with path.open("w") as file:
        assert write_cassette(file, made) == []
    played = json.loads(run(
        PYTHON, "-c", ASK + VCR, *(f"{url}{one}" for one in ANSWERS),
        CASSETTE=str(path), MODE="none", SENT=SENT))
    assert played == [
        [one.response.status, sorted(map(list, one.response.fields)),
         base64.b64encode(one.response.body).decode()] for one in made]
