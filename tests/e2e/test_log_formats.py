"""The access log by presets and formats: its content; no client can forge it."""

import contextlib
import os
import re
import time
from datetime import datetime

import pytest

from cutthrough.config.log_format import CODES
from tests.support.client import CREDENTIALS, build_request
from tests.support.origin import echo
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

COMBINED = re.compile(
    r'^(?P<client>\S+) - (?P<user>\S+) \[(?P<time>[^]]+)\] '
    r'"(?P<method>\S+) (?P<url>\S+) HTTP/(?P<version>\S+)" (?P<status>\d{3}) '
    r'(?P<bytes>\d+) "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)" '
    r'(?P<tag>\w+):(?P<hier>HIER_\w+)$')
AGENT = 'Mozilla/5.0 (X11; "quoted") back\\slash'


def lines_of(proxy, n: int) -> list[str]:
    return wait_until(lambda: len(found := proxy.lines()) >= n and found,
                      lambda: f"{n} lines: {proxy.lines()}")


def test_the_combined_format(start_proxy, make_origin, dial):
    """A tunnel's fields too, though its head is given back when it begins."""
    proxy = start_proxy("--access-log-format", "combined")
    url = make_origin().url("/page?a=1")
    tunnelled = make_origin(echo)
    fields = (f"User-Agent: {AGENT}", "Referer: http://before.test/ä")
    assert dial(proxy).get(url, *fields).status == 200
    assert dial(proxy).get(url, *fields, auth=None).status == 407
    tunnel = dial(proxy)
    tunnel.send(build_request("CONNECT", tunnelled.authority, *fields,
                              host=tunnelled.authority))
    assert tunnel.read_response("CONNECT").status == 200
    tunnel.half_close()
    assert tunnel.at_eof()
    assert dial(proxy).get(url).status == 200
    matches = [COMBINED.match(line) for line in lines_of(proxy, 4)]
    assert all(matches), proxy.lines()
    assert [(m["method"], m["url"], m["user"], m["status"], m["tag"])
            for m in matches] == [
        ("GET", url, "user", "200", "TCP_MISS"),
        ("GET", url, "-", "407", "TCP_DENIED"),
        ("CONNECT", tunnelled.authority, "user", "200", "TCP_TUNNEL"),
        ("GET", url, "user", "200", "TCP_MISS")]
    for match in matches[:3]:
        assert match["agent"] == r'Mozilla/5.0 (X11; \"quoted\") back\\slash'
        assert match["referer"] == r"http://before.test/\xe4"
    assert (matches[3]["agent"], matches[3]["referer"]) == ("-", "-")
    at = datetime.strptime(matches[0]["time"], "%d/%b/%Y:%H:%M:%S %z")
    assert abs(at.timestamp() - time.time()) < 60


