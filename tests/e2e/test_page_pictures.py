"""The pictures of the pages, which docs/ shows.

LIVE_PAGE_PICTURES=docs/images writes them there: each page at three widths, in both
schemes, and the details of a flow on a phone.
"""

import math
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.capture.flows import row
from tests.support.admin import administered
from tests.support.browser import Browser, needs_chromium
from tests.support.certificates import authority
from tests.support.live_page import sign_in
from tests.support.origin import answer, echo
from tests.support.recordings import fill as record
from tests.support.recordings import made
from tests.support.traffic import open_page
from tests.support.wait import wait_until

PICTURES = os.environ.get("LIVE_PAGE_PICTURES")
pytestmark = [pytest.mark.any_loop, needs_chromium,
    pytest.mark.dials_out,                  # a browser asks its maker for this and that
    pytest.mark.skipif(not PICTURES, reason="LIVE_PAGE_PICTURES names no directory for "
                       "the pictures of docs"),
]

SIZES = {390: 844, 768: 1024, 1440: 900}
JSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
BODY = ('{"id": 42, "state": "paid", "total": 129.5, "items": '
        '[{"sku": "B-7", "n": 2}, {"sku": "K-1", "n": 1}]}')
#: Method, URL, status, content type, milliseconds, reason
FLOWS = (
    ("GET", "https://api.example.com/v1/orders/42", 200, "application/json", 43, "ok"),
    ("GET", "https://cdn.example.com/assets/app.8f3a1c.js", 200, "text/javascript", 12,
     "ok"),
    ("POST", "https://auth.example.com/oauth/token", 200, "application/json", 61, "ok"),
    ("GET", "https://api.example.com/v1/orders?page=2&sort=created&include=items", 200,
     "application/json", 118, "ok"),
    ("GET", "http://mirror.example.org/packages/numpy-2.1.0.whl", 200,
     "application/octet-stream", 2300, "response_truncated"),
    ("CONNECT", "files.example.org:443", 200, "", 9020, "client_reset"),
    ("GET", "https://api.example.com/v1/customers/7", 404, "application/json", 31,
     "ok"),
    ("GET", "https://cdn.example.com/img/logo.png", 200, "image/png", 9, "ok"),
    ("PUT", "https://api.example.com/v1/orders/42/address", 204, "", 54, "ok"),
    ("GET", "http://nowhere.example.com/", 502, "", 4, "dns_not_found"),
    ("GET", "https://api.example.com/v1/report", 504, "", 30_000, "first_byte_timeout"),
)
#: Rows of an hour such as /history has
HOUR = """rows => {
  const now = Math.floor(Date.now() / 1000);
  hour = rows.map(([up, down, requests, failed, connections], i) => ({s: 10,
    at: now - 10 * (rows.length - i), up, down, requests, failed, connections,
    cpu_s: down / 6e7}));
  since = null;
  draw();
}"""


@pytest.fixture(autouse=True)
def once(loop_name):
    if loop_name != "uvloop":
        pytest.skip("the pages know no event loop")


def write(browser, name, prepare=lambda width: None):
    for width, height in SIZES.items():
        for scheme in ("light", "dark"):
            browser.look(width, height, scheme)
            prepare(width)
            browser.run("new Promise(done => requestAnimationFrame(() =>"
                        " requestAnimationFrame(done)))")
            browser.picture(Path(PICTURES) / f"{name}-{width}-{scheme}.png", False)


