"""The fingerprints of clients of HTTP/2, on listeners and inside interceptions."""

import socket

import pytest

from tests.support import inside_http2
from tests.support.browser import Browser, needs_chromium
from tests.support.certificates import authority, client_context, localhost
from tests.support.client import CREDENTIALS, PASSWORD, USER
from tests.support.http2 import (
    PREFACE,
    PRIORITY,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
)
from tests.support.http2_listener import BOTH, LOGIN
from tests.support.inside import ALL, HERE, config, okay, over_tls
from tests.support.origin import answer
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import table

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

LOCAL = f'[[rules]]\nname = "known"\naction = "allow"\n{HERE}'
OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

# A fixture; this page has another `reach`
reach_inside = inside_http2.reach


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(
        number.to_bytes(2) + value.to_bytes(4) for number, value in pairs))


CHROME = (PREFACE + settings((1, 65536), (3, 1000), (4, 6291456))
          + frame(WINDOW_UPDATE, payload=(15663105).to_bytes(4)))
OF_CHROME = "1:65536;3:1000;4:6291456|15663105|0|m,a,s,p"


@pytest.fixture
def speak(opened):
    """A client of HTTP/2 with these first frames."""
    def connect(port: int, first: bytes, url: str, order: str = "masp") -> int:
        context = client_context()
        context.set_alpn_protocols(["h2"])
        sock = opened.enter_context(context.wrap_socket(
            socket.create_connection(("127.0.0.1", port), 30),
            server_hostname="localhost"))
        peer = Peer(sock)
        peer.h2.data_to_send()
        sock.sendall(first)
        return ask(peer, url, order)
    return connect


def ask(peer: Peer, url: str, order: str = "masp") -> int:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    fields = {"m": (":method", "GET"), "a": (":authority", host),
              "s": (":scheme", scheme), "p": (":path", f"/{path}")}
    return peer.wait(peer.request([*(fields[one] for one in order), LOGIN])).status


def with_http2(start_policy, policy: str = LOCAL, more: str = ""):
    return start_policy(policy, more + table(localhost(), **BOTH))


def test_the_log_has_the_fingerprint_of_http2(start_policy, speak, make_origin) -> None:
    proxy = with_http2(start_policy, more="fingerprints = true\n")
    url = make_origin(answer(OKAY)).url()
    assert speak(proxy.port, CHROME, url) == 200
    assert speak(proxy.port, PREFACE + settings(), url, "mspa") == 200
    firefox = (PREFACE + settings((1, 65536), (4, 131072), (5, 16384))
               + frame(WINDOW_UPDATE, payload=(12517377).to_bytes(4))
               + frame(PRIORITY, stream=3, payload=b"\0\0\0\0\xc8")
               + frame(PRIORITY, stream=9, payload=b"\x80\0\0\x07\0"))
    assert speak(proxy.port, firefox, url, "mpas") == 200
    assert [record["http2_fingerprint"] for record in proxy.wait_log(3)] == [
        OF_CHROME, "|00|0|m,s,p,a",
        "1:65536;4:131072;5:16384|12517377|3:0:0:201,9:1:7:1|m,p,a,s"]


def test_each_request_of_a_connection_has_it(start_policy, opened, make_origin) -> None:
    proxy = with_http2(start_policy, more="fingerprints = true\n")
    url = make_origin(answer(OKAY)).url()
    context = client_context()
    context.set_alpn_protocols(["h2"])
    peer = Peer(opened.enter_context(context.wrap_socket(
        socket.create_connection(("127.0.0.1", proxy.port), 30),
        server_hostname="localhost")))
    for order in ("masp", "pams", "masp"):
        assert ask(peer, url, order) == 200
    records = proxy.wait_log(3)
    assert len({record["http2_fingerprint"] for record in records}) == 1
    assert records[0]["http2_fingerprint"].endswith("|0|m,a,s,p")
    assert len({record["client_ja4"] for record in records}) == 1


def test_many_settings_are_bounded(start_policy, speak, make_origin) -> None:
    """So are a hundred priorities. libnghttp2 takes 32 settings."""
    proxy = with_http2(start_policy, more="fingerprints = true\n")
    many = PREFACE + settings(*((4, 65535 + i) for i in range(32))) + b"".join(
        frame(PRIORITY, stream=2 * i + 3, payload=b"\0\0\0\0\0") for i in range(100))
    assert speak(proxy.port, many, make_origin(answer(OKAY)).url()) == 200
    text = proxy.wait_log(1)[0]["http2_fingerprint"]
    assert len(text) <= 252
    assert text.startswith("4:65535;4:65536;")
    assert text.split("|")[2].startswith("3:0:0:1,5:0:0:1,")