def test_every_code_says_something(start_proxy, make_origin, dial):
    codes = [code for code in CODES if code != ">h"]
    fields = {"tl": "{%H}", "tg": "{%H}", "ct::tlv": "{authority}"}
    form = " ".join(f"%{fields.get(code, '')}{code}" for code in codes)
    proxy = start_proxy("--access-log-format", form)
    origin = make_origin()
    client = dial(proxy)
    assert client.get(origin.url("/path?q")).status == 200
    said = dict(zip(codes, lines_of(proxy, 1)[0].split(" "), strict=True))
    expected = {
        "sn": "1", "err_code": "-", "err_detail": "-", ">a": "127.0.0.1",
        ">p": str(client.sock.getsockname()[1]), "la": "127.0.0.1",
        "lp": str(proxy.port), "<a": "127.0.0.1", "<A": "127.0.0.1",
        "<p": str(origin.port), "<la": "127.0.0.1", "un": "user", "ui": "-",
        "rm": "GET", "ru": origin.url("/path?q"), "rp": "/path?q", ">rs": "http",
        ">rd": "127.0.0.1", ">rP": str(origin.port), "rv": "1.1", ">Hs": "200",
        "mt": "-", "Ss": "TCP_MISS", "Sh": "HIER_DIRECT", "ct::reason": "ok",
        "ct::tlv": "-", "ct::worker": "0",
        "ct::path": "copy", "ct::rule": "-", "ct::hook": "-",
        "ul": "user", "ct::kind": "request", "ct::tried_user": "-", "dt": "-",
        "ct::report": "-", "ct::upgrade": "-", "ct::changed": "-",
        "ct::breakpoint": "-", "ct::parent": "-", "ct::parent_status": "-",
        "ct::source": "-", "ct::client_http": "-", "ct::origin_http": "-",
        "ct::peer_tls_version": "-", "ct::peer_cipher": "-", "ct::held_ms": "-",
        "ct::client_tls_ms": "-", "ct::origin_tls_ms": "-",
        "ct::dns_ms": "-", "ct::hook_ms": "-", "ct::client_retransmits": "0",
        "ct::origin_retransmits": "0", "ct::haproxy_state": "----"}
    assert {code: said[code] for code in expected} == expected
    assert re.fullmatch(r"0-\d+", said["ct::id"])
    assert 0 < int(said["<lp"]) < 65536
    assert int(said["st"]) == int(said[">st"]) + int(said["<st"]) > 0
    assert abs(float(said["tS"]) - time.time()) < 60
    for code in codes:
        if code.endswith("_ms") and code not in expected:
            assert re.fullmatch(r"\d+\.\d{3}", said[code]), (code, said[code])


def test_what_failed_is_named(start_proxy, dial):
    """A dial that failed left no address anywhere."""
    form = "%err_code %err_detail %<a %<p %<A %Sh %ct::origin_rtt_ms %dt %<pt"
    proxy = start_proxy("--access-log-format", form)
    assert dial(proxy).get("http://127.0.0.1:1/").status == 502
    assert lines_of(proxy, 1) == [
        "connection_refused connection_refused 127.0.0.1 1 127.0.0.1 HIER_DIRECT "
        "- - -"]


def test_widths_align_and_cut(start_proxy, make_origin, dial):
    proxy = start_proxy(
        "--access-log-format", "[%10un|%-10un|%.2un|%06>Hs|%8.3un|%.7ru]")
    assert dial(proxy).get(make_origin().url()).status == 200
    assert lines_of(proxy, 1) == ["[      user|user      |us|000200|     use|http://]"]


def test_a_time_is_in_the_form_that_was_asked_for(start_proxy, make_origin, dial):
    proxy = start_proxy("--access-log-format", "%{%Y-%m-%d}tg %{%H}tl %tg",
                        env={"TZ": "Asia/Kolkata"})
    assert dial(proxy).get(make_origin().url()).status == 200
    day, hour, whole = lines_of(proxy, 1)[0].split(" ", 2)
    made = datetime.strptime(whole, "%d/%b/%Y:%H:%M:%S %z")
    assert day == f"{made:%Y-%m-%d}" and whole.endswith("+0000")
    assert int(hour) in {(made.hour + 5) % 24, (made.hour + 6) % 24}


def test_fields_of_tunnels_are_forgotten_with_them(start_proxy, make_origin, dial):
    """Two tunnels at a time, ended in another order than they began."""
    proxy = start_proxy("--access-log-format", "%{User-Agent}>h")
    origin = make_origin(echo)
    tunnels = []
    for name in ("one", "two", "three"):
        tunnel = dial(proxy)
        tunnel.send(build_request("CONNECT", origin.authority, f"User-Agent: {name}",
                                  host=origin.authority))
        assert tunnel.read_response("CONNECT").status == 200
        tunnels.append(tunnel)
    for n, tunnel in enumerate(reversed(tunnels), 1):
        tunnel.half_close()
        assert tunnel.at_eof()
        lines_of(proxy, n)
    assert proxy.lines() == ["three", "two", "one"]


