"""Chromium and Firefox, configured by the file that a listener serves them.

`make browser` installs a missing browser. The browser itself knows the names of the
proxy and of hosts that it reaches directly, and no others: the proxy resolves these.
"""

import pytest

from tests.support.browsers import KINDS, echo
from tests.support.certificates import authority
from tests.support.client import PASSWORD, USER
from tests.support.proxy import Proxy
from tests.support.site import FETCH, LOADED, WHOLE, Site

pytestmark = [pytest.mark.any_loop,
              pytest.mark.dials_out]    # a browser asks its maker for this and that

# The ports of CONFIG, in its order
HTTPS, SOCKS5, KNOWN = range(3)
PROXIED, DENIED, DIRECT, PROXY = (
    ("site.test", "other.test"), "denied.test", "direct.test", "proxy.test")
# Of requests by SOCKS without credentials
NAMED = "bob"
SCHEMES = {"http": "ws", "https": "wss"}

CONFIG = """
policy = "{policy}"
connect_ports = "any"
dns_overrides = {overrides}
[[listeners]]
address = "127.0.0.1:0"
certificates = ["{made.certificate}"]
certificate_keys = ["{made.key}"]
pac = true
pac_direct = ["direct.test"]
[[listeners]]
address = "127.0.0.1:0"
protocols = ["http", "socks5"]
auth = "none"
user = "bob"
pac = true
pac_direct = ["direct.test"]
pac_protocol = "socks5"
[[listeners]]
address = "127.0.0.1:0"
protocols = ["socks5"]
"""
POLICY = """
default = "deny"
[[rules]]
action = "allow"
hosts = ["site.test", "other.test"]
addresses = ["127.0.0.1"]
"""


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=[HTTPS, SOCKS5], ids=["https", "socks5"])
def way(request):
    return request.param


@pytest.fixture
def proxy(loop_name, directory, opened):
    folder = directory("browsers")
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    names = [*PROXIED, DENIED, DIRECT]
    return opened.enter_context(Proxy(folder, loop=loop_name, config=CONFIG.format(
        policy=policy, overrides=[f"{name}=127.0.0.1" for name in names],
        made=authority().sign(f"DNS:{PROXY}"))))


@pytest.fixture
def site(opened):
    site = Site(authority().sign(
        *(f"DNS:{name}" for name in (*PROXIED, DENIED, DIRECT))))
    opened.callback(site.close)
    return site


@pytest.fixture
def start(kind, directory, opened, site):
    """A browser; it ends before the site does."""
    def make(*flags: str, **options):
        program, path = KINDS[kind]
        if path is None:        # 270 MB to load: `make browser` installs both
            pytest.skip(f"{kind} is not installed")
        options.setdefault("trusted", authority().own.certificate)
        return opened.enter_context(program(
            directory(kind), *flags, names=(PROXY, DIRECT), **options))
    return make


@pytest.fixture
def configured(start, proxy, way):
    """A browser that reads its configuration from the way's listener, and logs in."""
    scheme = "https" if way == HTTPS else "http"
    made = start(pac=f"{scheme}://{PROXY}:{proxy.ports[way]}/proxy.pac")
    if way == HTTPS:
        made.log_in(USER, PASSWORD)
    return made


def columns(records: list[dict], *hosts: str) -> set[tuple]:
    """A browser may reset a connection if it does not need the last bytes."""
    return {(one["method"], one["host"], one["port"], one["user"], one["status"],
             one["reason"].replace("client_reset", "ok"))
            for one in records if one["host"] in hosts}


