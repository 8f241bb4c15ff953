"""A reload that revokes client certificates, and connections that have had theirs
accepted before: each plane needs a new handshake for its next request."""

import ssl

import pytest

from tests.support.certificates import Authority, client_context, localhost
from tests.support.http2 import Peer
from tests.support.http2_listener import BOTH, OKAY
from tests.support.inside import HERE, ask, config, over_tls, shake
from tests.support.origin import answer, echo
from tests.support.proxy import Proxy
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import serve as serve
from tests.support.tls_listener import table

pytestmark = pytest.mark.any_loop


@pytest.fixture
def clients() -> Authority:
    return Authority("clients")


@pytest.fixture
def start(serve, clients):
    def begin(how: str = "required", more: str = "", **keys: str) -> Proxy:
        return serve(table(
            localhost(), client_ca=f'"{clients.own.certificate}"',
            client_crl=f'"{clients.revoke()}"', client_certificate=f'"{how}"', **BOTH,
            **keys), config=more)
    return begin


@pytest.fixture
def alice(clients):
    return clients.sign(subject="/CN=alice")


def revoke(proxy: Proxy, clients: Authority, *made) -> None:
    clients.revoke(*made)
    assert "refused" not in proxy.hup()


@pytest.mark.parametrize("how", ["required", "optional"])
def test_a_kept_connection_takes_no_more_requests(
        start, reach, make_origin, clients, alice, how):
    """A client whose certificate was revoked went on for as long as it liked."""
    proxy, url = start(how), make_origin(answer(OKAY)).url()
    client = reach(proxy, client_context(alice))
    bob = reach(proxy, client_context(clients.sign(subject="/CN=bob")))
    password = reach(proxy) if how == "optional" else None
    for at_rest in (client, bob):
        assert at_rest.get(url, auth=None).status == 200
    if password:
        assert password.get(url).status == 200
    revoke(proxy, clients, alice)
    for at_rest in (client, bob):
        assert at_rest.at_eof()
    if password:                            # of no certificate: nothing has changed
        assert password.get(url).status == 200
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        reach(proxy, client_context(alice)).get(url, auth=None)
    proxy.wait_reason("tls_certificate")
    again = reach(proxy, client_context(clients.sign(subject="/CN=bob")))
    assert again.get(url, auth=None).status == 200
    proxy.hup()                             # the same lists
    assert again.get(url, auth=None).status == 200


def test_a_response_under_way_is_the_last(start, reach, make_origin, clients, alice):
    """Its client has sent the next request already, too."""
    proxy = start()

    def script(conn):
        conn.read_request()
        revoke(proxy, clients, alice)
        conn.send(OKAY)

    origin = make_origin(script)
    client = reach(proxy, client_context(alice))
    client.send(f"GET {origin.url()} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 2)
    reply = client.read_response()
    assert (reply.status, reply.get("connection")) == (200, "close")
    assert client.at_eof() and len(origin.requests) == 1


def connect(proxy, reach, made) -> Peer:
    context = client_context(made)
    context.set_alpn_protocols(["h2"])
    client = reach(proxy, context)
    client.sock.shake()
    peer = Peer(client.sock)
    peer.flush()
    return peer


def test_streams_under_way_are_the_last(start, reach, make_origin, clients, alice):
    proxy, origin = start(), make_origin(answer(OKAY))
    peer = connect(proxy, reach, alice)
    assert peer.wait(peer.get(origin.url())).status == 200
    tunnel_origin = make_origin(echo)
    tunnel = peer.connect(tunnel_origin.authority)
    assert peer.wait_head(tunnel).status == 200
    revoke(proxy, clients, alice)
    late = peer.get(origin.url())
    peer.send(tunnel, b"hello")
    assert peer.wait_body(tunnel, 5) == b"hello"    # as other tunnels, it goes on
    answer_late = peer.answers[late]
    assert answer_late.reset is not None, vars(answer_late)
    assert not answer_late.fields and len(origin.requests) == 1


def test_requests_inside_a_tunnel_end_too(start, reach, make_origin, clients, alice,
                                          tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\naction = "allow"\n' + HERE + 'tls = "intercept"\n')
    proxy = start(more=config(f'policy = "{policy}"\n'))
    origin = make_origin(over_tls(answer(OKAY)))
    client = reach(proxy, client_context(alice))
    assert client.connect(f"a.example:{origin.port}", auth=None).status == 200
    inside = shake(client, "a.example")
    assert ask(inside).status == 200
    revoke(proxy, clients, alice)
    assert inside.at_eof() and len(origin.requests) == 1
