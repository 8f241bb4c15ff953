"""Log fields of a client's own TLS connection to the proxy."""

import re
import ssl

import pytest

from tests.e2e.test_tls_listener import reach as reach
from tests.e2e.test_tls_listener import serve as serve
from tests.support.certificates import client_context

pytestmark = pytest.mark.any_loop


def fields_of(record: dict) -> dict:
    return {name: value for name, value in record.items() if name in (
        "client_tls_version", "client_cipher", "client_sni", "client_alpn",
        "client_resumed")}


@pytest.mark.parametrize(("version", "cipher"), [
    (ssl.TLSVersion.TLSv1_2, "TLS_ECDHE_[A-Z]+_WITH_AES_[0-9]+_GCM_SHA[0-9]+"),
    (ssl.TLSVersion.TLSv1_3, "TLS_AES_[0-9]+_GCM_SHA[0-9]+")])
def test_the_log_has_what_the_handshake_agreed_on(
        serve, reach, make_origin, version, cipher):
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


def test_a_plain_listener_has_none(proxy, make_origin, dial):
    proxy.mark()
    assert dial().get(make_origin().url()).status == 200
    assert not fields_of(proxy.wait_reason("ok"))
