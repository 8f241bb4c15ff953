"""Chromium and Firefox in tunnels that are opened, with HTTP/1.1 and HTTP/2.

They trust the proxy's authority, and not the origins': a page that is shown has been
intercepted. The lines in the log show it too. A browser and its proxy serve all tests.
"""

import contextlib
import hashlib
import os
import queue
import threading
from urllib.parse import urlsplit

import pytest

from tests.support.bad_origins import REFUSALS, bad_origin, revoked_list
from tests.support.browsers import KINDS, echo
from tests.support.bulk import BLOCK, FLAT, SIZE, Watch, read_sum
from tests.support.certificates import authority
from tests.support.inside import ALL, certificate, keys, over_tls
from tests.support.origin import Connection, send_events
from tests.support.proxy import Proxy
from tests.support.site import FETCH, LOADED, WHOLE, Site
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
              pytest.mark.dials_out]    # a browser asks its maker for this and that

PROXY, NAMES = "proxy.test", ("site.test", "other.test")
BAD = "a.example"
CONFIG = """
policy = "{policy}"
connect_ports = "any"
dns_overrides = {overrides}
intercept_http2 = "{http2}"
origin_crl = "{revoked}"
{keys}
[[listeners]]
address = "127.0.0.1:0"
auth = "none"
user = "bob"
pac = true
"""
#: A download, and the same bytes as an upload: both digests, and the length
BULK = """(async () => {
  const data = await (await fetch('/bulk')).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', data));
  const upload = await fetch('/bulk', {method: 'PUT', body: new Blob([data])});
  return [data.byteLength, await upload.text(),
          Array.from(hash, n => n.toString(16).padStart(2, '0')).join('')];
})()"""
#: Firefox tells a page of the response at its first event, and not at its head
LISTEN = """(() => {
  window.heard = [];
  const source = new EventSource('/events');
  source.onmessage = it => heard.push([it.lastEventId, it.data.length]);
  source.onerror = () => { source.close(); heard.push('end'); };
})()"""


@pytest.fixture(scope="module", params=["off", "auto"], ids=["1.1", "2"])
def http2(request):
    return request.param


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    if KINDS[request.param][1] is None:     # 270 MB to load: `make browser` has both
        pytest.skip(f"{request.param} is not installed: `make browser` does it")
    return request.param


@pytest.fixture(scope="module")
def running(loop_name, directory, kind, http2):
    """The proxy, and the site behind it."""
    folder = directory("opening")
    policy = folder / "policy.toml"
    policy.write_text(ALL)
    text = CONFIG.format(
        policy=policy, http2=http2, keys=keys(), revoked=revoked_list(),
        overrides=[f"{name}=127.0.0.1" for name in (*NAMES, BAD)])
    site = Site(certificate(*(f"DNS:{name}" for name in NAMES)))
    with contextlib.closing(site), Proxy(folder, loop=loop_name, config=text) as proxy:
        yield proxy, site


@pytest.fixture(scope="module")
def client(running, kind, directory):
    with KINDS[kind][0](
            directory(kind), names=(PROXY,), trusted=authority().own.certificate,
            pac=f"http://{PROXY}:{running[0].port}/proxy.pac") as made:
        yield made


@pytest.fixture
def proxy(running):
    running[0].mark()
    return running[0]


@pytest.fixture
def site(running):
    running[1].requests.clear()
    return running[1]


def test_pages_and_websockets(proxy, site, client, http2):
    assert client.visit(site.url("https", "site.test")) == ""
    assert client.run(LOADED) == WHOLE
    assert client.run(FETCH) == 300_000
    assert echo(client, site.url("wss", "site.test")) == 70_000

    owed = {("site.test", path, 200) for path in
            ("/", "/style.css", "/image.svg", "/script.js", "/data")}
    owed |= {("other.test", "/other.js", 200), ("site.test", "/", 101)}

    def inside() -> dict[tuple, dict]:
        return {(one["host"], urlsplit(one["url"]).path, one["status"]): one
                for one in proxy.log() if one["method"] == "GET"
                and one["host"] in NAMES and not one["url"].endswith("/favicon.ico")}
    found = wait_until(lambda: owed <= (now := inside()).keys() and now,
                       lambda: str(proxy.log()))
    assert found.keys() == owed
    for key, one in found.items():
        assert (one["intercepted"], one["user"]) == (True, "bob")
        assert one["client_alpn"] == (
            "http/1.1" if http2 == "off" or key[2] == 101 else "h2")


