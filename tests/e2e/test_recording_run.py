"""`cutthrough run`: a command with the proxy and the roots it needs, recorded once and
replayed without a network."""

import json
import select
import signal
import subprocess
import sys

import pytest

from tests.support.inside import certificate, okay, origins, over_tls
from tests.support.programs import need
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until

FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    print(urllib.request.urlopen(url, timeout=20).read().decode())
"""


@pytest.fixture
def start(directory, tmp_path):
    folder = directory("run")

    def begin(cassette, *words, mode="once", before=(), **env):
        return subprocess.Popen(
            [*before, sys.executable, "-m", "cutthrough", "run", "--cassette", cassette,
             "--mode", mode, "--directory", str(folder / "sessions"), "--ca",
             str(folder / "ca"), "--", *words], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=clean_environment(
                CUTTHROUGH_DNS_OVERRIDES="a.example=127.0.0.1",
                CUTTHROUGH_ORIGIN_CA=str(origins().own.certificate), **env))
    begin.folder = folder
    return begin


@pytest.fixture
def run(start):
    def do(cassette, *words, **more):
        process = start(cassette, *words, **more)
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors
    do.folder = start.folder
    return do


@pytest.fixture
def urls(make_origin):
    """Of an origin without TLS and of one with it, and both of them."""
    certificate()
    plain, tls = make_origin(okay), make_origin(over_tls(okay))
    return ([f"http://127.0.0.1:{plain.port}/a", f"https://a.example:{tls.port}/b"],
            (plain, tls))


def fetch(*urls):
    return (sys.executable, "-c", FETCH, *urls)


def test_a_command_is_recorded_once_and_replayed_without_its_origins(run, urls):
    where, origins_of = urls
    status, out, errors = run("one", *fetch(*where))
    assert (status, out) == (0, "ok\nok\n"), errors
    assert "cassette one, mode record: 0 replayed, 2 recorded, 0 missed" in errors
    for one in origins_of:
        one.close()
    for _ in range(2):
        status, out, errors = run("one", *fetch(*where))
        assert (status, out) == (0, "ok\nok\n"), errors
        assert "mode replay: 2 replayed, 0 recorded, 0 missed" in errors


def test_a_miss_fails_a_command_that_succeeds_and_is_named(run, urls):
    where, _ = urls
    assert run("one", *fetch(where[0]))[0] == 0
    quiet = ("sh", "-c", 'curl -s "$1" >/dev/null', "sh")
    need("curl")
    status, _, errors = run("one", *quiet, f"{where[0]}?new=1")
    assert status == 3, errors
    assert "MISSED GET http://127.0.0.1" in errors
    assert "the nearest is recording 1" in errors
    status, _, errors = run("one", *quiet, f"{where[0]}?new=1", mode="new_episodes")
    assert status == 0 and "1 recorded, 0 missed" in errors
    assert run("one", *quiet, f"{where[0]}?new=1", mode="none")[0] == 0


def test_a_miss_is_told_with_all_of_its_differences(run, urls):
    """The log has no room for more than the first few."""
    where, _ = urls
    many = "&".join(f"field{n}={'x' * 40}" for n in range(8))
    need("curl")
    quiet = ("sh", "-c", 'curl -s "$1" >/dev/null', "sh")
    assert run("one", *quiet, f"{where[0]}?{many}")[0] == 0
    status, _, errors = run("one", *quiet, f"{where[0]}?{many.replace('x', 'y')}")
    assert status == 3
    lines = errors.partition("MISSED ")[2].splitlines()
    assert lines[0].startswith(f"GET {where[0]}?field0=yyy"), errors
    assert lines[1].startswith("    the nearest is recording 1, GET "), errors
    assert all(any(f"field{n}" in line for line in lines[2:]) for n in range(8)), errors


def test_all_replaces_the_cassette_and_a_failure_leaves_it(run, urls):
    where, origins_of = urls
    assert run("one", *fetch(where[0]))[0] == 0
    status, _, errors = run("one", *fetch(where[1]), mode="all")
    assert status == 0 and "0 replayed, 1 recorded" in errors, errors
    assert run("one", *fetch(where[0]), mode="none")[0] != 0
    for one in origins_of:
        one.close()
    assert run("one", *fetch(where[1]), mode="all")[0] != 0
    assert run("one", *fetch(where[1]), mode="none")[0] == 0


def test_a_command_that_fails_leaves_the_cassette_as_it_was(run, urls):
    """Else the next run would replay the beginning of it."""
    where, origins_of = urls
    fails = ("sh", "-c", '"$@"; exit 5', "sh")
    for mode in ("once", "all"):
        status, _, errors = run("one", *fails, *fetch(where[0]), mode=mode)
        assert status == 5 and "1 recorded" in errors
        assert "what was recorded is not kept" in errors
    status, _, errors = run("one", *fetch(where[1]))
    assert status == 0 and "mode record: 0 replayed, 1 recorded" in errors
    assert "not kept" not in errors
    assert run("one", *fails, *fetch(where[0]), mode="all")[0] == 5
    for one in origins_of:
        one.close()
    assert run("one", *fetch(where[1]))[0] == 0


def test_what_a_failing_command_has_recorded_beside_a_cassette_is_kept(run, urls):
    where, origins_of = urls
    assert run("one", "sh", "-c", '"$@"; exit 5', "sh", *fetch(where[0]),
               mode="new_episodes")[0] == 5
    for one in origins_of:
        one.close()
    assert run("one", *fetch(where[0]))[0] == 0


def test_two_runs_at_once_record_a_cassette_once(start, urls, tmp_path):
    where, origins_of = urls
    words = ("sh", "-c", f'touch {tmp_path}/$$; until [ -e {tmp_path}/go ]; do sleep '
             '0.02; done; "$@"', "sh", *fetch(where[0], where[0]))
    first, second = start("one", *words), start("one", *words)
    wait_until(lambda: any(tmp_path.iterdir()), "a start")
    assert select.select([first.stderr, second.stderr], [], [], 30)[0]   # one waits
    (tmp_path / "go").touch()
    told = [process.communicate(timeout=60) for process in (first, second)]
    assert [out for out, _ in told] == ["ok\nok\n"] * 2
    errors = "".join(error for _, error in told)
    assert "another run records one: this one waits for it" in errors
    assert "mode record: 0 replayed, 2 recorded" in errors
    assert "mode replay: 2 replayed, 0 recorded" in errors
    assert len(origins_of[0].requests) == 2


def test_the_presets_hold_unless_there_is_a_configuration(
        run, make_origin, tmp_path):
    origin = make_origin(okay)
    post = (sys.executable, "-c", "import sys, urllib.request as r\n"
            f"print(r.urlopen('http://127.0.0.1:{origin.port}/', "
            "b'{\"client_secret\": \"s3cret\"}').read())")
    (tmp_path / "own.toml").write_text("recording_body = '1MiB'\n")
    for name, env in (("one", {}), ("two", {
            "CUTTHROUGH_CONFIG": str(tmp_path / "own.toml")})):
        assert run(name, *post, **env)[0] == 0
    data = [(run.folder / f"sessions/{name}.session").read_bytes()
            for name in ("one", "two")]
    assert [b"s3cret" in one for one in data] == [False, True]


def test_the_status_is_the_commands_own(run):
    assert run("one", "sh", "-c", "exit 7")[0] == 7
    assert run("one", "sh", "-c", "kill -9 $$")[0] == 137
    assert run("one", "no-such-program")[0] == 127
    status, _, errors = run("../one", "true")
    assert status == 1 and "is no name of a session" in errors


def test_a_parent_process_that_ignores_its_children_changes_no_status(run):
    """The kernel kept no status and sent no signal, for which the program waited: for
    ever."""
    before = ("sh", "-c", "trap '' CHLD; exec \"$@\"", "sh")
    assert run("one", "sh", "-c", "exit 7", before=before)[0] == 7


def test_a_signal_reaches_the_command_and_the_proxy_ends_with_it(start, tmp_path):
    mark = tmp_path / "started"
    process = start("one", "sh", "-c", "trap 'echo told; exit 5' TERM; "
                    f"echo $http_proxy > {mark}; while :; do sleep 0.05; done")
    url = wait_until(lambda: mark.exists() and mark.read_text().strip(), "a start")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, "told\n")
    refused = subprocess.run([sys.executable, "-c", "import socket, sys, urllib.parse\n"
                              "one = urllib.parse.urlsplit(sys.argv[1])\n"
                              "socket.create_connection((one.hostname, one.port))",
                              url], capture_output=True, text=True, check=False)
    assert "ConnectionRefusedError" in refused.stderr


@pytest.mark.parametrize("name", ["curl", "requests", "httpx", "aiohttp", "node"])
def test_clients_need_nothing_but_the_command(run, urls, name):
    where, origins_of = urls
    url = where[1]
    if name == "curl":
        need("curl")
        words = ("curl", "-sf", url)
    elif name == "node":
        need("node")
        words = ("node", "-e", f"fetch('{url}').then(r => r.text()).then(console.log)")
        version = subprocess.check_output(["node", "--version"], text=True)
        if int(version[1:].split(".")[0]) < 24:
            pytest.skip("this Node.js asks no proxy")
    else:
        pytest.importorskip(name)
        text = {
            "requests": "import requests as c; print(c.get(u).text)",
            "httpx": "import httpx as c; print(c.get(u).text)",
            "aiohttp": "import aiohttp, asyncio\nasync def main():\n"
                       " async with aiohttp.ClientSession(trust_env=True) as s:\n"
                       "  print(await (await s.get(u)).text())\nasyncio.run(main())"}
        words = (sys.executable, "-c", f"u = {url!r}\n{text[name]}")
    assert run("one", *words)[0:2] == (0, "ok" if name == "curl" else "ok\n")
    for one in origins_of:
        one.close()
    status, out, errors = run("one", *words)
    assert (status, out.strip()) == (0, "ok"), errors


SDKS = {
    "openai": """
