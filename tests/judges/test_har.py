"""Our archives before other programs' readers, and their writers' files before ours.

`make har-judges` installs them: har-validator (the JSON Schema of HAR), DevTools of
Chromium from the package of its sources, Firefox itself, and mitmproxy.
"""

import base64
import io
import json
import shutil
import subprocess

import pytest

from cutthrough.capture.importing import Result, import_file
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats.har import make_archive
from cutthrough.storage.stores import open_reader
from tests.capture.flows import flow
from tests.capture.har_flows import ALL, BINARY
from tests.judges.places import HOME
from tests.support.firefox import PROGRAM, Firefox
from tests.support.proxy import ROOT

HERE = ROOT / "tests" / "judges"
NODE = shutil.which("node")
# They come from npm and PyPI, and CI does not install them
pytestmark = pytest.mark.skipif(
    not (HOME / "ready").exists(), reason="make har-judges runs it")

FLOWS = [
    # HAR has no encoding for a request's bytes, and Chromium decodes those of a text
    *(one for one in ALL if one is not BINARY),
    flow(30, url="http://a.test/%C3%BC?a=1&a=2&b", method="DELETE", status=404,
         request_head="DELETE /%C3%BC?a=1&a=2&b HTTP/1.1\r\nHost: a.test\r\n\r\n",
         response_head="HTTP/1.1 404 Not Found\r\nContent-Type: text/html; charset="
         "utf-8\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\n",
         response_body="<p>größer \u2028 \U0001f600</p>"),
    flow(31, method="PUT", peer="2001:db8::1", port=8080, url="http://a.test:8080/x",
         request_head="PUT /x HTTP/1.1\r\nContent-Type: application/json\r\n\r\n",
         request_body='{"a": "\\u00fc"}', request_body_bytes=15),
    flow(32, response_body=b"\x89\xff\0\1" * 64, response_head="HTTP/1.1 200 OK\r\n"
         "Content-Type: application/octet-stream\r\n\r\n", response_body_bytes=256,
         response_content_bytes=256),
    flow(33, status=304, response_body="",
         response_head="HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
         response_body_bytes=0, response_content_bytes=0),
]
ARCHIVE = make_archive(FLOWS)
# Firefox's own code: its importer reads an archive, and its writer writes the result
INSIDE = """(async () => {
  const {require} = ChromeUtils.importESModule(
    "resource://devtools/shared/loader/Loader.sys.mjs");
  const har = "resource://devtools/client/netmonitor/src/har/";
  const {HarImporter} = require(har + "har-importer.js");
  const {HarBuilder} = require(har + "har-builder.js");
  const items = new Map();
  new HarImporter({
    clearRequests() {}, addTimingMarker() {},
    addRequest(id, data) { items.set(id, {id, ...data}); },
    updateRequest(id, data) { Object.assign(items.get(id), data); },
  }).import(ARCHIVE);
  return new HarBuilder({
    connector: {currentTarget: {url: "http://a.test/"}, getLongString: async s => s},
    id: "1", includeResponseBodies: true, items: [...items.values()],
    supportsMultiplePages: false}).build();
})()"""
READ = """
import base64, json, sys
from mitmproxy.io import FlowReader
def show(message):
    content = message.raw_content or b""
    return [list(map(list, message.headers.items(multi=True))),
            base64.b64encode(message.get_content(strict=False) or b"").decode()]
print(json.dumps([[f.request.method, f.request.url, f.response.status_code,
    show(f.request), show(f.response)] for f in FlowReader(sys.stdin.buffer).stream()]))
"""


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    path = tmp_path_factory.mktemp("har") / "ours.har"
    path.write_text(json.dumps(ARCHIVE))
    return path


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, timeout=120,
                          check=False, **options)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout


def mitmdump(*words):
    program = HOME / "mitmproxy/bin/mitmdump"
    return run(program, "-n", "--set", f"confdir={HOME}", *words)


def node(script, *words):
    return run(NODE, script, *words, cwd=HOME)


@pytest.fixture(scope="module")
def chromiums(ours):
    """The archive as Chromium reads and writes it again."""
    made = HOME / "chromium.mjs"
    shutil.copy(HERE / "build.mjs", HOME)
    node(HOME / "build.mjs", HERE / "chromium.mts", made)
    return json.loads(node(made, ours))


