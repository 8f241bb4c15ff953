"""`cutthrough inspect`: everything that passes is opened and kept, in one command."""

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from cutthrough.tools import behind
from tests.support.inside import certificate, okay, origins, over_tls
from tests.support.nginx import free_port
from tests.support.programs import need
from tests.support.proxy import ROOT, clean_environment
from tests.support.wait import wait_until


@pytest.fixture
def home(directory):
    return directory("home")


@pytest.fixture
def environ(home):
    return clean_environment(
        HOME=str(home), CUTTHROUGH_DNS_OVERRIDES="a.example=127.0.0.1",
        CUTTHROUGH_ORIGIN_CA=str(origins().own.certificate))


@pytest.fixture
def run(environ):
    def do(*words, **more):
        done = subprocess.run(
            [sys.executable, "-m", "cutthrough", *words], cwd=ROOT,
            env={**environ, **more}, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr
    return do


@pytest.fixture
def urls(make_origin):
    """Of an origin without TLS and of one with it."""
    certificate()
    return (f"http://127.0.0.1:{make_origin(okay).port}/a",
            f"https://a.example:{make_origin(over_tls(okay)).port}/b")


def kept(run):
    """Method, URL, status and the response's body of each flow, the oldest first."""
    status, out, errors = run("flows", "export")
    assert status == 0, errors
    entries = json.loads(out)["log"]["entries"]
    return [(one["request"]["method"], one["request"]["url"], one["response"]["status"],
             one["response"]["content"].get("text")) for one in entries
            if one["request"]["method"] != "CONNECT"]


def test_what_a_command_sends_is_opened_and_kept(run, urls, home):
    need("curl")
    status, out, errors = run("inspect", "--", "curl", "-sS", *urls)
    assert (status, out) == (0, "okok"), errors
    assert "2 more in" not in errors         # the CONNECT is one, too
    assert f"3 more in {home}/" in errors and errors.rstrip().endswith(" flows list")
    assert kept(run) == [("GET", url, 200, "ok") for url in urls]
    folder = home / ".local/state/cutthrough/inspect"
    for name in ("password", "token", "flows.db", "policy.toml"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.parametrize("words,status,why", [
    (("--", "false"), 1, "0 more in"),
    (("--", "no-such-command"), 127, "no-such-command: not found"),
    (("--listen", "127.0.0.1:0", "--", "true"), 2, "takes no --listen"),
    (("--listen", "nowhere"), 2, "nowhere"),
    (("-c", "/none.toml", "--", "true"), 2, "/none.toml"),
])
def test_its_status_is_the_command_s_or_it_says_why_not(run, words, status, why):
    found, _, errors = run("inspect", *words)
    assert found == status and why in errors


def test_without_a_command_it_serves_a_shell_and_shows_the_page(run, urls, environ):
    need("curl")
    port, admin = free_port(), free_port()
    where = ("--listen", f"127.0.0.1:{port}")
    with subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "inspect", *where, "--admin",
             f"127.0.0.1:{admin}"], cwd=ROOT, env=environ, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            printed = ""
            while "serving" not in printed and "listening on" not in printed:
                printed += process.stderr.readline()
            (line,) = [one for one in printed.splitlines() if " a shell " in one]
            command = shlex.split(line.partition('"$(')[2].removesuffix(')"'))
            status, exports, errors = run(*command[1:])
            assert status == 0, errors
            done = subprocess.run(
                ["sh", "-c", 'eval "$1"; curl -sS "$2" "$3"', "sh", exports, *urls],
                env=environ, capture_output=True, text=True, timeout=30)
            assert done.stdout == "okok", done.stderr
            page = f"http://127.0.0.1:{admin}"
            secrets = parse_qs(printed.partition(f"{page}/traffic#")[2].split()[0])
            (token,) = secrets["token"]
            assert f"{secrets['user'][0]}:{secrets['password'][0]}@" in exports
            wait_until(lambda: len(flows(page, token)) == 3, "all three are shown")
            assert urls[1] in [one["url"] for one in flows(page, token)]
            with urllib.request.urlopen(f"{page}/ca.pem", timeout=10) as found:
                assert b"BEGIN CERTIFICATE" in found.read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert run("inspect", *where, "--env")[1] == exports     # also the next time


def test_the_next_ports_are_taken_if_others_listen(environ):
    """The first ports of both, unless they are given."""
    with contextlib.ExitStack() as stack:
        for port in 8888, 8889, 9090:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        process = stack.enter_context(subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "inspect"], cwd=ROOT, env=environ,
            text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        stack.callback(process.send_signal, signal.SIGTERM)
        output = ""
        while "listening on" not in output:
            line = process.stderr.readline()
            assert line, output
            output += line
    assert process.returncode == 0
    assert "127.0.0.1:8888 is in use: 127.0.0.1:8890 takes its place" in output
    assert "http://127.0.0.1:9091/traffic#" in output
    assert "--env --listen 127.0.0.1:8890)" in output
    assert "listening on 127.0.0.1:8890" in output


def flows(page, token):
    request = urllib.request.Request(
        f"{page}/flows", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as found:
        return json.load(found)["flows"]


def test_a_configuration_that_would_not_apply_is_refused(run, directory):
    """R92: the rules of this policy did not decide, and no message reported that."""
    file = directory("own") / "own.toml"
    file.write_text('policy = "rules.toml"\nconnect_timeout = "3s"\n')
    for words in (("inspect", "-c", str(file), "--", "true"),
                  ("inspect", "-c", str(file)),
                  ("run", "--cassette", "one", "-c", str(file), "--", "true")):
        status, out, errors = run(*words)
        assert (status, out) == (2, "")
        assert errors.startswith(
            f"cutthrough: {file}:1: policy: `cutthrough {words[0]}` has its own, and "
            "this one would not apply: give a file without it\n")
    file.write_text('connect_timeout = "3s"\n')
    assert run("inspect", "-c", str(file), "--", "true")[0] == 0
    for words in (("inspect",), ("run", "--cassette", "one", "--", "true")):
        status, out, errors = run(*words, CUTTHROUGH_POLICY="rules.toml")
        assert (status, out) == (2, "")
        assert errors.startswith(
            f"cutthrough: environment: CUTTHROUGH_POLICY: `cutthrough {words[0]}` has "
            "its own, and this one would not apply: unset it\n")


def test_a_tool_inside_a_tool_does_not_trust_the_other_s_authority(run, directory):
    """R92: the variables that `inspect` sets were taken for the system's roots."""
    outer, inner = directory("outer"), directory("inner")
    status, out, errors = run(
        "inspect", "--ca", str(outer / "ca"), "--", sys.executable, "-m", "cutthrough",
        "run", "--cassette", "one", "--ca", str(inner / "ca"),
        "--", "sh", "-c", "cat $SSL_CERT_FILE")
    assert status == 0, errors
    assert (inner / "ca/ca.pem").read_text().strip() in out
    assert (outer / "ca/ca.pem").read_text().strip() not in out


def test_what_a_tool_sets_is_known_again():
    set_once = behind.environment(
        {"SSL_CERT_FILE": "/corp.pem", "A": "b"}, "http://proxy", Path("/ours.pem"))
    assert set_once["SSL_CERT_FILE"] == "/ours.pem"
    assert behind.outside(set_once) == {"SSL_CERT_FILE": "/corp.pem", "A": "b"}
    again = behind.environment(set_once, "http://two", Path("/two.pem"))
    assert behind.outside(again) == {"SSL_CERT_FILE": "/corp.pem", "A": "b"}
    changed = behind.outside(again | {"SSL_CERT_FILE": "/mine.pem"})
    assert changed["SSL_CERT_FILE"] == "/mine.pem", "somebody has set it since"
