"""Presets of the access log: CSV, LTSV, W3C extended, HAProxy's, and for people."""

import csv
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from base64 import b64encode
from datetime import datetime

import pytest

from tests.support.client import Client, build_request
from tests.support.nginx import free_port
from tests.support.origin import echo
from tests.support.proxy import ROOT
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FORMULA = '=HYPERLINK("http://a.test/","a"),1'
# haproxy's configuration.txt, section 8.2.3, with the request's captures
HTTPLOG = re.compile(
    r"(?P<client>[\d.]+):(?P<port>\d+) \[(?P<accepted>[^]]+)\] (?P<frontend>\S+) "
    r"(?P<backend>[^ /]+)/(?P<server>\S+) "
    r"(?P<TR>-1|\d+)/(?P<Tw>-1|\d+)/(?P<Tc>-1|\d+)/(?P<Tr>-1|\d+)/(?P<Ta>\d+) "
    r"(?P<status>\d{3}) (?P<bytes>\d+) - - (?P<state>[-\w]{4}) "
    r"\d+/\d+/\d+/\d+/\d+ \d+/\d+ \{(?P<user>[^}]*)\} "
    r'"(?P<method>\S+) (?P<url>\S+) HTTP/(?P<version>\S+)"')


@pytest.fixture
def log_to(start_proxy, directory):
    """Starts a proxy that writes a file in this format; returns both."""
    def start(form, *more):
        path = directory("log") / "access.log"
        return start_proxy("--access-log", str(path), "--access-log-format", form,
                           *more), path

    return start


def read_lines(path, n: int) -> list[str]:
    return wait_until(
        lambda: len(lines := path.read_text().splitlines()) >= n and lines,
        lambda: f"{n} lines: {path.read_text()}")


def test_a_csv_is_read_by_a_reader_of_csv(log_to, make_origin, dial):
    """RFC 4180; and no value begins a formula of a spreadsheet."""
    proxy, path = log_to("csv", "--workers", "2")
    origin, tunnelled = make_origin(), make_origin(echo)
    url = origin.url('/a,"b"')
    assert dial(proxy).get(url, f"User-Agent: {FORMULA}").status == 200
    read_lines(path, 2)
    assert dial(proxy).get(url, auth=None).status == 407
    read_lines(path, 3)
    tunnel = dial(proxy)
    tunnel.send(build_request("CONNECT", tunnelled.authority,
                              host=tunnelled.authority))
    assert tunnel.read_response("CONNECT").status == 200
    tunnel.half_close()
    assert tunnel.at_eof()
    read_lines(path, 4)
    with path.open(newline="") as file:
        first, second, third = csv.DictReader(file, strict=True)
    assert (first["client"], first["user"], first["method"], first["url"]) == (
        "127.0.0.1", "user", "GET", url)
    assert (first["status"], first["reason"], first["origin"]) == (
        "200", "ok", "127.0.0.1")
    assert first["user_agent"] == "'" + FORMULA
    assert abs(datetime.fromisoformat(first["time"]).timestamp() - time.time()) < 60
    assert (second["status"], second["reason"], second["user"], second["origin"],
            second["user_agent"]) == ("407", "auth_required", "", "", "")
    assert (third["method"], third["url"]) == ("CONNECT", tunnelled.authority)
    assert int(first["bytes_down"]) > 0 and float(third["total_ms"]) > 0


def test_each_line_of_w3c_has_the_fields_of_its_heading(log_to, make_origin, dial):
    proxy, path = log_to("w3c", "--workers", "2")
    url = make_origin().url("/page?a=b c")
    assert dial(proxy).get(make_origin().url(), "User-Agent: a b").status == 200
    assert dial(proxy).get(url.replace(" ", "%20"), auth=None).status == 407
    version, fields, *lines = read_lines(path, 4)
    assert version == "#Version: 1.0"
    names = fields.removeprefix("#Fields: ").split(" ")
    rows = [dict(zip(names, line.split(" "), strict=True)) for line in lines]
    by_status = {row["sc-status"]: row for row in rows}
    assert by_status["200"]["cs(User-Agent)"] == "a%20b"
    assert by_status["200"]["x-reason"] == "ok"
    assert by_status["407"]["cs-username"] == "-" == by_status["407"]["r-ip"]
    for row in rows:
        datetime.fromisoformat(f"{row['date']}T{row['time']}+00:00")
        assert re.fullmatch(r"\d+\.\d{3}", row["time-taken"])


