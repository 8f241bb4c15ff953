"""`cutthrough flows replay`: a captured request once more, judged by a proxy."""

import json
import sqlite3

import pytest

from tests.capture.flows import row
from tests.support.captures import POLICY, flows, wait_rows
from tests.support.client import PASSWORD, USER
from tests.support.flows import fill

pytestmark = pytest.mark.any_loop


@pytest.fixture
def heard():
    return []


@pytest.fixture
def setting(start_policy, make_origin, dial, tmp_path, heard):
    """A proxy, its database with one flow, and words for its user."""
    database = tmp_path / "flows.db"
    proxy = start_policy(POLICY.format(mode="full", action="allow"),
                         f'capture_file = "{database}"\n')

    def script(stream):
        asked = stream.read_request()
        heard.append(asked)
        stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")

    origin = make_origin(script)
    with dial(proxy) as client:
        client.ask("POST", origin.url("/a"), "Cookie: a=b", "X-Old: 1",
                   "Content-Length: 3", body=b"\x00\xff1")
    (tmp_path / "password").write_text(PASSWORD)
    wait_rows(database)
    return proxy, origin, database, (
        "--proxy", f"127.0.0.1:{proxy.port}", "--user", USER, "--password-file",
        str(tmp_path / "password"))


def test_a_request_is_sent_once_more_without_what_was_not_kept(setting, heard):
    _, _, database, words = setting
    done = flows(database, "replay", "1", *words)
    assert done.returncode == 0 and done.stdout.startswith("HTTP/1.1 200 OK\n")
    assert done.stdout.endswith("\n\nyes")
    assert done.stderr == "cutthrough: not kept, and left out: Cookie\n"
    first, second = heard
    assert second.start == first.start and second.body == first.body == b"\x00\xff1"
    assert second.get("X-Old") == "1" and second.get("Cookie") is None
    assert wait_rows(database, 2)[1]["user"] == USER
    assert "replay 1  1 found" in flows(database, "reads").stdout


def test_it_is_edited_on_the_way(setting, heard, tmp_path):
    _, origin, database, words = setting
    (tmp_path / "body").write_text("new")
    done = flows(database, "replay", "1", *words, "--method", "PUT", "--url",
                 origin.url("/b"), "-H", "X-Old:", "-H", "Cookie: c=d", "--data-file",
                 str(tmp_path / "body"), "--json")
    found = json.loads(done.stdout)
    assert (done.stderr, found["status"], found["body"]) == ("", 200, "eWVz")
    asked = heard[1]
    assert asked.start[:2] == ["PUT", "/b"] and asked.body == b"new"
    assert asked.get("X-Old") is None and asked.get("Cookie") == "c=d"


def test_the_proxy_judges_it(setting, heard):
    _, _, database, words = setting
    done = flows(database, "replay", "1", *words[:2])
    assert done.stdout.startswith("HTTP/1.1 407 ") and len(heard) == 1
    done = flows(database, "replay", "1", *words, "--url", "http://192.0.2.1/")
    assert done.stdout.startswith("HTTP/1.1 403 ")


def test_what_cannot_be_replayed_is_explained(setting):
    """A tunnel that was intercepted is a row of its CONNECT, or of SOCKS."""
    _, _, database, words = setting
    fill(database, [row(50, kind="tunnel", url="a.test:443"),
                    row(51, method="SOCKS5", url="a.test:443")])
    for number, more, status, text in (
            ("9", (), 1, "there is no flow 9"), ("2", (), 1, "is a tunnel"),
            ("3", (), 1, "is a tunnel"),
            ("1", ("--url", "ftp://a/"), 1, "begins with http://"),
            ("1", ("-H", "odd"), 2, "has no colon"),
            ("1", ("--proxy", "here"), 2, "is not host:port"),
            ("1", ("--proxy", "127.0.0.1:1"), 1, "no answer")):
        done = flows(database, "replay", number, *words, *more)
        assert done.returncode == status and text in done.stderr, done.stderr


def test_the_difference_from_the_captured_response_is_shown(setting):
    _, _, database, words = setting
    done = flows(database, "replay", "1", *words, "--diff")
    assert (done.returncode, done.stdout) == (0, "no difference\n")
    base = sqlite3.connect(database)
    with base:
        base.execute("UPDATE flows SET response_body = 'no', response_head = "
                     "replace(response_head, '200 OK', '404 No')")
    base.close()
    done = flows(database, "replay", "1", *words, "--diff")
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines()[2:] if line[0] in "+-"] == [
        "-404 No", "+200 OK", "-no", "+yes"]


def test_a_new_request_is_sent_without_a_database(setting, heard, tmp_path):
    _, origin, _, words = setting
    (tmp_path / "body").write_text("new")
    done = flows("", "send", origin.url("/new"), *words, "-H", "X-New: 1")
    assert done.stdout.endswith("\n\nyes"), done.stderr
    done = flows("", "send", origin.url("/new"), *words, "--data-file",
                 str(tmp_path / "body"))
    assert done.returncode == 0, done.stderr
    assert [one.start[:2] for one in heard[1:]] == [["GET", "/new"], ["POST", "/new"]]
    assert heard[1].get("X-New") == "1" and heard[2].body == b"new"


def test_a_command_of_curl_is_sent(setting, heard, tmp_path):
    """As browsers copy it; the flags of the command line count before it."""
    _, origin, _, words = setting
    copied = tmp_path / "copied"
    copied.write_text(f"curl '{origin.url('/pasted')}' \\\n  -H 'X-New: 1' "
                      "--data-raw 'a=1' --compressed\n")
    done = flows("", "send", "--curl", str(copied), *words, "-H", "X-New: 2")
    assert done.stdout.endswith("\n\nyes"), done.stderr
    assert heard[1].start[:2] == ["POST", "/pasted"] and heard[1].body == b"a=1"
    assert heard[1].get("X-New") == "2"
    copied.write_text(f"curl {origin.url('/')} -d @secrets")
    done = flows("", "send", "--curl", str(copied), *words)
    assert done.returncode == 2
    assert "--curl: the command names a file, and files are not read" in done.stderr
    done = flows("", "send", *words)
    assert (done.returncode, len(heard)) == (2, 2)