@pytest.fixture(scope="module")
def firefoxs(tmp_path_factory):
    if PROGRAM is None:         # `make browser` installs it, 270 MB to load
        pytest.skip("no Firefox")
    with Firefox(tmp_path_factory.mktemp("firefox"),
                 flags=["--remote-allow-system-access"]) as browser:
        return browser.run_inside(
            INSIDE.replace("ARCHIVE", json.dumps(json.dumps(ARCHIVE))))


def facts(archive):
    """The content of each entry. A field's name is lower case, as in HTTP/2."""
    found = []
    for entry in archive["log"]["entries"]:
        request, response = entry["request"], entry["response"]
        content = response["content"]
        text = content.get("text") or ""
        data = base64.b64decode(text) if content.get("encoding") == "base64" else (
            text.encode())
        found.append((
            request["method"], request["url"], fields(request),
            (request.get("postData") or {}).get("text") or "", response["status"],
            fields(response), data))
    return found


def fields(message):
    return sorted((one["name"].lower(), one["value"]) for one in message["headers"])


def imported(data, path):
    """Our archive of the database that `data` is imported into."""
    result = import_file(io.BytesIO(data), str(path), keep_credentials=True)
    assert result == Result(added=len(FLOWS)), result.reasons
    reader = open_reader(str(path))
    try:
        return make_archive(map(Flow, reader.flows()))
    finally:
        reader.close()


def test_the_schema_accepts_ours(ours):
    assert node(HERE / "validate.cjs", ours) == b"valid\n"


def test_the_schema_refuses_others(ours, tmp_path):
    bad = json.loads(ours.read_text())
    del bad["log"]["entries"][0]["timings"]["wait"]
    made = tmp_path / "bad.har"
    made.write_text(json.dumps(bad))
    assert b"wait" in node(HERE / "validate.cjs", made)


def test_chromium_reads_ours(chromiums):
    assert facts(chromiums) == facts(ARCHIVE)
    for theirs, entry in zip(chromiums["log"]["entries"], ARCHIVE["log"]["entries"],
                             strict=True):
        for phase in ("send", "wait", "receive"):
            assert theirs["timings"][phase] == pytest.approx(
                entry["timings"][phase], abs=0.01)
        size = entry["response"]["content"]["size"]
        assert size <= 0 or theirs["response"]["content"]["size"] == size


def test_ours_reads_chromiums(chromiums, tmp_path):
    again = imported(json.dumps(chromiums).encode(), tmp_path / "flows.db")
    assert facts(again) == facts(ARCHIVE)


def test_firefox_reads_ours(firefoxs):
    assert facts(firefoxs) == facts(ARCHIVE)
    for theirs, entry in zip(firefoxs["log"]["entries"], ARCHIVE["log"]["entries"],
                             strict=True):
        # HAR 1.2 has `ssl` inside `connect`; Firefox adds it once more
        twice = max(0, entry["timings"]["ssl"])
        assert theirs["time"] == pytest.approx(entry["time"] + twice)
        for side in ("request", "response"):
            assert theirs[side]["headersSize"] == entry[side]["headersSize"]


def test_ours_reads_firefoxs(firefoxs, tmp_path):
    again = imported(json.dumps(firefoxs).encode(), tmp_path / "flows.db")
    assert facts(again) == facts(ARCHIVE)


def test_mitmproxy_reads_ours(ours):
    read = json.loads(run(HOME / "mitmproxy/bin/python", "-c", READ,
                          input=ours.read_bytes()))
    for (method, url, status, up, down), entry in zip(
            read, facts(ARCHIVE), strict=True):
        assert (method, url, status) == (entry[0], entry[1], entry[4])
        assert sorted((name.lower(), value) for name, value in up[0]
                      if name.lower() != "content-length") == [
            one for one in entry[2] if one[0] != "content-length"]
        assert base64.b64decode(up[1]) == entry[3].encode()
        assert base64.b64decode(down[1]) == entry[6]
    shown = mitmdump("-r", ours).decode()
    assert shown.count("<<") == len(FLOWS), shown


@pytest.mark.parametrize("how", ["-w", "--set=hardump"])
def test_ours_reads_mitmproxys(ours, tmp_path, how):
    made = tmp_path / "theirs"
    mitmdump("-r", ours, *(["-w", made] if how == "-w" else [f"{how}={made}"]))
    again = imported(made.read_bytes(), tmp_path / "flows.db")
    for mine, theirs in zip(facts(ARCHIVE), facts(again), strict=True):
        assert [theirs[n] for n in (0, 1, 3, 4)] == [mine[n] for n in (0, 1, 3, 4)]
        assert theirs[6] == mine[6]
