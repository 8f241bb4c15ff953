"""Certificates of ours for origins of intercepted connections: `client_certificate`.

No user may get a connection that another user's certificate has opened (R46).
"""

import base64
import contextlib
import functools
import ssl
import subprocess
from pathlib import Path

import bcrypt
import pytest
from h2.exceptions import ProtocolError

from tests.support.certificates import Authority, Made, client_context
from tests.support.client import CREDENTIALS, PASSWORD, USER, Client
from tests.support.http2 import Peer
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import (
    HERE,
    ask,
    config,
    keys,
    origins,
    over_tls,
    shake,
)
from tests.support.nginx import PROGRAM, Nginx
from tests.support.origin import Connection, Script
from tests.support.parents import parent

pytestmark = pytest.mark.any_loop

HTTP2 = 'origin_http2 = "auto"\n'
BOB = "Basic " + base64.b64encode(b"bob:secret").decode()
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f'users.bob.password = "{HASH}"\n'
RULE = f'[[rules]]\naction = "allow"\n{HERE}tls = "intercept"\n'
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
FOR_ALL = RULE + 'client_certificate = "ours"\n'
FOR_USER = USERS + FOR_ALL + 'users = ["user"]\n' + RULE


@functools.cache
def owners() -> Authority:
    """The authority that origins trust."""
    return Authority("owners")


def owned(path: Path, owner: str = "ours") -> str:
    """Puts the owner's certificate and key into one file; returns the table."""
    made = owners().sign(subject=f"/CN={owner}")
    put(path, made)
    return f'[client_certificates.ours]\ncertificate = "{path}"\n'


def put(path: Path, made: Made) -> None:
    path.touch(0o600)
    path.write_bytes(b"".join(made.pem))


def owner_of(conn: Connection) -> bytes:
    shown = conn.sock.tls.getpeercert()
    return dict(one[0] for one in shown["subject"])["commonName"].encode() if (
        shown) else b"nobody"


def tell(conn: Connection) -> None:
    """Answers each request with the owner of the certificate that the connection has.
    The connection ends behind `/close`."""
    while True:
        ends = conn.read_request().target == "/close"
        name = owner_of(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (
            len(name), b"Connection: close\r\n" if ends else b"", name))
        if ends:
            return


def tell_by_http2(conn: Connection) -> None:
    speaker, answered = Speaker(conn.sock), set[int]()
    speaker.flush()
    with contextlib.suppress(ProtocolError):            # a request behind our GOAWAY
        while speaker.read():
            for stream, question in list(speaker.questions.items()):
                if stream and question.ended and stream not in answered:
                    answered.add(stream)
                    speaker.answer(stream, [(":status", "200")], owner_of(conn))
                    if dict(question.fields)[":path"] == "/close":
                        speaker.h2.close_connection()
                    speaker.flush()


def telling(http2: bool, mode: ssl.VerifyMode = ssl.CERT_OPTIONAL,
            version: ssl.TLSVersion | None = None) -> Script:
    return over_tls(tell_by_http2 if http2 else tell,
                    alpn=("h2",) if http2 else ("http/1.1",),
                    wants=owners(), mode=mode, version=version)


def enter_as(proxy, client: Client, port: int, auth: str = CREDENTIALS,
             context: ssl.SSLContext | None = None, host: str = "a.example") -> Client:
    reply = client.connect(f"{host}:{port}", auth=auth)
    assert reply.status == 200, reply.raw
    return shake(client, host, context)


@pytest.fixture
def start(start_policy, tmp_path):
    def make(policy: str = FOR_ALL, more: str = "", tables: str | None = None):
        made = owned(tmp_path / "ours.pem") if tables is None else tables
        return start_policy(policy, config(more) + made)
    return make


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def http2(request):
    if request.param:
        pytest.importorskip("cutthrough.http2.transport")
    return request.param


@pytest.mark.parametrize("version", VERSIONS)
def test_an_origin_sees_the_certificate_of_the_rule(
        start, make_origin, dial, version, http2) -> None:
    proxy = start(more=HTTP2 if http2 else "")
    origin = make_origin(telling(http2, ssl.CERT_REQUIRED, version))
    client = enter_as(proxy, dial(proxy), origin.port)
    assert [ask(client).body for _ in range(3)] == [b"ours"] * 3
    assert len(origin.connections) == 1