WICKED = ['"', "\\", '\\"', "\xe4\xff", "%0a", "a b", "\t", "] [", "x" * 9000,
          '\\"' * 4000]


@pytest.mark.parametrize("encoding", ["", '"', "[", "#", "/", ","])
def test_no_encoding_lets_a_line_be_forged(start_proxy, make_origin, dial, encoding):
    """R37: printable ASCII, one line each, and each cut is marked."""
    form = f"<%{encoding}ru %{encoding}un %{encoding}{{X-Field}}>h>"
    proxy = start_proxy("--access-log-format", form)
    origin = make_origin()
    wicked = [(text, "") for text in WICKED] + [("", text) for text in WICKED]
    for path, field in wicked:
        client = dial(proxy)
        raw = (f"GET {origin.url()}{path} HTTP/1.1\r\nHost: x\r\nX-Field: {field}\r\n"
               f"Proxy-Authorization: {CREDENTIALS}\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            client.send(raw.encode("latin-1"))
            client.read_response()
        client.close()
    text = "\n".join(lines_of(proxy, len(wicked)))
    assert len(text.split("\n")) == len(wicked)
    for line in text.split("\n"):
        assert line.startswith("<") and line.endswith(">")
        assert line.replace("…", "").isascii() and line.isprintable()
        assert len(line.encode()) < 8192
    assert "%0A" not in text
    if encoding == '"':
        assert r"\"" in text and r"\\" in text


@pytest.mark.parametrize("form", ["%{X}>h %ru", "%{X}>h %ru %{Y}>h"])
def test_no_line_is_longer_than_one_write_to_a_pipe(
        start_proxy, dial, directory, opened, form):
    """A host that had just room, and the mark of a path without room: 4098 bytes."""
    pipe = directory("pipe") / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    opened.callback(os.close, reader)
    proxy = start_proxy("--access-log", str(pipe), "--access-log-format", form)
    client = dial(proxy)
    text = bytearray()
    for sent, n in enumerate(range(24, 64), 1):
        client.send(build_request(
            "GET", f"http://{'h' * n}.test:65535/{'a' * 100}", f"X: {'L' * 6000}",
            f"Y: {'R' * 500}", auth=None))
        assert client.read_response().status == 407
        if sent % 10 == 0:                   # the pipe has room for 16
            wait_until(lambda n=sent: read_into(text, reader).count(b"\n") == n,
                       "lines")
    lines = text.split(b"\n")[:-1]
    assert all("…".encode() in line for line in lines)
    assert 4090 < max(map(len, lines)) < 4096


def read_into(text: bytearray, fd: int) -> bytearray:
    with contextlib.suppress(BlockingIOError):
        text += os.read(fd, 65536)
    return text


@pytest.mark.parametrize("encoding", ["", '"', "[", "#", "/", ","])
def test_no_field_ends_the_quotes_around_it(start_proxy, make_origin, dial, encoding):
    """R37: with [ a quote came as it is, and / put its own about spaced values."""
    form = f'"%{encoding}{{X}}>h" "%un"'
    proxy = start_proxy("--access-log-format", form)
    url = make_origin().url()
    wicked = ['a" "admin', "a b", '\\" "admin', '"', "] ["]
    for value in wicked:
        assert dial(proxy).get(url, f"X: {value}").status == 200
    for line in lines_of(proxy, len(wicked)):
        assert re.fullmatch(r'"(?:[^"\\]|\\.)+" "user"', line), line


def test_a_line_in_a_quoted_string_ends_where_it_ends(start_proxy, make_origin, dial):
    """A cut in the middle of an escape would take the quote behind it along."""
    proxy = start_proxy("--access-log-format", '"%.3{X}>h" "%.5{X}>h" %un')
    url = make_origin().url()
    assert dial(proxy).get(url, 'X: ""\\\\""').status == 200
    assert lines_of(proxy, 1) == [r'"\"" "\"\"" user']