def test_a_file_that_is_rotated_has_its_heading_again(log_to, make_origin, dial):
    proxy, path = log_to("csv", "--workers", "2")
    url = make_origin().url()
    assert dial(proxy).get(url).status == 200
    heading, _ = read_lines(path, 2)
    path.rename(path.with_suffix(".1"))
    proxy.signal(signal.SIGUSR1)
    wait_until(path.exists, "the new file")
    assert dial(proxy).get(url).status == 200
    again, line = read_lines(path, 2)
    assert again == heading and line.startswith("2")
    proxy.stop()
    assert path.read_text().count(heading) == 1


def test_a_file_that_has_lines_gets_no_heading(log_to, make_origin, dial, directory):
    path = directory("log") / "access.log"
    path.write_text("a line\n")
    proxy, path = log_to("csv")
    assert dial(proxy).get(make_origin().url()).status == 200
    assert len(read_lines(path, 2)) == 2


@pytest.mark.parametrize(("name", "begin"), [
    ("access.json", '{"time":"'), ("access.jsonl", '{"time":"'),
    ("access.ltsv", "time:"), ("access.csv", "time,client,user,")])
def test_the_name_of_a_file_chooses_the_format(
        start_proxy, make_origin, dial, directory, name, begin):
    """A file access.json had squid's lines, which no reader of JSON takes."""
    path = directory("log") / name
    proxy = start_proxy("--access-log", str(path), "--access-log-format", "auto")
    assert dial(proxy).get(make_origin().url()).status == 200
    assert read_lines(path, 1)[0].startswith(begin)


def test_the_labels_of_ltsv(log_to, make_origin, dial):
    proxy, path = log_to("ltsv")
    url = make_origin().url("/a?b=c:d")
    assert dial(proxy).get(url, "User-Agent: a\tb: c").status == 200
    (line,) = read_lines(path, 1)
    values = dict(part.split(":", 1) for part in line.split("\t"))
    assert (values["host"], values["user"], values["method"], values["uri"],
            values["status"], values["reason"]) == (
        "127.0.0.1", "user", "GET", url, "200", "ok")
    assert values["ua"] == "a%09b:%20c" and values["referer"] == "-"
    assert float(values["reqtime"]) < 60
    datetime.strptime(values["time"], "%d/%b/%Y:%H:%M:%S %z")


def test_a_line_of_haproxy(log_to, make_origin, dial):
    proxy, path = log_to("haproxy")
    url = make_origin().url("/page")
    client = dial(proxy)
    assert client.get(url).status == 200
    assert dial(proxy).get(url, auth=None).status == 407
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502
    served, denied, failed = map(HTTPLOG.fullmatch, read_lines(path, 3))
    assert served and denied and failed, path.read_text()
    assert served["port"] == str(client.sock.getsockname()[1])
    assert (served["user"], served["method"], served["url"], served["state"]) == (
        "user", "GET", url, "----")
    assert "-1" not in served.group("TR", "Tw", "Tc", "Tr", "Ta")
    accepted = datetime.strptime(served["accepted"], "%d/%b/%Y:%H:%M:%S.%f")
    assert abs(accepted.timestamp() - time.time()) < 60
    assert (denied["status"], denied["state"]) == ("407", "PR--")
    assert denied.group("Tc", "Tr") == ("-1", "-1")
    assert (failed["status"], failed["state"]) == ("502", "SC--")