import openai
try:
    chat = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k").chat
    chat.completions.create(model="gpt", messages=[{"role": "user", "content": "one"}])
except openai.APIStatusError as error:
    print(error.status_code, error.body["code"], error.body["message"])
""",
    "anthropic": """
import anthropic
try:
    anthropic.Anthropic(base_url="http://127.0.0.1:9", api_key="k").messages.create(
        model="claude", max_tokens=9, messages=[{"role": "user", "content": "one"}])
except anthropic.APIStatusError as error:
    body = error.body["error"]
    print(error.status_code, body["type"], body["message"])
"""}


@pytest.mark.parametrize("sdk", SDKS)
def test_a_miss_is_an_error_of_the_api_and_not_tried_again(run, sdk):
    """An SDK asked three times, for seconds, and its error was "502 Bad Gateway"."""
    pytest.importorskip(sdk, reason="its package is not installed")
    status, out, errors = run("none", sys.executable, "-c", SDKS[sdk], mode="none")
    assert out == ("502 recording_missed nothing is recorded; the mode new_episodes, "
                   "of a rule cache, records it\n"), errors
    assert status == 3 and "mode replay: 0 replayed, 0 recorded, 1 missed" in errors
    assert "cutthrough: --mode new_episodes records what was missed" in errors


def test_a_miss_of_json_names_the_paths_that_differ(run, make_origin):
    """A body that no route reads as JSON differed "at byte 52"."""
    need("curl")
    url = f"http://127.0.0.1:{make_origin(okay).port}/"

    def ask(*documents):
        return ["curl", "-s", url, "-H", "Content-Type: application/json",
                *(word for text in documents for word in ("-d", text))]

    assert run("one", *ask('{"model": "a", "messages": [{"content": "hi"}]}'))[0] == 0
    _, out, errors = run("one", *ask('{"model": "a", "messages": [{"content": "ho"}]}'))
    differs = 'body $.messages[0].content: "ho", recorded "hi"'
    assert f"    {differs}\n" in errors
    assert differs in json.loads(out)["error"]["message"]
    _, _, errors = run("one", *ask('{"model":"a","messages":[{"content":"hi"}]}'))
    assert "which differ at byte" in errors, "another spelling"