def test_pages_and_websockets(proxy, site, configured, way):
    for scheme, socket in SCHEMES.items():
        assert configured.visit(site.url(scheme, "site.test")) == ""
        assert configured.run(LOADED) == WHOLE
        assert configured.run(FETCH) == 300_000
        assert echo(configured, site.url(socket, "site.test")) == 70_000
    configured.close()              # a tunnel has its line at its end
    plain, tls = site.ports.values()
    tunnels = [("site.test", plain), *((host, tls) for host in PROXIED)]
    if way == SOCKS5:
        tunnels.append(("other.test", plain))
        owed = {("SOCKS5", *tunnel, NAMED, 200, "ok") for tunnel in tunnels}
    else:
        owed = {("CONNECT", *tunnel, USER, 200, "ok") for tunnel in tunnels}
        owed |= {("GET", host, plain, USER, 200, "ok") for host in PROXIED}
        owed.add(("GET", "site.test", plain, None, 407, "auth_required"))
    proxy.wait_log(len(owed))
    records = proxy.log()
    assert columns(records, *PROXIED) == owed
    assert {(one["status"], one["user"]) for one in records
            if one["url"] == "/proxy.pac"} == {(200, None)}
    if way == HTTPS:
        assert {(one["client_tls_version"], one["client_sni"], one["client_alpn"])
                for one in records if one["host"] in PROXIED} == {
                    ("1.3", PROXY, "http/1.1")}


def test_what_goes_directly_does_not_reach_the_proxy(proxy, site, configured):
    for scheme, socket in SCHEMES.items():
        configured.visit(site.url(scheme, DIRECT))
        assert configured.run(FETCH) == 300_000
        assert echo(configured, site.url(socket, DIRECT)) == 70_000
    configured.close()
    assert len([one for one in site.requests if one[1] == DIRECT]) >= 2 * 3
    assert DIRECT not in {one["host"] for one in proxy.log()}


def test_a_refusal_is_shown(proxy, site, configured, kind, way):
    shown = configured.visit(site.url("http", DENIED))
    if way == HTTPS:
        assert shown == ""
        assert "403" in configured.run("document.body.innerText")
    else:
        assert shown == REFUSED[kind][way]
    assert configured.visit(site.url("https", DENIED)) == REFUSED[kind][way]
    found = columns(proxy.wait_log(2, host=DENIED, status=403), DENIED)
    assert {one[5] for one in found} == {"destination_denied"}
    assert DENIED not in site.hosts()


# The message in place of a page if its tunnel was refused
REFUSED = {
    "chromium": {HTTPS: "net::ERR_TUNNEL_CONNECTION_FAILED",
                 SOCKS5: "net::ERR_SOCKS_CONNECTION_FAILED"},
    "firefox": {HTTPS: "NS_ERROR_PROXY_FORBIDDEN",
                SOCKS5: "NS_ERROR_CONNECTION_REFUSED"},
}
GONE = {"chromium": "net::ERR_PROXY_CONNECTION_FAILED",
        "firefox": "NS_ERROR_PROXY_CONNECTION_REFUSED"}


def test_nothing_goes_directly_if_the_proxy_is_down(proxy, site, configured, kind, way):
    """R44"""
    assert configured.visit(site.url("https", "site.test")) == ""
    proxy.stop()
    site.requests.clear()
    for scheme in SCHEMES:
        assert configured.visit(site.url(scheme, "site.test", "/again")) == GONE[kind]
    assert site.requests == []


@pytest.mark.parametrize("kind", ["chromium"], indirect=True)
def test_chromium_sends_no_credentials_by_socks(proxy, site, start):
    client = start(f"--proxy-server=socks5://{PROXY}:{proxy.ports[KNOWN]}")
    assert client.visit(site.url("http", "site.test")) == REFUSED["chromium"][SOCKS5]
    assert {one["reason"] for one in proxy.wait_log(1)} == {"auth_required"}
    assert site.requests == []


SOCKS_USER = """
browser.proxy.onRequest.addListener(() => ({
  type: "socks", host: "%s", port: %d, username: "%s", password: "%s", proxyDNS: true
}), {urls: ["<all_urls>"]});
"""


@pytest.mark.parametrize("kind", ["firefox"], indirect=True)
def test_an_extension_of_firefox_sends_credentials_by_socks(proxy, site, start):
    """It has no setting for them."""
    client = start()
    client.install(SOCKS_USER % (PROXY, proxy.ports[KNOWN], USER, PASSWORD))
    for scheme in SCHEMES:
        assert client.visit(site.url(scheme, "site.test")) == ""
        assert client.run(LOADED) == WHOLE
    client.close()
    owed = {("SOCKS5", host, port, USER, 200, "ok")
            for host in PROXIED for port in site.ports.values()}
    proxy.wait_log(len(owed))
    assert columns(proxy.log(), *PROXIED) == owed
