"""Captures in a real PostgreSQL: two proxies, outages, and its secret password."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.admin import TOKEN, Operator
from tests.support.origin import answer
from tests.support.postgres import PASSWORD
from tests.support.postgres import postgres as postgres
from tests.support.postgres import server as server
from tests.support.postgres import url_file as url_file
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.verbs import run_apart
from tests.support.wait import takes_less, wait_until

pytestmark = pytest.mark.any_loop

REPLY = (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: id=s3cret-cookie\r\n"
         b"\r\nhello")
POLICY = '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\ncapture = "full"\n'
BEARER = {"Authorization": f"Bearer {TOKEN}"}
_numbers = itertools.count()


@pytest.fixture
def start(tmp_path, loop_name, opened, url_file):
    def run(name="here", config="", **named) -> Proxy:
        policy = tmp_path / "policy.toml"
        policy.write_text(POLICY)
        return opened.enter_context(Proxy(
            tmp_path / f"proxy-{next(_numbers)}", loop=loop_name,
            config=f'policy = "{policy}"\nadmin = "127.0.0.1:0"\n'
                   f'admin_token = "{TOKEN}"\ncapture_url_file = "{url_file}"\n'
                   f'capture_program = "{name}"\n{config}', **named))
    return run


@pytest.fixture
def ask(postgres, url_file):
    """The rows of a statement; empty while the tables, or the server, are not there."""
    def run(statement="SELECT program, url FROM cutthrough.flows ORDER BY id"):
        try:
            return postgres.ask(statement, url_file.read_text().strip())
        except Exception:
            return []
    return run


def operator(proxy) -> Operator:
    port = re.search(r"admin listener on 127\.0\.0\.1:(\d+)", proxy.stderr())[1]
    return Operator(int(port))


def counted(proxy) -> dict[str, int]:
    text = operator(proxy).ask("GET", "/metrics")[1]
    return {name: int(float(n)) for name, n in re.findall(
        r'^cutthrough_capture_exchanges_total\{result="(\w+)"\} (\S+)$', text, re.M)}


def run_flows(url_file: Path, *words: str) -> subprocess.CompletedProcess:
    return run_apart("flows", *words, CUTTHROUGH_CAPTURE_URL_FILE=str(url_file))


def test_requests_of_two_proxies_are_in_one_database_for_all_readers(
        start, ask, make_origin, dial, url_file):
    origin = make_origin(answer(REPLY))
    proxies = [start("first"), start("second")]
    for n, proxy in enumerate(proxies):
        client = dial(proxy)
        assert client.get(origin.url(f"/zebra-{n}")).status == 200
        wait_until(lambda n=n: len(ask()) == n + 1, proxy.stderr)
    assert ask() == [("first", origin.url("/zebra-0")),
                     ("second", origin.url("/zebra-1"))]
    done = run_flows(url_file, "list", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["program"] for one in found] == ["second", "first"], done.stderr
    number = str(found[1]["id"])
    assert "zebra-0" in run_flows(url_file, "search", "ZEBRA", "hello").stdout
    for verb in (("list",), ("search", "hello", "--filter")):
        (line,) = run_flows(
            url_file, *verb, "~program first", "--json").stdout.splitlines()
        assert json.loads(line)["id"] == int(number)
    page = operator(proxies[1]).ask("GET", "/flows?filter=~program+second", **BEARER)[1]
    assert [one["program"] for one in json.loads(page)["flows"]] == ["second"]
    assert "hello" in run_flows(url_file, "show", number).stdout
    assert run_flows(url_file, "tag", number, "--tag", "odd").returncode == 0
    assert json.loads(run_flows(url_file, "export").stdout)["log"]["entries"]
    done = run_flows(url_file, "replay", number, "--proxy",
                     proxies[0].url.split("//")[1].rpartition("@")[2])
    assert "407" in done.stdout + done.stderr
    status, text = operator(proxies[1]).ask("GET", "/flows?search=zebra", **BEARER)[:2]
    assert status == 200 and {
        (one["id"], one.get("tag")) for one in json.loads(text)["flows"]} == {
        (int(number), "odd"), (found[0]["id"], None)}
    assert run_flows(url_file, "delete", "--id", number).returncode == 0
    assert len(ask()) == 1
    logged = run_flows(url_file, "reads").stdout
    assert "search hello --filter ~program first  1 found" in logged
    assert "export" in logged and "admin 127.0.0.1" in logged and " at " in logged


def test_neither_secrets_nor_the_password_are_anywhere(
        start, ask, postgres, make_origin, dial, url_file):
    """R37, R59: searched in all that the database has, and in all output of a proxy."""
    origin = make_origin(answer(REPLY))
    proxy = start(config='capture_redact_query = ["key"]\n'
                         'capture_redact_json = ["$.token"]\n',
                  executed=True)
    client = dial(proxy)
    body = b'{"token": "s3cret-json"}'
    assert client.ask("POST", origin.url("/a?key=s3cret-query"),
                      f"Content-Length: {len(body)}", "Content-Type: application/json",
                      "Authorization: Bearer s3cret-bearer", body=body).status == 200
    wait_until(ask, proxy.stderr)
    dump = postgres.dump(url_file.read_text().strip())
    assert b"[redacted]" in dump and b"s3cret" not in dump
    postgres.kill()
    said = wait_until(lambda: (text := proxy.stderr()) and "cannot be written" in text
                      and text, proxy.stderr)
    seen = [said, operator(proxy).ask("GET", "/metrics")[1],
            operator(proxy).ask("GET", "/config", **BEARER)[1]]
    for verb in ("check", "config"):
        done = subprocess.run(
            [sys.executable, "-m", "cutthrough", verb, "--capture-url-file",
             str(url_file), "--user", "a", "--password", "b" * 20], cwd=ROOT, text=True,
            capture_output=True, timeout=60, env=clean_environment())
        seen.append(done.stdout + done.stderr)
    assert "capture_url" in seen[-1]
    for one in [psutil.Process(proxy.process.pid), *proxy.workers()]:
        seen += [*one.cmdline(), *one.environ().values()]
    assert PASSWORD not in "\n".join(seen)


def test_requests_go_on_while_the_server_is_away(
        start, ask, postgres, make_origin, dial):
    """R58: the rings fill, drops are counted, and kept rows are written later."""
    origin = make_origin(answer(REPLY))
    proxy = start()
    client = dial(proxy)
    assert client.get(origin.url("/before")).status == 200
    wait_until(ask, proxy.stderr)
    postgres.kill()
    assert client.get(origin.url("/while")).status == 200
    wait_until(lambda: "cannot be written: postgresql://" in proxy.stderr(),
               proxy.stderr)
    takes_less(0.5, lambda: client.get(origin.url("/while")), "a request")
    data = b"x" * 400_000

    def send() -> int:
        assert client.ask("POST", origin.url("/while"), f"Content-Length: {len(data)}",
                          body=data).status == 200
        return counted(proxy)["dropped"] + counted(proxy)["partial"]
    wait_until(send, lambda: str(counted(proxy)))
    postgres.start()
    wait_until(lambda: "written again" in proxy.stderr(), proxy.stderr)
    assert client.get(origin.url("/after")).status == 200
    found = wait_until(lambda: (rows := ask()) and rows[-1][1].endswith("/after")
                       and rows, proxy.stderr)
    assert len(found) > 4 and found[1][1].endswith("/while")
    assert proxy.stderr().count("cannot be written") == 1, "once"
    assert counted(proxy)["unwritten"] == 0


def test_a_server_that_does_not_answer_is_left_at_the_end(
        start, ask, postgres, make_origin, dial):
    proxy, origin = start(), make_origin(answer(REPLY))
    client = dial(proxy)
    assert client.get(origin.url("/before")).status == 200
    wait_until(ask, proxy.stderr)
    postgres.pause()
    assert client.get(origin.url("/while")).status == 200
    takes_less(0.5, lambda: client.get(origin.url("/while")), "a request")
    client.close()
    proxy.stop()
    assert PASSWORD not in proxy.stderr()


def test_a_proxy_starts_before_its_server(
        start, ask, postgres, make_origin, dial):
    postgres.kill()
    proxy, origin = start(), make_origin(answer(REPLY))
    client = dial(proxy)
    wait_until(lambda: "captured exchanges cannot be written: postgresql://127.0.0.1:"
               in proxy.stderr(), proxy.stderr)
    assert client.get(origin.url("/early")).status == 200
    status, text = operator(proxy).ask("GET", "/flows", **BEARER)[:2]
    assert status == 503 and "postgresql://127.0.0.1:" in text
    postgres.start()
    wait_until(ask, proxy.stderr)
    assert ask() == [("here", origin.url("/early"))]


def test_a_writer_that_is_killed_leaves_each_row_once(
        start, ask, make_origin, dial):
    proxy, origin = start(), make_origin(answer(REPLY))
    client = dial(proxy)
    for n in range(60):
        assert client.get(origin.url(f"/{n}")).status == 200
        if n % 20 == 10:
            for one in proxy.workers():
                if "cutthrough.storage.writer" in one.cmdline():
                    one.kill()
    wait_until(lambda: len(ask()) + counted(proxy)["dropped"] >= 60,
               lambda: f"{len(ask())} {counted(proxy)}")
    found = [url for _, url in ask()]
    assert len(found) == len({*found}) == 60
