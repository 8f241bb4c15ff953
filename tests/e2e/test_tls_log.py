"""Log fields of a client's own TLS connection to the proxy."""

import re
import ssl
import subprocess

import pytest

from tests.support.certificates import authority, client_context, localhost
from tests.support.client import build_request
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def fields_of(record: dict) -> dict:
    return {name: value for name, value in record.items() if name in (
        "client_tls_version", "client_cipher", "client_sni", "client_alpn",
        "client_resumed", "client_certificate")}


@pytest.mark.parametrize(("version", "cipher"), [
    (ssl.TLSVersion.TLSv1_2, "TLS_ECDHE_[A-Z]+_WITH_AES_128_GCM_SHA256"),
    (ssl.TLSVersion.TLSv1_3, "TLS_AES_128_GCM_SHA256")])
def test_the_log_has_what_the_handshake_agreed_on(
        serve, reach, make_origin, version, cipher):
    """Clients with OpenSSL prefer AES-256, but its SHA-384 makes handshakes dearer."""
    proxy = serve()
    context = client_context()
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ECDHE+AESGCM")
    context.set_alpn_protocols(["http/1.1"])
    client = reach(proxy, context)
    assert client.get(make_origin().url()).status == 200
    found = fields_of(proxy.wait_reason("ok"))
    assert re.fullmatch(cipher, found.pop("client_cipher"))
    assert found == {"client_tls_version": version.name[-3:].replace("_", "."),
                     "client_sni": "localhost", "client_alpn": "http/1.1"}
    again = reach(proxy, context, client.sock.tls.session)
    assert again.get(make_origin().url()).status == 200
    assert fields_of(proxy.wait_log(2)[1])["client_resumed"] is True


@pytest.mark.parametrize(("offered", "chosen"), [
    ("CHACHA20_POLY1305_SHA256 AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256"),
    ("AES_256_GCM_SHA384 CHACHA20_POLY1305_SHA256 AES_128_GCM_SHA256",
     "AES_128_GCM_SHA256"),
    ("AES_256_GCM_SHA384 CHACHA20_POLY1305_SHA256", "AES_256_GCM_SHA384")])
def test_a_client_without_instructions_for_aes_gets_chacha(
        serve, make_origin, offered, chosen):
    proxy = serve()
    suites = ":".join(f"TLS_{name}" for name in offered.split())
    command = ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{proxy.port}",
               "-tls1_3", "-ciphersuites", suites]
    request = build_request("GET", make_origin().url(), "Connection: close")
    subprocess.run(command, input=request, capture_output=True, timeout=60, check=True)
    assert proxy.wait_reason("ok")["client_cipher"] == f"TLS_{chosen}"


def by_certificate() -> str:
    """A listener with user names from certificates."""
    return table(localhost(), client_ca=f'"{authority().own.certificate}"',
                 client_certificate='"optional"', auth='"none"')


@pytest.mark.parametrize("form", ["json", "codes"])
def test_the_name_in_a_certificate_is_logged(serve, reach, make_origin, form):
    """A user name does not show how its user proved it."""
    codes = ("client_tls_version", "client_cipher", "client_sni", "client_alpn",
             "client_resumed", "client_certificate")
    format = "json" if form == "json" else " ".join(f"%/ct::{code}" for code in codes)
    proxy = serve(by_certificate(), flags=("--access-log-format", format))
    context = client_context(authority().sign(subject="/CN=Ann Example"))
    context.set_alpn_protocols(["http/1.1"])
    for one in (context, client_context()):
        reach(proxy, one).get(make_origin().url(), auth=None)
    wait_until(lambda: len(proxy.lines()) == 2, proxy.lines)
    if form == "json":
        assert [record.get("client_certificate") for record in proxy.wait_log(2)] == [
            "Ann Example", None]
        return
    lines, proxy.log = proxy.lines(), lambda **wanted: []      # they are no JSON
    assert re.fullmatch(
        r'1\.3 TLS_\w+ localhost http/1\.1 - "Ann Example"', lines[0])
    assert re.fullmatch(r"1\.3 TLS_\w+ localhost - - -", lines[1])


def test_a_format_says_if_a_session_was_resumed(serve, reach, make_origin):
    proxy = serve(flags=("--access-log-format", "%ct::client_resumed %ct::client_sni"))
    context, url = client_context(), make_origin().url()
    client = reach(proxy, context)
    assert client.get(url).status == 200
    assert reach(proxy, context, client.sock.tls.session).get(url).status == 200
    wait_until(lambda: proxy.lines() == ["- localhost", "resumed localhost"],
               proxy.lines)
    proxy.log = lambda **wanted: []


def test_a_plain_listener_has_none(proxy, make_origin, dial):
    proxy.mark()
    assert dial().get(make_origin().url()).status == 200
    assert not fields_of(proxy.wait_reason("ok"))