@pytest.mark.parametrize("action", ["allow", "deny"])
def test_a_rule_decides_by_http2(
        start_policy, speak, reach, make_origin, action) -> None:
    rule = (f'[[rules]]\nname = "chrome"\naction = "{action}"\n{HERE}'
            'http2_fingerprint = ["@browsers"]\n'
            + (LOCAL if action == "deny" else "")
            + '[lists]\nbrowsers = ["1:65536;3:1000;4:6291456|*|0|m,a,s,p"]\n')
    proxy = with_http2(start_policy, rule)
    url = make_origin(answer(OKAY)).url()
    met, other = (200, 403) if action == "allow" else (403, 200)
    assert speak(proxy.port, CHROME, url) == met
    assert proxy.wait_log(1)[0]["rule"] == "chrome"
    assert speak(proxy.port, CHROME, url, "mpas") == other
    assert reach(proxy).get(url).status == other        # by HTTP/1.1


def test_a_preface_in_single_octets_has_the_same(start_policy, opened, make_origin
                                                 ) -> None:
    proxy = with_http2(start_policy, more="fingerprints = true\n")
    context = client_context()
    context.set_alpn_protocols(["h2"])
    sock = opened.enter_context(context.wrap_socket(
        socket.create_connection(("127.0.0.1", proxy.port), 30),
        server_hostname="localhost"))
    peer = Peer(sock)
    peer.h2.data_to_send()
    for octet in CHROME:
        sock.sendall(bytes([octet]))
    assert ask(peer, make_origin(answer(OKAY)).url()) == 200
    assert proxy.wait_log(1)[0]["http2_fingerprint"] == OF_CHROME


def test_http2_inside_has_its_fingerprint(
        start_policy, make_origin, reach_inside) -> None:
    rule = ALL.replace('name = "inside"', 'name = "inside"\nmethods = ["CONNECT"]') + (
        f'[[rules]]\nname = "h2"\naction = "allow"\n{HERE}'
        'http2_fingerprint = ["*|*|0|m,s,a,p"]\n')
    proxy = start_policy(rule, config())
    origin = make_origin(over_tls(okay))
    peer = reach_inside(proxy, origin.port)
    url = f"https://a.example:{origin.port}/"
    assert peer.wait(peer.get(url)).status == 200
    assert proxy.wait_log(2)[1]["http2_fingerprint"].endswith("|0|m,s,a,p")
    other = reach_inside(proxy, origin.port)
    assert ask(other, url, "masp") == 403


# Real clients


def frames_of(data: bytes) -> str:
    """The fingerprint of octets, by a reader of its own, without its last part."""
    data = data.removeprefix(PREFACE)
    first, window, priorities = None, "00", []
    while data:
        size, kind, flags = int.from_bytes(data[:3]), data[3], data[4]
        stream, payload = int.from_bytes(data[5:9]), data[9:9 + size]
        data = data[9 + size:]
        if kind == 1:
            break
        if kind == SETTINGS and first is None and not flags & 1:
            pairs = [payload[i:i + 6] for i in range(0, size, 6)]
            first = ";".join(f"{int.from_bytes(pair[:2])}:{int.from_bytes(pair[2:])}"
                             for pair in pairs)
        if kind == WINDOW_UPDATE and stream == 0 and window == "00":
            window = str(int.from_bytes(payload))
        if kind == PRIORITY:
            priorities.append(f"{stream}:{payload[0] >> 7}:"
                              f"{int.from_bytes(payload[:4]) & 0x7fffffff}:"
                              f"{payload[4] + 1}")
    return f"{first or ''}|{window}|{','.join(priorities) or '0'}"


@pytest.mark.parametrize("first", [CHROME, PREFACE + settings()])
def test_the_plain_reader_agrees(start_policy, speak, make_origin, first) -> None:
    proxy = with_http2(start_policy, more="fingerprints = true\n")
    assert speak(proxy.port, first, make_origin(answer(OKAY)).url()) == 200
    assert proxy.wait_log(1)[0]["http2_fingerprint"] == f"{frames_of(first)}|m,a,s,p"


@needs_chromium
@pytest.mark.slow
@pytest.mark.dials_out                      # Chromium checks if IPv6 has a route
def test_chromium_has_its_own(start_policy, make_origin, directory) -> None:
    proxy = with_http2(start_policy, LOCAL + 'hosts = ["127.0.0.1"]\n',
                       "fingerprints = true\n")     # no name is looked up
    origin = make_origin(answer(OKAY))
    browser = Browser(directory("chromium"), f"--proxy-server=https://localhost:{proxy.port}",
                      "--proxy-bypass-list=<-loopback>", names=("localhost",),
                      trusted=authority().own.certificate)
    try:
        browser.log_in(USER, PASSWORD)
        browser.visit(origin.url())
    finally:
        browser.close()
    record = next(one for one in proxy.log() if one["status"] == 200)
    assert record["client_ja4"].startswith("t13d")
    assert record["http2_fingerprint"].endswith("|0|m,a,s,p")
    assert CREDENTIALS not in str(record)