# --- an origin that takes and sends much, and one that sends little by little


def page(conn: Connection, text: bytes = b"<!doctype html><link rel=icon href=data:,>",
         more: str = "") -> None:
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n%sContent-Length: %d"
              b"\r\n\r\n%s" % (more.encode(), len(text), text))


def test_100_mib_both_ways(proxy, client, make_origin):
    block = os.urandom(BLOCK)
    digest = hashlib.sha256(block * (SIZE // BLOCK)).hexdigest()

    def script(conn: Connection) -> None:
        while True:
            head = conn.read_head()
            if head.method == "PUT":
                page(conn, read_sum(conn, int(head.get("Content-Length"))).encode())
            elif head.target != "/bulk":
                page(conn)
            else:
                conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
                for _ in range(SIZE // BLOCK):
                    conn.send(block)

    origin = make_origin(over_tls(script, certificate("DNS:site.test")))
    assert client.visit(f"https://site.test:{origin.port}/") == ""
    with Watch(proxy) as watch:
        assert client.run(BULK) == [SIZE, digest, digest]
    assert watch.growth < FLAT, f"grew by {watch.growth >> 10} KiB"
    url = f"https://site.test:{origin.port}/bulk"
    assert proxy.wait_log(1, url=url, method="GET")[0]["bytes_down"] > SIZE
    assert proxy.wait_log(1, url=url, method="PUT")[0]["bytes_up"] > SIZE


def test_events_come_one_by_one(proxy, client, make_origin):
    """Each is in the page before the origin has sent the next one."""
    events = queue.Queue()

    def script(conn: Connection) -> None:
        while conn.read_request().target != "/events":
            page(conn)
        send_events(conn, events)

    origin = make_origin(over_tls(script, certificate("DNS:site.test")))
    assert client.visit(f"https://site.test:{origin.port}/") == ""
    try:
        client.run(LISTEN)
        heard = []
        for n in range(5):
            events.put(b"id: %d\ndata: %s\n\n" % (n, b"x" * 10**n))
            heard.append([str(n), 10**n])
            wait_until(lambda: client.run("heard") == heard, f"event {n}")
    finally:
        events.put(b"")
    wait_until(lambda: client.run("heard")[5:] == ["end"], "the end")
    assert proxy.wait_log(1, url=f"https://site.test:{origin.port}/events")


# --- bad origins


#: What is shown instead of the page. Chromium has one code for every such alert, and
#: its page speaks of a client certificate
CODES = {
    "chromium": {"HANDSHAKE_FAILURE": "net::ERR_SSL_VERSION_OR_CIPHER_MISMATCH"},
    "firefox": {"CERTIFICATE_EXPIRED": "SSL_ERROR_EXPIRED_CERT_ALERT",
                "BAD_CERTIFICATE": "SSL_ERROR_BAD_CERT_ALERT",
                "UNKNOWN_CA": "SSL_ERROR_UNKNOWN_CA_ALERT",
                "CERTIFICATE_REVOKED": "SSL_ERROR_REVOKED_CERT_ALERT",
                "HANDSHAKE_FAILURE": "SSL_ERROR_NO_CYPHER_OVERLAP"},
}


def test_bad_origins_are_refused(proxy, client, make_origin, kind):
    for fault, owed in REFUSALS.items():
        origin = make_origin(bad_origin(fault))
        assert client.visit(f"https://{BAD}:{origin.port}/") == CODES[kind].get(
            owed.alert, "net::ERR_BAD_SSL_CLIENT_AUTH_CERT"), fault
        record = proxy.wait_reason(owed.reason, port=origin.port)
        assert record["hook"].lower().endswith(owed.words)
        assert not origin.requests


def test_a_later_bad_certificate_is_told_in_a_body(proxy, client, make_origin):
    """A request by an open connection of the client's."""
    good = threading.Event()
    good.set()

    def one_page(conn: Connection) -> None:
        conn.read_request()
        page(conn, more="Connection: close\r\n")

    before, after = over_tls(one_page), bad_origin("expired")
    origin = make_origin(lambda conn: (before if good.is_set() else after)(conn))
    assert client.visit(f"https://{BAD}:{origin.port}/") == ""
    good.clear()
    # The first ones may find connections that were made before
    wait_until(lambda: client.run("fetch('/again').then(it => it.text())").startswith(
        "502 origin_certificate: certificate has expired\nrequest "), "the reason")
    assert proxy.wait_reason("origin_certificate", method="GET")["status"] == 502
