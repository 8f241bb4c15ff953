"""Interception that cannot be: the reason shows the side at fault (R54).

Bad certificates of origins, one by one: test_interception_bad_origins.py.
"""

import socket
import ssl

import pytest

from tests.support.bad_origins import bad_certificate
from tests.support.certificates import (
    Authority,
    authority,
    client_context,
)
from tests.support.inside import (
    ALL,
    HERE,
    ask,
    certificate,
    config,
    enter,
    okay,
    origins,
    over_tls,
)
from tests.support.origin import Connection, stall

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    def make(policy: str = ALL, more: str = "", ca: Authority | None = None):
        text = config(more)
        if ca is not None:
            text = text.replace(str(authority().folder), str(ca.folder))
        return start_policy(policy, text)
    return make


def test_a_reload_reads_the_list_of_revoked_certificates(start, make_origin, dial):
    """It holds for requests of open connections too; a list that cannot be read leaves
    the one before."""
    made = [origins().sign("DNS:a.example") for _ in range(2)]
    path = origins().revoke(made[0])
    proxy = start(more=f'origin_crl = "{path}"\n')
    origin = make_origin(over_tls(okay, made[1]))
    before = enter(proxy, dial(proxy), origin.port)
    assert ask(before).body == b"ok"
    origins().revoke(made[1])
    assert "generation" in proxy.hup()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REVOKED"):
        enter(proxy, dial(proxy), origin.port)
    path.write_text("nothing\n")
    assert "refused" in proxy.hup()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REVOKED"):
        enter(proxy, dial(proxy), origin.port)
    assert b"origin_certificate" in ask(before).body


def test_sessions_with_origins_are_resumed_for_the_same_name_alone(
        start, make_origin, dial):
    """R48: a resumed handshake verifies nothing, so a session is of one name."""
    made, resumed = origins().sign("DNS:a.example,DNS:b.example"), []

    def script(conn: Connection) -> None:
        resumed.append(conn.sock.tls.session_reused)
        okay(conn)

    proxy, origin = start(), make_origin(over_tls(script, made))
    for _ in range(3):
        assert ask(enter(proxy, dial(proxy), origin.port), "POST").body == b"ok"
    client = enter(proxy, dial(proxy), origin.port, "b.example")
    assert ask(client, "POST", host="b.example").body == b"ok"
    assert resumed == [False, True, True, False]
    # An origin with the certificate, and without its keys, is verified anew
    other = make_origin(over_tls(script, bad_certificate("untrusted")))
    with pytest.raises(ssl.SSLError):
        enter(proxy, dial(proxy), other.port)
    proxy.wait_reason("origin_certificate")


def test_a_list_of_revoked_certificates_needs_authorities(start_policy, tmp_path):
    made = config().replace("origin_ca", "origin_crl")
    assert "has no effect without origin_ca" in refused(start_policy, ALL, made)
    (tmp_path / "crl.pem").write_text("nothing\n")
    made = config(f'origin_crl = "{tmp_path}/crl.pem"\n')
    assert "holds no list of revoked" in refused(start_policy, ALL, made)


def closing(conn: Connection) -> None:
    """Answers once, so that the next request needs another connection."""
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


def test_a_later_bad_certificate_is_a_502(start, make_origin, dial):
    """A request that needs another connection: the page has the reason."""
    count = []

    def script(conn: Connection) -> None:
        count.append(conn)
        good = len(count) == 1
        over_tls(closing if good else okay,
                 certificate() if good else certificate(days=-1))(conn)

    proxy, origin = start(), make_origin(script)
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ok"
    reply = ask(client)
    assert reply.status == 502
    assert "tls_certificate_error" in reply.all("proxy-status")[0]
    assert b"origin_certificate" in reply.body and b"has expired" in reply.body
    assert proxy.wait_reason("origin_certificate")["method"] == "GET"


def plain(conn: Connection) -> None:
    conn.fill()
    conn.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def closes(conn: Connection) -> None:
    conn.fill()


def test_a_request_whose_origin_speaks_no_tls_is_a_502(start, make_origin, dial):
    """It needs another connection: the page has the reason."""
    count = []

    def script(conn: Connection) -> None:
        count.append(conn)
        (over_tls(closing, certificate()) if len(count) == 1 else plain)(conn)

    proxy, origin = start(), make_origin(script)
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ok"
    reply = ask(client)
    assert reply.status == 502
    assert b"origin_tls" in reply.body and b"wrong version number" in reply.body
    assert proxy.wait_reason("origin_tls")["hook"] == "wrong version number"


@pytest.mark.parametrize(("script", "why"), [
    (plain, "wrong version number"), (closes, None)])
def test_an_origin_without_tls(start, make_origin, dial, script, why):
    proxy, origin = start(), make_origin(script)
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        enter(proxy, dial(proxy), origin.port)
    assert proxy.wait_reason("origin_tls").get("hook") == why


def test_an_origin_that_does_not_answer_in_time(start, make_origin, dial):
    proxy, origin = start(more='connect_timeout = "300ms"\n'), make_origin(stall)
    with pytest.raises((ConnectionResetError, ssl.SSLError)):
        enter(proxy, dial(proxy), origin.port)
    proxy.wait_reason("connect_timeout")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_does_not_trust_us(start, make_origin, dial, version):
    context = client_context(trusted=Authority("another"))
    context.minimum_version = context.maximum_version = version
    proxy, origin = start(), make_origin(over_tls(okay))
    with pytest.raises(ssl.SSLCertVerificationError):
        enter(proxy, dial(proxy), origin.port, context=context)
    record = proxy.wait_reason("certificate_rejected")
    assert (record["method"], record["host"]) == ("CONNECT", "a.example")
    assert not origin.requests