@pytest.mark.parametrize("kind", ["ec", "rsa", "ed25519"])
def test_a_client_with_other_signatures(start, make_origin, tmp_path, kind) -> None:
    """Its offer goes to the origin; our key signs as it can."""
    made = owners().sign(subject="/CN=ours", kind=kind)
    put(tmp_path / "one.pem", made)
    proxy = start(more='origin_hello = "client"\n', tables=(
        f'[client_certificates.ours]\ncertificate = "{tmp_path}/one.pem"\n'))
    origin = make_origin(telling(False, ssl.CERT_REQUIRED))
    done = subprocess.run(
        ["openssl", "s_client", "-quiet", "-connect", f"a.example:{origin.port}",
         "-proxy", f"127.0.0.1:{proxy.port}", "-proxy_user", USER, "-proxy_pass",
         f"pass:{PASSWORD}", "-servername", "a.example", "-sigalgs",
         "ECDSA+SHA256"], capture_output=True, timeout=30, check=False,
        input=b"GET /close HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
    assert done.stdout.endswith(b"\r\n\r\nours"), done


def test_the_chain_is_shown(start, make_origin, dial, tmp_path) -> None:
    """The origin knows the root alone."""
    below = owners().issue("below")
    made = below.sign(subject="/CN=deep")
    path = tmp_path / "chain.pem"
    path.write_bytes(made.certificate.read_bytes() + below.own.certificate.read_bytes())
    proxy = start(tables=f'[client_certificates.ours]\ncertificate = "{path}"\n'
                         f'certificate_key = "{made.key}"\n')
    origin = make_origin(telling(False, ssl.CERT_REQUIRED))
    assert ask(enter_as(proxy, dial(proxy), origin.port)).body == b"deep"


def test_nobody_rides_on_anothers_certificate(
        start, make_origin, dial, http2) -> None:
    """R46: the second user's rule names no certificate. A connection of the first user
    waits for the next request when the second user has no connection of its own."""
    proxy = start(FOR_USER, HTTP2 if http2 else "")
    origin = make_origin(telling(http2))
    first = enter_as(proxy, dial(proxy), origin.port)
    assert ask(first).body == b"ours"
    bob = enter_as(proxy, dial(proxy), origin.port, BOB)
    for _ in range(3):
        assert ask(bob, "GET", "/close").body == b"nobody"
        assert ask(bob).body == b"nobody"
        assert ask(first, "GET", "/close").body == b"ours"
        assert ask(first).body == b"ours"


def test_many_at_once_keep_apart(start, make_origin, dial) -> None:
    """R46: streams of two users; their requests wait for each other's dials or not."""
    pytest.importorskip("cutthrough.http2.transport")
    proxy = start(FOR_USER, HTTP2)
    origin = make_origin(telling(True))
    context = client_context()
    context.set_alpn_protocols(("h2", "http/1.1"))
    peers = []
    for auth, owner in ((CREDENTIALS, b"ours"), (BOB, b"nobody")) * 3:
        peer = Peer(enter_as(proxy, dial(proxy), origin.port, auth, context).sock)
        peer.flush()
        peers.append((peer, owner))
    asked = [(peer, owner, [peer.get(f"https://a.example/{n}") for n in range(20)])
             for peer, owner in peers]
    for peer, owner, streams in asked:
        peer.wait(*streams)
        assert {bytes(peer.answers[one].body) for one in streams} == {owner}


def test_two_certificates_keep_apart(start, make_origin, dial, tmp_path, http2) -> None:
    """R46: also if both rules lead to the same host."""
    tables = owned(tmp_path / "a.pem", "first") + owned(
        tmp_path / "b.pem", "second").replace(".ours]", ".other]")
    proxy = start(USERS + FOR_ALL + 'users = ["user"]\n'
                  + FOR_ALL.replace('"ours"', '"other"'),
                  HTTP2 if http2 else "", tables)
    origin = make_origin(telling(http2, ssl.CERT_REQUIRED))
    for _ in range(2):
        for auth, owner in ((CREDENTIALS, b"first"), (BOB, b"second")):
            client = enter_as(proxy, dial(proxy), origin.port, auth)
            for path in ("/", "/close", "/"):
                assert ask(client, "GET", path).body == owner


def test_a_parent_keeps_them_apart(start, make_origin, dial, tmp_path, http2) -> None:
    """R46: the tunnels of one parent."""
    def through(conn: Connection) -> None:
        assert conn.read_request().method == "CONNECT"
        conn.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        telling(http2)(conn)

    way = make_origin(through)
    rules = FOR_USER.replace(HERE, 'hosts = ["a.example"]\n')
    proxy = start(rules, 'route = "corp"\n' + (HTTP2 if http2 else ""), tables=(
        owned(tmp_path / "ours.pem") + parent(way, "http", resolve="parent")))
    first = enter_as(proxy, dial(proxy), 4711)
    bob = enter_as(proxy, dial(proxy), 4711, BOB)
    for path in ("/", "/close", "/", "/"):
        assert ask(first, "GET", path).body == b"ours"
        assert ask(bob, "GET", path).body == b"nobody"


def test_a_reload_exchanges_the_certificate(
        start, make_origin, dial, tmp_path, http2) -> None:
    """The client's connection stays; its next request takes a new one to the origin."""
    proxy = start(more=HTTP2 if http2 else "")
    origin = make_origin(telling(http2, ssl.CERT_REQUIRED))
    client = enter_as(proxy, dial(proxy), origin.port)
    assert ask(client).body == b"ours"
    unused = enter_as(proxy, dial(proxy), origin.port)
    owned(tmp_path / "ours.pem", "renewed")
    assert proxy.hup().endswith(": certificates")
    assert ask(client).body == b"renewed"
    assert ask(unused).body == b"renewed", "the connection of its CONNECT was older"
    assert ask(enter_as(proxy, dial(proxy), origin.port)).body == b"renewed"


def test_a_reload_takes_the_certificate_away(
        start, make_origin, dial, http2) -> None:
    """R46: no request has it any more, however old the client's connection is."""
    proxy = start(FOR_USER, HTTP2 if http2 else "")
    origin = make_origin(telling(http2))
    used = enter_as(proxy, dial(proxy), origin.port)
    assert ask(used).body == b"ours"
    unused = enter_as(proxy, dial(proxy), origin.port)
    bob = enter_as(proxy, dial(proxy), origin.port, BOB)
    assert ask(bob).body == b"nobody"
    proxy.policy.write_text(USERS + RULE)
    assert "generation" in proxy.hup()
    for client in (used, unused, bob):
        assert ask(client, "GET", "/close").body == ask(client).body == b"nobody"


def test_a_reload_gives_a_certificate(start, make_origin, dial, http2) -> None:
    """R46: connections that were made without it are not its owner's."""
    proxy = start(USERS + RULE, HTTP2 if http2 else "")
    origin = make_origin(telling(http2))
    client = enter_as(proxy, dial(proxy), origin.port)
    unused = enter_as(proxy, dial(proxy), origin.port)
    bob = enter_as(proxy, dial(proxy), origin.port, BOB)
    assert ask(client).body == ask(bob).body == b"nobody"
    proxy.policy.write_text(FOR_USER)
    assert "generation" in proxy.hup()
    for path in ("/close", "/", "/close", "/"):
        assert ask(client, "GET", path).body == b"ours"
        assert ask(bob, "GET", path).body == b"nobody"
        assert ask(unused, "GET", path).body == b"ours"


def test_a_request_that_a_reload_overtakes(start, make_origin, dial, http2) -> None:
    """R46: it was judged without a certificate, and shakes hands with one. Its
    connection is not kept for users without one."""
    pytest.importorskip("cutthrough.http2.transport")
    late = 'users = ["user"]\nfaults = "late"\n'
    table = 'faults.late.latency = "3s"\n'
    proxy = start(table + USERS + RULE + late + RULE, HTTP2 if http2 else "")
    origin = make_origin(telling(http2))
    context = client_context()
    context.set_alpn_protocols(("h2", "http/1.1"))
    bob = enter_as(proxy, dial(proxy), origin.port, BOB)
    peer = Peer(enter_as(proxy, dial(proxy), origin.port, context=context).sock)
    peer.flush()
    peer.wait(peer.get("https://a.example/close"))
    overtaken = peer.get("https://a.example/")
    proxy.policy.write_text(table + USERS + FOR_ALL + late + RULE)
    assert "generation" in proxy.hup()
    next_one = peer.get("https://a.example/")
    peer.wait(overtaken, next_one)
    assert {bytes(peer.answers[one].body) for one in (overtaken, next_one)} == {b"ours"}
    for path in ("/close", "/close", "/"):
        assert ask(bob, "GET", path).body == b"nobody"


@pytest.mark.parametrize("records", ["own", "libssl"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_origin_that_wants_one_is_told_of(
        start, make_origin, dial, version, http2, records) -> None:
    """The rule names no certificate. By TLS 1.3 the origin reports that behind its
    handshake: then the client's is done, too, and the client reads the reason."""
    proxy = start(USERS + RULE,
                  f'tls_records = "{records}"\n' + (HTTP2 if http2 else ""))
    origin = make_origin(telling(http2, ssl.CERT_REQUIRED, version))
    if version is ssl.TLSVersion.TLSv1_2:
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
            enter_as(proxy, dial(proxy), origin.port)
    else:
        client = enter_as(proxy, dial(proxy), origin.port)
        for method in ("GET", "GET", "DELETE"):
            reply = ask(client, method)
            assert (reply.status, b"wants a client certificate" in reply.body) == (
                502, True)
            assert b"error=tls_alert_received" in reply.raw
    record = proxy.wait_reason("origin_wants_certificate")
    assert (record["host"], record["intercepted"]) == ("a.example", True)
    assert "origin a.example: it wants a client certificate: alert " in proxy.stderr()
    assert not origin.requests


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "words"), [
    ("expired", "certificate expired"), ("a stranger's", "unknown CA")])
def test_an_origin_that_refuses_ours_is_told_of(
        start, make_origin, dial, tmp_path, version, http2, kind, words) -> None:
    made = (owners().sign(subject="/CN=old", days=-1) if kind == "expired"
            else Authority("stranger").sign(subject="/CN=other"))
    proxy = start(FOR_ALL, HTTP2 if http2 else "", tables=(
        f'[client_certificates.ours]\ncertificate = "{made.certificate}"\n'
        f'certificate_key = "{made.key}"\n'))
    origin = make_origin(telling(http2, ssl.CERT_REQUIRED, version))
    if version is ssl.TLSVersion.TLSv1_2:
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
            enter_as(proxy, dial(proxy), origin.port)
    else:
        reply = ask(enter_as(proxy, dial(proxy), origin.port))
        assert (reply.status, b"does not accept" in reply.body) == (502, True)
    proxy.wait_reason("origin_refuses_certificate")
    assert f"does not accept our client certificate: alert {words} (" in proxy.stderr()


@pytest.mark.skipif(not PROGRAM, reason="nginx is not installed")
def test_nginx_serves_who_shows_the_certificate(
        start_policy, dial, directory, tmp_path, http2) -> None:
    """The other user gets nginx's own answer."""
    options = (f"ssl_client_certificate {owners().own.certificate}; "
               "ssl_verify_client on;")
    with contextlib.closing(
            Nginx(directory("nginx"), options, http2=http2)) as nginx:
        proxy = start_policy(
            FOR_USER, 'dns_overrides = ["localhost=127.0.0.1"]\nconnect_ports = "any"\n'
            + keys().replace(str(origins().own.certificate), str(nginx.ca))
            + (HTTP2 if http2 else "") + owned(tmp_path / "ours.pem"))
        for auth, status in ((CREDENTIALS, 200), (BOB, 400)) * 2:
            client = enter_as(
                proxy, dial(proxy), nginx.tls_port, auth, host="localhost")
            assert ask(client, host="localhost").status == status
            client.close()


def test_bytes_that_are_no_http_are_told_of(start, make_origin, dial) -> None:
    """By TLS 1.3 the tunnel has begun: only the log has the reason of its end."""
    proxy = start(USERS + RULE)
    origin = make_origin(over_tls(
        tell, alpn=(), wants=owners(), version=ssl.TLSVersion.TLSv1_3))
    client = enter_as(proxy, dial(proxy), origin.port)
    client.send(b"\0\1\2 no request\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert client.sock.recv(10) == b""
    proxy.wait_reason("origin_wants_certificate")


@pytest.mark.parametrize(("made", "told"), [
    ('certificate = "{0}/none.pem"', "No such file"),
    ('certificate = "{0}/open.pem"', "others than its owner may read it"),
    ('certificate = "{0}/mixed.pem"', "the key does not belong to the certificate"),
    ('certificate_key = "{0}/open.pem"', "certificate is missing")])
def test_a_certificate_that_cannot_be_used(start, tmp_path, made, told) -> None:
    put(tmp_path / "open.pem", owners().sign())
    (tmp_path / "open.pem").chmod(0o644)
    put(tmp_path / "mixed.pem", Made(owners().sign().certificate, owners().sign().key))
    with pytest.raises(AssertionError, match=told):
        start(tables=f"[client_certificates.ours]\n{made.format(tmp_path)}\n")


def test_a_reload_with_a_bad_pair_leaves_the_one_before(
        start, make_origin, dial, tmp_path) -> None:
    """R49."""
    proxy, origin = start(), make_origin(telling(False, ssl.CERT_REQUIRED))
    (tmp_path / "ours.pem").write_text("nothing\n")
    assert "refused" in proxy.hup()
    assert ask(enter_as(proxy, dial(proxy), origin.port)).body == b"ours"


@pytest.mark.parametrize(("policy", "told"), [
    (FOR_ALL.replace('"ours"', '"mine"'), "no certificate .* is named 'mine'"),
    (FOR_ALL.replace('tls = "intercept"\n', ""), "is of rules that intercept"),
    (FOR_ALL.replace('"ours"', '""'), "client_certificate"),
    (FOR_ALL.replace('"allow"', '"deny"'), "no effect in a rule that denies")])
def test_a_rule_that_cannot_name_it(start, policy, told) -> None:
    with pytest.raises(AssertionError, match=told):
        start(policy)


def test_certificates_need_interception(start_policy, tmp_path) -> None:
    with pytest.raises(AssertionError, match="no effect without intercept_ca"):
        start_policy('[[rules]]\naction = "allow"\n', owned(tmp_path / "ours.pem"))
