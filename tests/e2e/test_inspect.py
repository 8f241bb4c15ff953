"""`cutthrough inspect`: everything that passes is opened and kept, in one command."""

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
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
            while " see it " not in printed:
                printed += process.stderr.readline()
            for number in port, admin:       # which answer when they are printed
                socket.create_connection(("127.0.0.1", number), 10).close()
            while " shell " not in printed:
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
        output = printed_by_inspect(environ)
    assert "127.0.0.1:8888 is in use: 127.0.0.1:8890 takes its place" in output
    assert "http://127.0.0.1:9091/traffic#" in output
    assert "--env --listen 127.0.0.1:8890)" in output
    assert "listening on 127.0.0.1:8890" in output


def test_of_port_0_it_prints_the_port_that_it_has(environ):
    """The commands and the page's address that it printed had the port 0."""
    output = printed_by_inspect(
        environ, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    assert not re.search(r":0\b", output)
    (address,) = re.findall(r"listening on (\S+),", output)
    assert f"--env --listen {address})" in output


def test_it_ends_with_its_terminal(environ):
    """It went on in the background, and kept what passed: SIGHUP was a reload."""
    theirs, ours = pty.openpty()
    with subprocess.Popen(
            ["setsid", "-c", sys.executable, "-m", "cutthrough", "inspect",
             "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], cwd=ROOT,
            env=environ, stdin=ours, stdout=ours, stderr=ours) as process:
        os.close(ours)
        output = b""
        while b"  origins " not in output:
            output += os.read(theirs, 4096)
        process.send_signal(signal.SIGHUP)
        while b"generation 2: " not in output:
            output += os.read(theirs, 4096)
        os.close(theirs)
    assert process.returncode == 0


def printed_by_inspect(environ, *words):
    with subprocess.Popen(
            [sys.executable, "-m", "cutthrough", "inspect", *words], cwd=ROOT,
            env=environ, text=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE) as process:
        output = ""
        while "  origins " not in output:    # the last line of what it prints
            line = process.stderr.readline()
            assert line, output
            output += line
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    return output


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
            f"cutthrough: {file}:1:10: policy: `cutthrough {words[0]}` has its own, "
            "and this one would not apply: give a file without it\n")
    file.write_text('connect_timeout = "3s"\n')
    assert run("inspect", "-c", str(file), "--", "true")[0] == 0


# Of a server, in the shell: each one ended `inspect`, `run` and the plugin
OF_A_SERVER = {
    "CUTTHROUGH_POLICY": "rules.toml", "CUTTHROUGH_CONFIG": "/none.toml",
    "CUTTHROUGH_USERS_FILE": "/none", "CUTTHROUGH_WORKERS": "many",
    "CUTTHROUGH_ROUTE": "corp", "CUTTHROUGH_CONECT_PORTS": "443",
    "CUTTHROUGH_CAPTURE_URL_FILE": "/none", "CUTTHROUGH_ADMIN_TOKEN_FILE": "/none",
    "CUTTHROUGH_PASSWORD_FILE": "/none", "CUTTHROUGH_CAPTURE_URL": "postgresql://a/b"}


def test_variables_of_a_server_do_not_keep_a_tool_from_its_work(run, urls):
    """And those that are usable apply: the origin is found and trusted by two."""
    need("curl")
    status, out, errors = run("inspect", "--", "curl", "-sS", *urls, **OF_A_SERVER)
    assert (status, out) == (0, "okok"), errors
    lines = errors.splitlines()
    assert ("cutthrough: CUTTHROUGH_POLICY does not apply: `cutthrough inspect` has "
            "its own") in lines
    assert ("cutthrough: CUTTHROUGH_ROUTE does not apply: no parent or group is named "
            "'corp'") in lines
    said = {line.split()[1] for line in lines if " does not apply: " in line}
    assert said == {"CUTTHROUGH_" + name for name in (
        "POLICY", "CONFIG", "USERS_FILE", "WORKERS", "ROUTE", "CONECT_PORTS")}
    status, out, errors = run("run", "--cassette", "one", "--", "curl", "-sS", *urls,
                              **OF_A_SERVER)
    assert (status, out) == (0, "okok"), errors
    assert "CUTTHROUGH_POLICY does not apply: `cutthrough run` has its own" in errors


def test_variables_of_a_server_do_not_keep_a_test_from_its_work(environ, directory):
    file = directory("tests") / "test_own.py"
    file.write_text(
        "import os, urllib.request\n"
        "def test_answer(cutthrough):\n"
        "    cutthrough.respond('http://a.example/', text='own')\n"
        "    with urllib.request.urlopen('http://a.example/') as answer:\n"
        "        assert answer.read() == b'own'\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
         "cutthrough.pytest_plugin", "--rootdir", str(file.parent), str(file)],
        cwd=ROOT, env={**environ, **OF_A_SERVER}, capture_output=True, text=True,
        timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_an_origin_of_its_own_authority_is_named_with_the_remedy(run, urls):
    """The client's message was all: "alert unknown ca"."""
    need("curl")
    apart = {"CUTTHROUGH_ORIGIN_CA": ""}
    where = urls[1].split("/")[2]
    status, _, errors = run("inspect", "--", "curl", "-sS", urls[1], **apart)
    assert status == 35
    assert (f"cutthrough: {where}: the origin's certificate is refused: unable to get "
            "local issuer certificate; if it is yours, --origin-ca FILE") in errors
    trusted = ("--origin-ca", str(origins().own.certificate))
    status, out, errors = run(
        "inspect", *trusted, "--", "curl", "-sS", urls[1], **apart)
    assert (status, out) == (0, "ok"), errors
    assert "is refused" not in errors
    status, _, errors = run("inspect", "--origin-ca", "/dev/null", "--", "true")
    assert status == 1 and "/dev/null: has no certificate in PEM" in errors


def test_credentials_are_kept_by_a_flag_alone(run, urls):
    need("curl")
    for flags, value in ((), "[redacted]"), (("--credentials",), "Bearer abc"):
        assert run("inspect", *flags, "--", "curl", "-sS", "-H",
                   "Authorization: Bearer abc", urls[0])[0] == 0
        number = json.loads(run("flows", "list", "--limit", "1", "--json")[1])["id"]
        assert f"Authorization: {value}" in run("flows", "show", str(number))[1]


def test_what_a_command_sent_is_sent_again_by_a_proxy_of_its_own(run, urls, directory):
    """`--proxy` was required, and there was none: it had ended with the command."""
    need("curl")
    assert run("inspect", "--", "curl", "-sS", urls[1])[0] == 0
    status, out, errors = run("flows", "replay", "2")
    assert (status, errors) == (0, "") and out.endswith("ok"), errors
    assert [flow[1:3] for flow in kept(run)] == [(urls[1], 200)] * 2
    status, _, errors = run("flows", "replay", "2", CUTTHROUGH_ORIGIN_CA="")
    assert status == 1 and "--origin-ca FILE trusts" in errors
    other = directory("other") / "flows.db"
    shutil.copy(flows_file(run), other)
    status, _, errors = run("flows", "replay", "2", "--file", str(other))
    assert status == 2 and "--proxy: or --admin is required" in errors


def flows_file(run):
    """Of `inspect`, as it prints it."""
    return run("inspect", "--", "true")[2].partition("more in ")[2].partition(": ")[0]


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