def test_a_name_that_the_authority_may_not_sign(start, make_origin, dial):
    """R54: no client gets a certificate that it must reject; the log has the reason."""
    narrow = Authority(
        constraints="permitted;DNS:b.example,excluded;IP:10.0.0.0/255.0.0.0")
    proxy = start(ca=narrow)
    origin = make_origin(over_tls(okay, certificate("DNS:a.example", "DNS:b.example")))
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        enter(proxy, dial(proxy), origin.port)
    record = proxy.wait_reason("no_certificate")
    assert (record["method"], record["host"]) == ("CONNECT", "a.example")
    assert "no certificate for a.example: permitted subtree violation" in proxy.stderr()
    client = enter(proxy, dial(proxy), origin.port, "b.example",
                   context=client_context(trusted=narrow))
    assert ask(client, host="b.example").body == b"ok"


def test_a_client_that_closes_in_its_handshake(start, make_origin, dial):
    proxy, origin = start(), make_origin(over_tls(okay))
    client = dial(proxy).tunnel(f"a.example:{origin.port}")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    client.send(outgoing.read())
    assert client.fill()
    client.close()
    proxy.wait_reason("client_closed", method="CONNECT")


def test_a_client_that_stays_silent_in_its_handshake(start, make_origin, dial):
    proxy, origin = start(more='head_timeout = "500ms"\n'), make_origin(over_tls(okay))
    client = dial(proxy).tunnel(f"a.example:{origin.port}")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="a.example")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    client.send(outgoing.read())
    assert proxy.wait_reason("tls_timeout")["host"] == "a.example"


def test_a_request_that_is_none(start, make_origin, dial):
    context = client_context()
    context.set_alpn_protocols(["http/1.1"])
    proxy, origin = start(), make_origin(over_tls(okay))
    client = enter(proxy, dial(proxy), origin.port, context=context)
    client.send(b"EHLO a.example\r\n\r\n")
    assert client.read_response("GET").status == 400
    assert client.at_eof()
    assert not origin.requests


def test_hostile_heads_meet_the_same_verdicts(start, make_origin, dial):
    proxy, origin = start(), make_origin(over_tls(okay))
    for head in (b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
                 b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n"):
        client = enter(proxy, dial(proxy), origin.port)
        client.send(head)
        assert client.read_response("GET").status == 400, head
    assert not origin.requests


# --- the configuration


def refused(start_policy, policy: str, more: str) -> str:
    with pytest.raises(AssertionError) as failure:
        start_policy(policy, more)
    return str(failure.value)


def test_a_rule_that_intercepts_needs_an_authority(start_policy):
    told = refused(start_policy, ALL, "")
    assert "needs the option intercept_ca" in told
    assert "cutthrough ca init" in told


def test_a_directory_without_an_authority(start_policy, tmp_path):
    told = refused(start_policy, ALL, f'intercept_ca = "{tmp_path}"\n')
    assert "intercept_ca" in told and "`cutthrough ca init` makes it" in told


def test_a_key_that_others_may_read(start_policy, tmp_path):
    """R55"""
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_bytes((authority().folder / name).read_bytes())
    (tmp_path / "ca.key").chmod(0o644)
    told = refused(start_policy, ALL, f'intercept_ca = "{tmp_path}"\n')
    assert "chmod 600" in told


def test_a_certificate_that_is_no_authoritys(start_policy, tmp_path):
    made = certificate()
    (tmp_path / "ca.pem").write_bytes(made.pem[0])
    (tmp_path / "ca.key").write_bytes(made.pem[1])
    (tmp_path / "ca.key").chmod(0o600)
    told = refused(start_policy, ALL, f'intercept_ca = "{tmp_path}"\n')
    assert "not the certificate of an authority" in told


@pytest.mark.parametrize(("rule", "reason"), [
    (f'[[rules]]\naction = "deny"\n{HERE}tls = "intercept"\n', "a rule that denies"),
    (f'[[rules]]\naction = "allow"\n{HERE}tls = "bump"\n', "tls"),
    ('[[rules]]\naction = "allow"\nmethods = ["GET"]\ntls = "pass"\n', "tunnels only"),
    ('[[rules]]\naction = "allow"\npaths = ["/a"]\ntls = "refuse"\n', "tunnels only")])
def test_rules_that_are_mistakes(start_policy, rule, reason):
    assert reason in refused(start_policy, rule, config())


def test_no_socket_is_left(start, make_origin, dial):
    """Clients that go away at each step."""
    proxy, origin = start(), make_origin(over_tls(okay))
    for step in range(4):
        client = dial(proxy)
        client.tunnel(f"a.example:{origin.port}")
        if step:
            enter_to = client_context().wrap_bio(
                ssl.MemoryBIO(), out := ssl.MemoryBIO(), server_hostname="a.example")
            with pytest.raises(ssl.SSLWantReadError):
                enter_to.do_handshake()
            client.sock.sendall(out.read()[:50 if step == 1 else None])
        if step == 3:
            client.fill()
        client.sock.shutdown(socket.SHUT_RDWR)
        client.close()
    client = enter(proxy, dial(proxy), origin.port)
    client.close()
    proxy.wait_log(4)