@pytest.mark.parametrize("name", ["}", "{", "a|b", '} "GET http://a.test/ HTTP/1.1'])
def test_no_name_ends_the_braces_of_haproxy(log_to, dial, name):
    """R37: with a `}` in the name of a failed login no reader took the line."""
    proxy, path = log_to("haproxy")
    login = b64encode(f"{name}:wrong".encode()).decode()
    assert dial(proxy).get("http://127.0.0.1:1/", auth=f"Basic {login}").status == 407
    line = HTTPLOG.fullmatch(*read_lines(path, 1))
    assert line and not set("{|}") & set(line["user"]), path.read_text()
    assert line["status"] == "407"


def test_a_program_behind_a_pipe_takes_samples(
        start_proxy, directory, make_origin, dial):
    """Of every third line; a FIFO, which the program opens for both, so that it does
    not end with a writer, as at a reload."""
    fifo, sampled = directory("log") / "fifo", directory("log") / "sampled"
    os.mkfifo(fifo)
    with open(sampled, "w") as out, open(fifo, "r+b", buffering=0) as lines, (
            subprocess.Popen(["sed", "-un", "1~3s/^200 //p"], stdin=lines, stdout=out)
            ) as sed:
        try:
            proxy = start_proxy("--access-log", str(fifo), "--access-log-format",
                                "%>Hs %ru")
            origin, client = make_origin(), dial(proxy)
            urls = [origin.url(f"/{n}") for n in range(7)]
            for url in urls:
                assert client.get(url).status == 200
            assert read_lines(sampled, 3) == urls[::3]
        finally:
            sed.terminate()


def test_a_format_has_tabs(start_proxy, make_origin, dial):
    proxy = start_proxy("--access-log-format", r"a:%un\tb:%>Hs")
    assert dial(proxy).get(make_origin().url()).status == 200
    assert wait_until(proxy.lines, "a line") == ["a:user\tb:200"]


def run_on_terminal(opened, monkeypatch, **variables):
    """Serves with the demonstration's defaults, its output a terminal; returns a
    function that reads what the terminal has shown so far."""
    master, slave = pty.openpty()
    opened.callback(os.close, master)
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **variables}.items():
        monkeypatch.setenv(name, value)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "cutthrough", "serve", "--listen", f"127.0.0.1:{port}",
         "--workers", "1"],
        stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=ROOT,
        start_new_session=True)
    os.close(slave)
    opened.callback(process.wait, 30)
    opened.callback(process.terminate)
    shown = bytearray()

    def read() -> str:
        while select.select([master], [], [], 0)[0]:
            shown.extend(os.read(master, 65536))
        return shown.decode()

    wait_until(lambda: "try: curl" in read(), read)
    return port, read


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}],
                         ids=["color", "no-color", "dumb"])
def test_a_terminal_shows_lines_for_people(
        opened, monkeypatch, make_origin, variables):
    port, read = run_on_terminal(opened, monkeypatch, **variables)
    assert f"curl -x http://username:password@127.0.0.1:{port} " in read()
    url = make_origin().url("/page")
    with Client(port) as client:
        client.send(build_request("GET", url, auth=None))
        assert client.read_response().status == 407
        token = b64encode(b"username:password").decode()
        client.send(build_request("GET", url, f"Proxy-Authorization: Basic {token}",
                                  auth=None))
        assert client.read_response().status == 200
    wait_until(lambda: "/page  " in read().split("auth_required")[-1], read)
    lines = [line for line in read().splitlines() if "/page" in line]
    color = not variables
    assert [("\x1b[33m407" in line, "\x1b[32m200" in line) for line in lines] == (
        [(color, False), (False, color)])
    plain = [re.sub(r"\x1b\[\d+m", "", line) for line in lines]
    assert re.fullmatch(
        rf"\d\d:\d\d:\d\d 407 auth_required      -          GET     {re.escape(url)}  "
        r"\d+ B  \d+\.\d{3} ms", plain[0]), plain
    assert re.fullmatch(
        rf"\d\d:\d\d:\d\d 200 ok                 username   GET     {re.escape(url)}  "
        r"\d+ B  \d+\.\d{3} ms", plain[1]), plain
