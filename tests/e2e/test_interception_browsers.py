"""Chromium and Firefox in tunnels that are opened, with HTTP/1.1 and HTTP/2.

They trust the proxy's authority, and not the site's: a page that is shown has been
intercepted. The lines in the log say so too.
"""

from urllib.parse import urlsplit

import pytest

from tests.e2e.test_browsers import KINDS, echo
from tests.support.certificates import authority
from tests.support.inside import ALL, certificate, keys
from tests.support.proxy import Proxy
from tests.support.site import FETCH, LOADED, WHOLE, Site
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
              pytest.mark.dials_out]    # a browser asks its maker for this and that

PROXY, NAMES = "proxy.test", ("site.test", "other.test")
BAD = "bad.test"                        # is not in the certificate
CONFIG = """
policy = "{policy}"
connect_ports = "any"
dns_overrides = {overrides}
intercept_http2 = "{http2}"
{keys}
[[listeners]]
address = "127.0.0.1:0"
auth = "none"
user = "bob"
pac = true
"""


@pytest.fixture(params=["off", "auto"], ids=["1.1", "2"])
def http2(request):
    return request.param


@pytest.fixture
def proxy(loop_name, directory, opened, http2):
    folder = directory("opening")
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy.toml"
    policy.write_text(ALL)
    return opened.enter_context(Proxy(folder, loop=loop_name, config=CONFIG.format(
        policy=policy, http2=http2, keys=keys(),
        overrides=[f"{name}=127.0.0.1" for name in (*NAMES, BAD)])))


@pytest.fixture
def site(opened):
    site = Site(certificate(*(f"DNS:{name}" for name in NAMES)))
    opened.callback(site.close)
    return site


@pytest.fixture(params=KINDS)
def client(request, directory, opened, site, proxy):
    program, path = KINDS[request.param]
    if path is None:            # 270 MB to load: `make browser` installs both
        pytest.skip(f"{request.param} is not installed")
    return opened.enter_context(program(
        directory(request.param), names=(PROXY,), trusted=authority().own.certificate,
        pac=f"http://{PROXY}:{proxy.port}/proxy.pac"))


def test_pages_and_websockets_are_opened(proxy, site, client, http2):
    assert client.visit(site.url("https", "site.test")) == ""
    assert client.run(LOADED) == WHOLE
    assert client.run(FETCH) == 300_000
    assert echo(client, site.url("wss", "site.test")) == 70_000
    assert client.visit(site.url("https", BAD)) != ""
    client.close()                  # a WebSocket has its line at its end
    assert proxy.wait_log(1, host=BAD, reason="origin_certificate")
    assert BAD not in site.hosts()

    def inside() -> list[dict]:
        return [one for one in proxy.log()
                if one["host"] in NAMES and one["method"] == "GET"]
    wait_until(lambda: len(inside()) >= 7, lambda: str(proxy.log()))
    found = {(one["host"], urlsplit(one["url"]).path, one["status"]): one
             for one in inside()}
    pages = [("site.test", path, 200) for path in
             ("/", "/style.css", "/image.svg", "/script.js", "/data")]
    assert {*pages, ("other.test", "/other.js", 200), ("site.test", "/", 101)} == (
        found.keys() - {("site.test", "/favicon.ico", 200)})
    for key, one in found.items():
        assert (one["intercepted"], one["user"]) == (True, "bob")
        assert one["client_alpn"] == (
            "http/1.1" if http2 == "off" or key[2] == 101 else "h2")
