"""Server names on a TLS listener: which are served, and whose clients need a
certificate; tickets off."""

import socket
import ssl

import pytest

from tests.support.certificates import (
    Authority,
    TlsSocket,
    authority,
    client_context,
    localhost,
    on_aws_lc,
)
from tests.support.client import Client
from tests.support.stream import Stream
from tests.support.tls_listener import call as call
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table

pytestmark = pytest.mark.any_loop

#: Alerts (RFC 8446 section 6)
UNRECOGNIZED = "unrecognized name"
REFUSED = (ssl.SSLError, ConnectionResetError)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def visit(opened):
    """A client that names this server, or None; behind its handshake."""
    def connect(proxy, name: str | None, context: ssl.SSLContext | None = None,
                session: ssl.SSLSession | None = None) -> Client:
        context = context or client_context()
        context.check_hostname = False
        sock = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        client = Client.__new__(Client)
        Stream.__init__(client, sock)
        client.sock = TlsSocket(sock, context, name, session=session)
        client.sock.shake()
        opened.callback(client.close)
        return client
    return connect


def context_of(version: ssl.TLSVersion, *made) -> ssl.SSLContext:
    context = client_context(*made)
    context.minimum_version = context.maximum_version = version
    return context


def two_names() -> dict[str, str]:
    names = "DNS:*.admin.example", "DNS:x.admin.example"
    pairs = [localhost(), authority().sign(*names)]
    return {"certificates": str([str(pair.certificate) for pair in pairs]),
            "certificate_keys": str([str(pair.key) for pair in pairs])}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_name_is_refused_and_the_log_says_so(
        serve, visit, make_origin, version) -> None:
    proxy, url = serve(table(localhost(), sni_strict="true", **two_names())), (
        make_origin().url())
    for name in ("localhost", "LOCALHOST", "a.admin.example"):
        assert visit(proxy, name, context_of(version)).get(url).status == 200
    for name in ("other.example", "a.b.admin.example", None):
        with pytest.raises(ssl.SSLError) as refused:
            visit(proxy, name, context_of(version))
        assert UNRECOGNIZED in str(refused.value).lower().replace("_", " ")
    assert len(proxy.wait_log(3, reason="tls_name")) == 3
    assert len(proxy.wait_log(3, reason="ok")) == 3


def test_without_the_option_it_gets_the_first_certificate(
        serve, visit, make_origin) -> None:
    proxy, url = serve(table(localhost(), **two_names())), make_origin().url()
    for name in ("other.example", None):
        assert visit(proxy, name).get(url).status == 200


def test_a_reload_changes_it(serve, visit, make_origin) -> None:
    proxy, url = serve(), make_origin().url()
    assert visit(proxy, "other.example").get(url).status == 200
    proxy.config_file.write_text(
        proxy.config_file.read_text() + "sni_strict = true\n")
    assert proxy.hup().startswith("generation")
    with pytest.raises(ssl.SSLError):
        visit(proxy, "other.example")
    proxy.wait_reason("tls_name")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tickets", ["true", "false"])
def test_tickets_can_be_off(serve, visit, make_origin, version, tickets) -> None:
    proxy = serve(table(localhost(), session_tickets=tickets))
    url, context = make_origin().url(), context_of(version)
    first = visit(proxy, "localhost", context)
    assert first.get(url).status == 200
    session = first.sock.tls.session
    again = visit(proxy, "localhost", context, session)
    assert again.get(url).status == 200
    assert again.sock.tls.session_reused == (tickets == "true")
    assert bool(session is not None and session.has_ticket) == (tickets == "true")


@pytest.fixture
def ca() -> Authority:
    return Authority("admins")


@pytest.fixture
def guarded(serve, ca):
    """Clients of *.admin.example need a certificate of `ca`, the others none."""
    def start(**more: str):
        return serve(table(
            localhost(), **two_names(),
            client_ca_by_name=f'["*.admin.example={ca.own.certificate}"]', **more))
    return start


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_one_name_need_a_certificate(
        guarded, visit, make_origin, ca, version) -> None:
    """Of a name that the wildcard has, and of one that the certificate has too."""
    proxy, url = guarded(), make_origin().url()
    assert visit(proxy, "localhost", context_of(version)).get(url).status == 200
    alice = ca.sign(subject="/CN=alice")
    for name in ("a.admin.example", "x.admin.example"):
        client = visit(proxy, name, context_of(version, alice))
        assert client.get(url, auth=None).status == 200
        for made in ((), (authority().sign(subject="/CN=eve"),),
                     (ca.sign(subject="/O=no name"),)):
            with pytest.raises(REFUSED):
                visit(proxy, name, context_of(version, *made)).get(url)
    users = [record["user"] for record in proxy.wait_log(3, reason="ok")]
    assert users == ["user", "alice", "alice"]
    assert len(proxy.wait_log(6, reason="tls_certificate")) == 6


def test_a_session_of_another_name_is_refused(guarded, visit, make_origin) -> None:
    """CVE-2025-23419 of nginx: it was resumed, and the certificate not asked for."""
    proxy, url, context = guarded(), make_origin().url(), context_of(VERSIONS[1])
    first = visit(proxy, "localhost", context)
    assert first.get(url).status == 200
    session = first.sock.tls.session
    assert visit(proxy, "localhost", context, session).sock.tls.session_reused
    with pytest.raises(REFUSED):
        visit(proxy, "a.admin.example", context, session).get(url)
    proxy.wait_reason("tls_certificate")


def test_a_session_of_tls_12_keeps_its_own_name(guarded, visit, make_origin) -> None:
    """OpenSSL takes the session's name for the client's: it is a client of that one.
    AWS-LC makes no session of it, and asks for the certificate that the name needs."""
    proxy, url, context = guarded(), make_origin().url(), context_of(VERSIONS[0])
    first = visit(proxy, "localhost", context)
    assert first.get(url).status == 200
    if on_aws_lc():
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
            visit(proxy, "a.admin.example", context, first.sock.tls.session)
        return
    again = visit(proxy, "a.admin.example", context, first.sock.tls.session)
    assert again.get(url, auth=None).status == 407
    assert proxy.wait_reason("auth_required")["client_sni"] == "localhost"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_with_a_certificate_is_never_resumed(
        guarded, visit, make_origin, ca, version) -> None:
    proxy, url = guarded(), make_origin().url()
    context = context_of(version, ca.sign(subject="/CN=alice"))
    client = visit(proxy, "a.admin.example", context)
    assert client.get(url, auth=None).status == 200
    session = client.sock.tls.session
    for name in ("a.admin.example", "localhost"):
        again = visit(proxy, name, context, session)
        assert again.get(url).status == 200
        assert not again.sock.tls.session_reused


def test_the_listeners_own_rule_holds_for_other_names(
        guarded, visit, make_origin, ca) -> None:
    """Each has authorities of its own, and one list of revoked certificates."""
    others = Authority("others")
    proxy = guarded(client_ca=f'"{others.own.certificate}"',
                    client_certificate='"required"')
    url = make_origin().url()
    bob, alice = others.sign(subject="/CN=bob"), ca.sign(subject="/CN=alice")
    assert visit(proxy, "localhost", client_context(bob)).get(
        url, auth=None).status == 200
    assert visit(proxy, "a.admin.example", client_context(alice)).get(
        url, auth=None).status == 200
    for name, made in (("localhost", alice), ("a.admin.example", bob)):
        with pytest.raises(REFUSED):
            visit(proxy, name, client_context(made)).get(url)