def test_the_page_traffic(directory, opened, browse, loop_name, tmp_path):
    page = open_page(directory, opened, browse, loop_name, tmp_path)
    now = time.time_ns() // 1000 - 60_000_000
    made = []
    for n in range(66):
        method, url, status, kind, ms, reason = FLOWS[(n * 7) % len(FLOWS)]
        head = f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\n\r\n" if kind else JSON
        is_inside = url.startswith("https")
        made.append(row(
            n + 1, method=method, url=url, status=status, reason=reason, user="ann",
            host=url.split("/")[2] if "//" in url else "files.example.org",
            begun_us=now + n * 730_000, total_us=ms * 1000, response_head=head,
            bytes_down=300 + ms * 97, intercepted=int(is_inside),
            client_port=5000 + n // 4,
            response_body=BODY, response_content_bytes=len(BODY),
            request_head=f"{method} /{url.split('/', 3)[-1]} HTTP/1.1\r\n"
            f"Host: {url.split('/')[2] if '//' in url else url}\r\n"
            "User-Agent: orders/3.2\r\nAccept: application/json\r\n"
            "Authorization: [redacted]\r\n\r\n"))
        if is_inside and n % 4 == 0:
            made.append(row(
                1000 + n, method="CONNECT", url="api.example.com:443", intercepted=1,
                begun_us=now + n * 730_000 - 9000, client_port=5000 + n // 4))
    page.fill(*made)
    page.enter()
    wait_until(lambda: page.text("#count") == "66 flows", lambda: page.text("#count"))
    at = page.browser.run(
        "[...newer, ...older].findIndex(one => one.url.endsWith('/orders/42'))")

    def prepare(width):
        page.browser.run("closeDetail()")
        if width == 1440:                   # with the details beside the list
            page.browser.run(
                f"choose(indexOf(byId.get([...newer, ...older][{at}].id)))")
            wait_until(lambda: page.browser.run("flow !== null"), "the flow")
            page.browser.run("showTab('response')")
            wait_until(lambda: page.browser.run(
                "document.querySelector('#response-body pre') !== null"), "its body")
        page.browser.run("$('list').focus({focusVisible: false})")

    write(page.browser, "traffic", prepare)
    for scheme in ("light", "dark"):
        page.browser.look(390, SIZES[390], scheme)
        page.browser.run(f"choose(indexOf(byId.get([...newer, ...older][{at}].id)))")
        wait_until(lambda: page.browser.run("flow !== null"), "the flow")
        page.browser.run("showTab('timing'); document.activeElement.blur()")
        page.browser.picture(Path(PICTURES) / f"traffic-detail-390-{scheme}.png", False)


def test_the_pages_of_recordings_and_of_the_authority(
        directory, opened, loop_name, tmp_path):
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    shutil.copy(authority().own.certificate, tmp_path / "ca.pem")
    _, operator = administered(
        opened, directory("proxy"), loop_name,
        f'recording_directory = "{sessions}"\nca_certificate = "{tmp_path}/ca.pem"\n')
    paths = ("/v1/orders/42", "/v1/orders?page=2", "/v1/customers/7", "/v1/report")
    record(sessions, *(made(
        443, scheme="https", host="api.example.com", path=paths[n % 4],
        status=(200, 200, 404, 503)[n % 4], body=BODY.encode()) for n in range(12)),
        name="checkout")
    record(sessions, made(443, scheme="https", host="auth.example.com"), name="login")
    browser = opened.enter_context(Browser(directory("browser")))
    browser.open(f"http://127.0.0.1:{operator.where}/recordings")
    sign_in(browser)
    wait_until(lambda: browser.run("!$('sessions').hidden"), "the sessions")
    browser.run("document.querySelector('#sessions tbody button').click()")
    wait_until(lambda: browser.run("!$('recordings').hidden"), "the recordings")
    write(browser, "recordings")
    browser.open(f"http://127.0.0.1:{operator.where}/ca")
    write(browser, "ca")


def test_the_live_page(directory, opened, loop_name, tmp_path, make_origin, dial):
    names = [f"{name}.example.com" for name in ("api", "cdn", "ads", "files")]
    (tmp_path / "policy.toml").write_text("""
default = "deny"
[[rules]]
name = "no-ads"
action = "deny"
hosts = ["ads.example.com"]
[[rules]]
name = "web"
action = "allow"
hosts = ["*.example.com"]
addresses = ["127.0.0.0/8"]
""")
    proxy, operator = administered(
        opened, directory("proxy"), loop_name,
        f'workers = 2\npolicy = "{tmp_path}/policy.toml"\nconnect_ports = "any"\n'
        f'dns_overrides = {[f"{name}=127.0.0.1" for name in names]}\n')
    browser = opened.enter_context(Browser(directory("browser")))
    browser.open(f"http://127.0.0.1:{operator.where}/")
    sign_in(browser)
    chance = random.Random(7)
    plain = make_origin(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
                               + b"x" * 5000))
    port = plain.authority.rpartition(":")[2]
    echoing = make_origin(echo).authority.rpartition(":")[2]
    for n in range(7):
        tunnel = dial(proxy).tunnel(f"{names[n % 2]}:{echoing}")
        tunnel.send(b"x" * chance.randrange(400, 60_000))
        tunnel.read_exact(400)
        if n > 4:
            tunnel.close()
    for n in range(30):
        with dial(proxy) as client:
            client.get(f"http://{names[(0, 1, 3)[n % 3]]}:{port}/{n}")
            if n % 6 == 0:
                client.get(f"http://ads.example.com:{port}/pixel")
            if n % 9 == 0:
                client.get("http://intranet.test/")
    with dial(proxy) as client:
        client.get(f"http://{names[0]}:1/")
    wait_until(lambda: browser.run("phases.tunnel.length") == 2
               and browser.run("groups.size") == 3, "the endings")
    wait_until(lambda: browser.text("#state") == "live" and browser.run(
        "$('rows').querySelectorAll('button').length === 5"), "the figures")
    rows = []
    for n in range(330):
        down = (6e7 + 3e7 * math.sin(n / 34) + 1.4e7 * math.sin(n / 9)) * (
            chance.uniform(0.86, 1.14))
        rows.append([down * chance.uniform(0.07, 0.1), down, down / 4e5,
                     chance.random() ** 6 * 40, 40 + n // 9 + chance.randrange(6)])
    browser.run("look = async () => {}; readHistory = async () => {}")
    browser.run(f"({HOUR})({rows})")
    write(browser, "live", lambda width: browser.run(
        "document.activeElement.blur(); scrollTo(0, 0); draw()"))
