"""The access log: one line for each request and tunnel; no client can forge one."""

import os
import signal
import threading
import time
from datetime import datetime

import pytest

from tests.support.client import CREDENTIALS, PASSWORD, WRONG, build_request
from tests.support.lines import read_line
from tests.support.log_formats import FIELDS, SQUID
from tests.support.origin import OK, echo
from tests.support.preload import build_preload
from tests.support.sanitized import SANITIZED
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

PATH_FIELDS = {
    "client_rtt_ms",
    "client_retransmits",
    "origin_rtt_ms",
    "origin_retransmits",
}


def test_a_request_has_every_field(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    url = origin.url("/path?query=1")
    assert client.ask("POST", url, "Content-Length: 3", body=b"abc").status == 200
    (record,) = proxy.wait_log(1)
    assert set(record) == FIELDS
    assert {
        key: record[key]
        for key in ("method", "host", "port", "url", "status", "reason", "user")
    } == {
        "method": "POST",
        "host": "127.0.0.1",
        "port": origin.port,
        "url": url,
        "status": 200,
        "reason": "ok",
        "user": "user",
    }
    assert record["client"].startswith("127.0.0.1")
    assert origin.authority.startswith(
        record["peer"].rpartition(":")[0] or record["peer"]
    )
    assert record["bytes_up"] >= 3 and record["bytes_down"] >= 2
    assert record["path"] in ("copy", "splice")
    assert 0 <= record["total_ms"] < 15_000


def test_the_time_is_when_it_was(proxy, make_origin, dial):
    before = time.time()
    dial().get(make_origin().url())
    (record,) = proxy.wait_log(1)
    at = datetime.fromisoformat(record["time"]).timestamp()
    assert before - 1 <= at <= time.time() + 1


def test_ids_are_unique(proxy, make_origin, dial):
    client, url = dial(), make_origin().url()
    for _ in range(5):
        client.get(url)
    dial().get(url)
    assert len({record["id"] for record in proxy.wait_log(6)}) == 6


def test_lines_are_written_in_batches(proxy, make_origin, dial):
    """One write each 100 ms: it was one for each line. The number is the kernel's."""
    client, url = dial(), make_origin().url()
    worker = proxy.worker
    assert client.get(url).status == 200
    proxy.wait_log(1)
    before, began = worker.io_counters().write_count, time.monotonic()
    for _ in range(200):
        assert client.get(url).status == 200
    proxy.wait_log(201)
    batches = (time.monotonic() - began) / 0.1 + 2
    assert worker.io_counters().write_count - before <= batches


def test_a_tunnel_is_one_line_at_its_end(proxy, make_origin, dial):
    origin = make_origin(echo)
    tunnel = dial().tunnel(f"localhost:{origin.port}")
    tunnel.send(b"12345")
    assert tunnel.read_exact(5) == b"12345"
    assert proxy.log() == []
    tunnel.half_close()
    assert tunnel.at_eof()
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["host"], record["url"]) == (
        "CONNECT",
        "localhost",
        f"localhost:{origin.port}",
    )
    assert (record["bytes_up"], record["bytes_down"], record["status"]) == (5, 5, 200)


def test_a_tunnels_line_tells_of_its_path(proxy, make_origin, dial):
    """The kernel's measurements of both connections, if there were two."""
    tunnel = dial().tunnel(make_origin(echo).authority)
    tunnel.send(b"12345")
    assert tunnel.read_exact(5) == b"12345"
    tunnel.reset()
    (record,) = proxy.wait_log(1, reason="client_reset")
    assert set(record) == FIELDS | PATH_FIELDS
    assert 0 < record["client_rtt_ms"] < 1000 and 0 < record["origin_rtt_ms"] < 1000
    assert record["client_retransmits"] >= 0 and record["origin_retransmits"] >= 0
    dial().connect("127.0.0.1:1")
    (record,) = proxy.wait_log(1, reason="connection_refused")
    assert set(record) == FIELDS and record["peer"] == "127.0.0.1"


def test_each_request_of_a_connection_is_a_line(proxy, make_origin, dial):
    origin = make_origin()
    client = dial()
    for n in range(4):
        client.get(origin.url(f"/{n}"))
    assert [record["url"] for record in proxy.wait_log(4)] == [
        origin.url(f"/{n}") for n in range(4)
    ]


@pytest.mark.parametrize("auth", [None, WRONG])
def test_a_refused_request_names_no_user(proxy, make_origin, dial, auth):
    """R23, R37: no user was identified; the attempt is not written down."""
    dial().get(make_origin().url(), auth=auth)
    (record,) = proxy.wait_log(1)
    assert record["user"] in (None, "", "-")
    assert record["status"] == 407


