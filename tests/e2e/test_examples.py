"""The examples of docs/ in a real proxy: a reader's copy works."""

import re
import sqlite3
import subprocess
import sys

import pytest

from tests.support.client import USER
from tests.support.origin import echo
from tests.support.proxy import ROOT, clean_environment

pytestmark = pytest.mark.any_loop


def blocks_of(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "allow.db"
    with sqlite3.connect(path) as database:
        database.execute("create table allowed (user text, host text, port integer, "
                         "primary key (user, host, port)) without rowid")
    database.close()
    return path


def allow(table, *row):
    with sqlite3.connect(table) as database:
        database.execute("insert into allowed values (?, ?, ?)", row)
    database.close()


@pytest.fixture
def start(start_proxy, table):
    examples = ROOT / "docs" / "examples"
    return lambda: start_proxy("--policy-hook", "hook_sqlite:decide", env={
        "PYTHONPATH": str(examples), "ALLOW_LIST": str(table)})


def test_the_hook_with_a_database_decides(start, table, make_origin, dial):
    origin, other, tunnel = make_origin(), make_origin(), make_origin(echo)
    allow(table, USER, "127.0.0.1", origin.port)
    allow(table, "*", ".localhost", tunnel.port)
    allow(table, "somebody else", "127.0.0.1", other.port)
    proxy = start()
    assert dial(proxy).get(origin.url()).status == 200
    assert dial(proxy).get(other.url()).status == 403
    dial(proxy).tunnel(f"a.localhost:{tunnel.port}")
    lines = proxy.wait_log(2)
    assert {(line["reason"], line["hook"]) for line in lines} == {
        ("ok", "in the table"), ("destination_denied", "not in the table")}
    assert not other.received


def test_its_verdict_is_kept_for_its_time(start, table, make_origin, dial):
    origin, proxy = make_origin(), start()
    assert dial(proxy).get(origin.url()).status == 403
    allow(table, USER, "127.0.0.1", origin.port)
    assert dial(proxy).get(origin.url()).status == 403, "for a minute"
    proxy.hup()
    assert dial(proxy).get(origin.url()).status == 200


def test_without_its_database_nothing_passes(start, table, make_origin, dial):
    table.unlink()
    proxy, origin = start(), make_origin()
    assert dial(proxy).get(origin.url()).status == 503
    assert "unable to open database file" in proxy.stderr()
    assert not table.exists()
    assert not origin.received


def test_the_hook_of_the_page_decides(start_proxy, dial, tmp_path):
    (block,) = blocks_of("policy.md")
    (tmp_path / "decisions.py").write_text(block)
    proxy = start_proxy("--policy-hook", "decisions:decide", "--dns-overrides",
                        "www.example.com=127.0.0.1", env={"PYTHONPATH": str(tmp_path)})
    assert dial(proxy).connect("www.example.com:443").status != 403
    assert dial(proxy).connect("www.example.com:444").status == 403
    assert [line["hook"] for line in proxy.wait_log(2)] == ["ours", "not ours"]


def run_block(text: str, folder, **more):
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(script)], cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=clean_environment(PYTHONPATH=str(ROOT)))


@pytest.mark.parametrize(("number", "printed"), [
    (0, r"http://me:secret@127\.0\.0\.1:\d+ 200\n"), (1, "200\n")])
def test_the_embedded_proxy_of_the_page_serves(
        make_origin, tmp_path, number, printed):
    origin = make_origin()
    block = blocks_of("python.md")[number].replace("http://example.com/", origin.url())
    with run_block(block, tmp_path) as done:
        out, err = done.communicate(timeout=30)
    assert re.fullmatch(printed, out), err


def test_the_watcher_of_the_page_is_told(make_origin, tmp_path):
    *_, block = blocks_of("python.md")
    origin = make_origin()
    with run_block(block, tmp_path) as running:
        try:
            url = running.stdout.readline().strip()
            assert url, running.stderr.read()
            curl = ["curl", "-sx", url, origin.url()]
            subprocess.run(curl, check=True, timeout=30, stdout=subprocess.DEVNULL)
            assert running.stdout.readline() == "username 127.0.0.1 ok\n"
        finally:
            running.terminate()


def test_the_embedding_tells_what_its_command_asked_for(make_origin):
    origin = make_origin()
    ask = f"import urllib.request as r; print(r.urlopen({origin.url()!r}).status)"
    done = subprocess.run(
        [sys.executable, ROOT / "docs/examples/embedded.py", sys.executable, "-c", ask],
        capture_output=True, text=True, timeout=30,
        env=clean_environment(PYTHONPATH=str(ROOT)))
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
    assert done.stderr == f"GET 127.0.0.1 {origin.port} ok\n"


def test_the_fixture_serves_a_test(tmp_path, make_origin):
    origin = make_origin()
    (tmp_path / "conftest.py").write_text(
        (ROOT / "docs/examples/pytest_proxy.py").read_text())
    (tmp_path / "test_it.py").write_text(f"""
import pytest
import urllib.request
from urllib.error import HTTPError

def test_it(proxy):
    handler = urllib.request.ProxyHandler({{"http": proxy.url}})
    opener = urllib.request.build_opener(handler)
    assert opener.open({origin.url()!r}).status == 200
    proxy.closed.add("127.0.0.1")
    with pytest.raises(HTTPError, match="403"):
        opener.open({origin.url()!r})
    assert proxy.asked == [("127.0.0.1", {origin.port})] * 2
""")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env=clean_environment(PYTHONPATH=str(ROOT)))
    assert done.returncode == 0, done.stdout