FORGED = [
    b'GET http://127.0.0.1:1/"quoted" HTTP/1.1\r\nHost: x\r\n',
    b"GET http://127.0.0.1:1/back\\slash HTTP/1.1\r\nHost: x\r\n",
    b"GET http://127.0.0.1:1/\xc3\xa9\xff\x80 HTTP/1.1\r\nHost: x\r\n",
    b"GET http://127.0.0.1:1/%0a%0dforged HTTP/1.1\r\nHost: x\r\n",
    b"GET http://127.0.0.1:1/a\x0bb\x1b[31m HTTP/1.1\r\nHost: x\r\n",
    b'G"E\\T http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n',
    b"GET http://127.0.0.1:1/a\nforged line HTTP/1.1\r\nHost: x\r\n",
]


@pytest.mark.parametrize("raw", FORGED)
def test_no_line_can_be_forged(proxy, dial, raw):
    """R37: a request with any content is one line of valid JSON."""
    client = dial()
    client.send(raw + f"Proxy-Authorization: {CREDENTIALS}\r\n\r\n".encode())
    assert client.read_response().status in (400, 502)
    (record,) = proxy.wait_log(1)
    text = "\n".join(proxy.lines())
    assert text.isprintable()
    assert set(record) == FIELDS


def test_credentials_are_never_written_down(proxy, make_origin, dial):
    """R37: not in the log, not on the terminal."""
    origin = make_origin()
    dial().get(origin.url())
    dial().get(origin.url(), auth=WRONG)
    dial().get(origin.url(), f"Proxy-Authorization: {CREDENTIALS}")
    dial().get(f"http://user:{PASSWORD}@{origin.authority}/")
    proxy.wait_log(4)
    told = "\n".join(proxy.lines()) + proxy.stderr()
    for secret in (PASSWORD, CREDENTIALS.split()[1], WRONG.split()[1]):
        assert secret not in told


@pytest.mark.parametrize("form", ["json", "squid"])
def test_what_could_not_be_read_is_shown_without_credentials(start_proxy, dial, form):
    """The line had "-" in place of the client's request."""
    proxy = start_proxy("--access-log-format", form)
    for line in ("CONNECT a.test", "GET https://a.test/x", "PURGE /page?x",
                 f"GET http://user:{PASSWORD}@a.test/"):
        client = dial(proxy)
        client.send(f"{line} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert client.read_response().status == 400
    wait_until(lambda: len(proxy.lines()) == 4, lambda: f"{proxy.lines()}")
    if form == "json":
        found = [(line["method"], line["url"], line["host"]) for line in proxy.log()]
    else:
        rows = [SQUID.match(line) for line in proxy.lines()]
        found = [(row["method"], row["url"], None) for row in rows]
    assert found == [
        ("CONNECT", "a.test", None), ("GET", "https://a.test/x", None),
        ("PURGE", "/page?x", None), ("GET", "http://***@a.test/", None)]


def test_squids_native_format(start_proxy, make_origin, dial):
    proxy = start_proxy("--access-log-format", "squid")
    origin, tunnelled = make_origin(), make_origin(echo)
    url = origin.url("/page")
    assert dial(proxy).get(url).status == 200
    assert dial(proxy).get(url, auth=None).status == 407
    tunnel = dial(proxy).tunnel(tunnelled.authority)
    tunnel.half_close()
    assert tunnel.at_eof()
    wait_until(lambda: len(proxy.lines()) == 3, lambda: f"three lines: {proxy.lines()}")
    rows = []
    for line in proxy.lines():
        match = SQUID.match(line)
        assert match, line
        rows.append(
            tuple(
                match[name]
                for name in ("tag", "status", "method", "url", "user", "hier")
            )
        )
        assert abs(float(match["time"]) - time.time()) < 60
    assert rows == [
        ("TCP_MISS", "200", "GET", url, "user", "HIER_DIRECT"),
        ("TCP_DENIED", "407", "GET", url, "-", "HIER_NONE"),
        ("TCP_TUNNEL", "200", "CONNECT", tunnelled.authority, "user", "HIER_DIRECT"),
    ]


@pytest.mark.parametrize("raw", FORGED)
def test_no_squid_line_can_be_forged(start_proxy, dial, raw):
    proxy = start_proxy("--access-log-format", "squid")
    client = dial(proxy)
    client.send(raw + f"Proxy-Authorization: {CREDENTIALS}\r\n\r\n".encode())
    client.read_response()
    wait_until(lambda: proxy.lines(), "a line")
    (line,) = proxy.lines()
    assert SQUID.match(line), line
    assert line.isprintable() and line.isascii()


def test_sigusr1_reopens_the_log(start_proxy, make_origin, dial):
    """As logrotate does it: rename, signal; lines go to the new file, all of them."""
    proxy = start_proxy("--workers", "2")
    origin = make_origin()
    assert dial(proxy).get(origin.url("/before")).status == 200
    proxy.wait_log(1)
    rotated = proxy.log_path.with_suffix(".1")
    proxy.log_path.rename(rotated)
    proxy.signal(signal.SIGUSR1)
    wait_until(proxy.log_path.exists, "a new file")

    def open_of_old() -> list[int]:
        return [
            w.pid
            for w in proxy.workers()
            if str(rotated) in {f.path for f in w.open_files()}
        ]

    wait_until(lambda: not open_of_old(), "the old file let go")
    assert dial(proxy).get(origin.url("/after")).status == 200
    assert [record["url"] for record in proxy.wait_log(1)] == [origin.url("/after")]
    assert origin.url("/before") in rotated.read_text()


def test_lines_of_many_workers_are_whole(start_proxy, make_origin, dial):
    proxy = start_proxy("--workers", "2")
    url = make_origin().url("/" + "long" * 300)
    clients = [dial(proxy) for _ in range(16)]
    for _ in range(10):
        for client in clients:
            client.send(build_request("GET", url))
        for client in clients:
            assert client.read_response().status == 200
    records = proxy.wait_log(160)
    assert len(records) == 160 and {record["url"] for record in records} == {url}
    assert len({record["worker"] for record in records}) == 2


def read_pipe(path, n: int, ended: threading.Event, lines: list[bytes]) -> None:
    """The pipe's lines, read in pieces that are smaller than the writes."""
    rest = b""
    with open(path, "rb", buffering=0) as pipe:
        while len(lines) < n and not ended.is_set():
            *whole, rest = (rest + pipe.read(512)).split(b"\n")
            lines += whole


@pytest.mark.parametrize("form", ["json", "squid"])
def test_lines_in_a_pipe_of_many_workers_are_whole(
    start_proxy, make_origin, dial, directory, form
):
    """Lines longer than PIPE_BUF, 4096 bytes, were torn by lines of other workers."""
    pipe = directory("pipe") / "log"
    os.mkfifo(pipe)
    lines: list[bytes] = []
    ended = threading.Event()
    # Two for each: the reader waits for a writer to open, the writers for a reader.
    reader = threading.Thread(target=read_pipe, args=(pipe, 400, ended, lines))
    reader.start()
    try:
        proxy = start_proxy(
            "--workers", "2", "--access-log", str(pipe), "--access-log-format", form
        )
        url = make_origin().url("/" + "%\\" * 2900)
        clients = [dial(proxy) for _ in range(20)]
        for n in range(20, 401, 20):  # no faster than read: that would drop lines
            for client in clients:
                client.send(build_request("GET", url))
            for client in clients:
                assert client.read_response().status == 200
            wait_until(lambda n=n: len(lines) == n, lambda: f"lines: {len(lines)}")
    finally:
        ended.set()
        reader.join(20)
    for line in lines:
        assert len(line) < 4096
        text = line.decode()
        found = read_line(text)["url"] if form == "json" else SQUID.match(text)["url"]
        assert found.endswith("…"), "what was cut is marked"
        written = found[:-1] if form == "json" else found[:-1].replace("%5c", "\\")
        assert url.startswith(written) and len(found) > 1500


def test_a_long_path_is_whole_in_a_file(proxy, make_origin, dial):
    url = make_origin().url("/" + "long" * 1500)
    dial().get(url)
    assert proxy.wait_log(1)[0]["url"] == url


def test_a_path_too_long_for_a_line_is_cut_and_marked(proxy, make_origin, dial):
    """Each byte becomes two: more than a line has room for, in a file too."""
    url = make_origin().url("/" + "\\" * 6000)
    dial().get(url)
    found = proxy.wait_log(1)[0]["url"]
    assert url.startswith(found[:-1]) and found[-1] == "…"


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static int later;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(clock, now);
    if (!later && !access(getenv("LATER"), F_OK)) later = 1;
    if (later && clock == CLOCK_MONOTONIC) now->tv_sec += 7200;
    return r;
}
"""


@pytest.mark.skipif(SANITIZED, reason="preloads a clock of its own")
def test_a_response_that_takes_two_hours_is_logged_so(
    start_proxy, make_origin, dial, directory
):
    """Microseconds in 32 bits are over after 72 minutes: the log had 48 for 120."""
    base = directory("clock")
    later = base / "later"

    def answer_later(conn):
        conn.read_request()
        later.touch()
        conn.send(OK)

    env = {**build_preload(base, CLOCK), "LATER": str(later)}
    proxy = start_proxy("--response-timeout", "10h", env=env)
    assert dial(proxy).get(make_origin(answer_later).url()).status == 200
    wait_until(proxy.lines, "a line")  # `log` would not believe its time
    record = read_line(proxy.lines()[0])
    assert 7_200_000 <= record["first_byte_ms"] < 7_300_000


def test_off_means_off(start_proxy, make_origin, dial):
    proxy = start_proxy("--access-log", "off")
    assert dial(proxy).get(make_origin().url()).status == 200
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0
    assert not proxy.log_path.exists()
