"""TLS as a transport: handshakes whole, split, hostile and refused (R47)."""

import errno
import re
import socket
import ssl

import pytest

from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.certificates import Pair, TlsError
from cutthrough.net.tls.context import ClientCheck, TlsServer
from cutthrough.net.tls.ticket_keys import MAGIC, TicketKeys
from tests.net.conftest import Meet
from tests.support.certificates import (
    Authority,
    authority,
    client_context,
    localhost,
    openssl,
)
from tests.support.couple import pair_of

NEW_SESSION_TICKET = 4

# --- handshakes


@pytest.mark.parametrize("kind", ["ec", "rsa"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_and_kinds_of_keys(meet: Meet, kind, version) -> None:
    peer = client_context()
    peer.minimum_version = peer.maximum_version = version
    couple = meet(TlsServer([pair_of(localhost(kind))]), peer)
    couple.begin()
    couple.peer.send(b"a question")
    assert couple.recv() == b"a question"
    assert couple.end.send(b"an ", b"answer") == 9
    assert couple.peer.recv() == b"an answer"


def test_a_handshake_that_comes_byte_by_byte(meet: Meet) -> None:
    assert meet().shake(most=1) == "done"


@pytest.mark.parametrize("size", range(2, 40))
def test_a_handshake_split_everywhere(meet: Meet, size: int) -> None:
    couple = meet()
    assert couple.shake(most=size) == "done"
    couple.peer.recv()
    couple.peer.send(b"x")
    assert couple.recv() == b"x"


def test_bytes_read_before_the_handshake_come_first(meet: Meet) -> None:
    couple = meet()
    hello = couple.peer.step()
    assert couple.end.unread(hello[:100])
    couple.peer.sock.send(hello[100:])
    assert couple.shake() == "done"


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\n\r\n", b"CONNECT a:443 HTTP/1.1\r\n\r\n",
    b"\0" * 64, b"\xff" * 64,
    b"\x05\x01\x00" + b"\0" * 8, b"\x16\x03\x01\xff\xff" + b"\1" * 100,
    b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", b"\x16\x03\x01\x00\x00" * 40,
    b"\x15\x03\x01\x00\x02\x02", b"\x17\x03\x03\x00\x20" + b"x" * 32,
    b"\x80\x2e\x01\x03\x01" + b"\0" * 60, b"\x14\x03\x01\x00\x01\x01" * 50],
    ids=range(12))
def test_garbage_is_refused(meet: Meet, data: bytes) -> None:
    couple = meet()
    couple.peer.sock.send(data)
    couple.peer.sock.shutdown(socket.SHUT_WR)
    answer = "more"
    for _ in range(3):
        couple.end.note()
        answer = couple.end.shake() if answer == "more" else answer
    assert answer in ("invalid", "closed", "unshared")
    assert couple.end.recv() == couple.end.send(b"x") == -errno.ENOTCONN


def test_a_hello_changed_in_any_byte_never_goes_through_unseen(meet: Meet) -> None:
    """It is refused, or the client sees that its hello has changed; nothing crashes."""
    server = TlsServer([pair_of(localhost())])
    for at in range(0, 320, 3):
        couple = meet(server)
        hello = bytearray(couple.peer.step())
        if at < len(hello):
            hello[at] ^= 0x55
        couple.peer.sock.send(hello)
        couple.end.note()
        if couple.end.shake() == "more" and at < len(hello):
            couple.peer.sock.shutdown(socket.SHUT_WR)
            couple.end.note()
            assert couple.end.shake() != "done"
        couple.close()


def test_half_a_handshake_and_an_end(meet: Meet) -> None:
    couple = meet()
    couple.peer.sock.send(couple.peer.step()[:60])
    couple.end.note()
    assert couple.end.shake() == "more"
    assert tls.stats()["under_way"] == 1
    couple.peer.sock.close()
    couple.end.note()
    assert couple.end.shake() == "closed"


def test_a_reset_in_the_handshake(meet: Meet) -> None:
    couple = meet()
    couple.peer.sock.send(couple.peer.step())
    couple.end.note()
    assert couple.end.shake() == "more"
    couple.peer.sock.close()                # with our flight unread: a reset
    couple.end.note()
    assert couple.end.shake() in ("reset", "closed")


def test_a_caller_that_sends_nothing_has_no_state(meet: Meet) -> None:
    couple = meet()
    assert tls.stats()["open"] == 0
    assert couple.end.recv() == couple.end.send(b"x") == -errno.ENOTCONN
    assert not couple.end.has_unread and not couple.end.holds_back


def test_no_more_handshakes_than_the_bound(meet: Meet) -> None:
    first, second = meet(), meet()
    tls.set_most_handshakes(1)
    try:
        assert (first.end.shake(), second.end.shake()) == ("more", "no room")
        assert first.shake() == "done"      # which ends it
        assert second.end.shake() == "more"
    finally:
        tls.set_most_handshakes(1024)


def old_client(version: ssl.TLSVersion) -> ssl.SSLContext:
    peer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    peer.check_hostname, peer.verify_mode = False, ssl.CERT_NONE
    peer.set_ciphers("ALL:@SECLEVEL=0")
    peer.minimum_version, peer.maximum_version = ssl.TLSVersion.TLSv1, version
    return peer


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_older_versions_are_refused(meet: Meet) -> None:
    """R47."""
    assert meet(peer=old_client(ssl.TLSVersion.TLSv1_1)).shake() == "unshared"
    only_13 = TlsServer([pair_of(localhost())], min_version="1.3")
    assert meet(only_13, old_client(ssl.TLSVersion.TLSv1_2)).shake() == "unshared"


def test_ciphers_of_both_versions_can_be_chosen(meet: Meet) -> None:
    server = TlsServer([pair_of(localhost())], ciphers=(
        "ECDHE-ECDSA-AES128-GCM-SHA256:TLS_CHACHA20_POLY1305_SHA256"))
    couple = meet(server)
    couple.begin()
    assert couple.peer.tls.cipher()[0] == "TLS_CHACHA20_POLY1305_SHA256"
    with pytest.raises(TlsError, match="no cipher of 'NONE' can be used"):
        TlsServer([pair_of(localhost())], ciphers="NONE")


@pytest.mark.parametrize("groups", ["P-256", "P-384:X25519"])
def test_groups_of_the_key_exchange_can_be_chosen(meet: Meet, groups: str) -> None:
    """A client that has only another group finds none in common."""
    server = TlsServer([pair_of(localhost())], groups=groups)
    peer = client_context()
    peer.set_ecdh_curve("prime256v1" if "P-256" in groups else "secp384r1")
    assert meet(server, peer).shake() == "done"
    peer = client_context()
    peer.set_ecdh_curve("secp384r1" if "P-256" in groups else "prime256v1")
    assert meet(server, peer).shake() == "unshared"


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(TlsError, match="a group of 'P-256:NONE' is unknown"):
        TlsServer([pair_of(localhost())], groups="P-256:NONE")


def test_the_application_protocol(meet: Meet) -> None:
    both, other = client_context(), client_context()
    both.set_alpn_protocols(["h2", "http/1.1"])
    other.set_alpn_protocols(["h2"])
    couple = meet(peer=both)
    couple.begin()
    assert couple.peer.tls.selected_alpn_protocol() == "http/1.1"
    assert meet(peer=other).shake() == "unshared"


@pytest.mark.parametrize(("offer", "chosen"), [
    (["http/1.0"], "http/1.0"), (["http/1.0", "http/1.1"], "http/1.1"),
    (["h2", "http/1.0"], "http/1.0")])
def test_a_client_of_http_1_0_alone_is_served(
        meet: Meet, offer: list[str], chosen: str) -> None:
    """curl -0 offers http/1.0 alone, and got the alert no_application_protocol."""
    peer = client_context()
    peer.set_alpn_protocols(offer)
    couple = meet(peer=peer)
    couple.begin()
    assert couple.peer.tls.selected_alpn_protocol() == chosen


def test_a_client_that_does_not_trust_us_says_so(meet: Meet) -> None:
    couple = meet(peer=client_context(trusted=Authority("another")))
    assert couple.shake() == "rejected"


# --- certificates


def test_the_certificate_is_chosen_by_the_name(meet: Meet) -> None:
    a, wild, other = (authority().sign(f"DNS:{name}")
                      for name in ("a.example", "*.b.example", "other.example"))
    server = TlsServer([pair_of(one) for one in (other, a, wild)])
    peer = client_context()
    peer.check_hostname = False
    for name, expected in (
            ("a.example", "a.example"), ("A.EXAMPLE", "a.example"),
            ("x.b.example", "*.b.example"), ("x.y.b.example", "other.example"),
            ("b.example", "other.example"), ("unknown", "other.example"),
            (None, "other.example")):
        couple = meet(server, peer, name=name)
        couple.begin()
        names = couple.peer.tls.getpeercert()["subjectAltName"]
        assert names == (("DNS", expected),), name


def test_a_strict_server_refuses_other_names(meet: Meet) -> None:
    a, wild = (authority().sign(f"DNS:{name}") for name in ("a.example", "*.b.example"))
    server = TlsServer([pair_of(a), pair_of(wild)], sni_strict=True)
    peer = client_context()
    peer.check_hostname = False
    for name, expected in (
            ("A.example", "done"), ("x.b.example", "done"), ("b.example", "unnamed"),
            ("x.y.b.example", "unnamed"), ("other.example", "unnamed"),
            (None, "unnamed"), ("a.example", "done")):
        assert meet(server, peer, name=name).shake() == expected, name


def test_only_a_name_of_a_certificate_has_clients_of_its_own() -> None:
    ca = authority().own.certificate.read_bytes()
    pairs = [pair_of(authority().sign("DNS:a.example"))]
    for name in ("b.example", "*.example", "x.a.example"):
        with pytest.raises(TlsError, match=re.escape(
                f"client_ca_by_name: no certificate has the name {name}")):
            TlsServer(pairs, clients=ClientCheck(by_name=((name, ca),)))


def test_rsa_and_ecdsa_for_one_name(meet: Meet) -> None:
    server = TlsServer([pair_of(localhost("rsa")), pair_of(localhost("ec"))])
    assert [one.key for one in server.certificates] == ["RSA", "ECDSA"]
    for kind in ("RSA", "ECDSA"):
        peer = client_context()
        peer.maximum_version = ssl.TLSVersion.TLSv1_2
        peer.set_ciphers(f"ECDHE-{kind}-AES128-GCM-SHA256")
        couple = meet(server, peer)
        couple.begin()
        assert couple.peer.tls.cipher()[0] == f"ECDHE-{kind}-AES128-GCM-SHA256"


def test_pairs_that_cannot_be_used(tmp_path) -> None:
    good, other = localhost(), authority().sign("DNS:localhost")
    pem, key = good.pem
    for certificate, secret, reason in (
            (b"", key, "holds no certificate in PEM"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", key,
             "holds no certificate in PEM"),
            (pem, b"", "the key cannot be read, or is encrypted"),
            (pem, other.pem[1], "the key does not belong to the certificate"),
            (pem, localhost("rsa").pem[1], "the key does not belong")):
        with pytest.raises(TlsError, match=f"pair: {reason}"):
            TlsServer([Pair(certificate, secret, name="pair")])
    with pytest.raises(TlsError, match="needs a certificate"):
        TlsServer([])
    with pytest.raises(TlsError, match="need client_ca"):
        TlsServer([pair_of(good)], clients=ClientCheck(certificate="required"))


def test_an_encrypted_key_is_refused_without_a_question(tmp_path) -> None:
    made = localhost()
    locked = tmp_path / "locked.key"
    openssl("pkey", "-in", str(made.key), "-aes256", "-passout", "pass:x", "-out",
            str(locked))
    with pytest.raises(TlsError, match="cannot be read, or is encrypted"):
        TlsServer([Pair(made.pem[0], locked.read_bytes(), name="pair")])


def test_what_is_known_of_a_certificate() -> None:
    made = authority().sign("DNS:A.example", "DNS:b.example", days=3)
    [about] = TlsServer([pair_of(made)]).certificates
    assert about.hosts == ("a.example", "b.example")
    assert about.key == "ECDSA"
    # openssl reads the clock for each
    assert about.not_after - about.not_before - 3 * 86400 in (0, 1)


# --- client certificates


def server_for(ca: Authority, how: str = "required", client_crl: bytes = b"",
               **more: object) -> TlsServer:
    return TlsServer([pair_of(localhost())], clients=ClientCheck(
        ca.own.certificate.read_bytes(), client_crl, how), **more)


@pytest.mark.parametrize(("names", "subject", "expected"), [
    ((), "/CN=alice", b"alice"),
    (("DNS:host.example",), "/O=x", b"host.example"),
    (("email:a@b.example",), "/O=x", b"a@b.example"),
    (("DNS:h.example", "URI:spiffe://td/ns/x"), "/CN=alice", b"spiffe://td/ns/x"),
    (("URI:https://x.example/",), "/CN=alice", b"alice"),
])
def test_a_client_certificate_names_its_owner(
        meet: Meet, names, subject, expected) -> None:
    ca = authority()
    couple = meet(server_for(ca), client_context(ca.sign(*names, subject=subject)))
    couple.begin()
    assert couple.end.peer == expected


def test_a_required_certificate_is_required(meet: Meet) -> None:
    ca, other = authority(), Authority("others")
    assert meet(server_for(ca)).shake() == "denied"
    assert meet(server_for(ca), client_context(other.sign(subject="/CN=eve"))
                ).shake() == "denied"
    nameless = client_context(ca.sign(subject="/O=no name"))
    assert meet(server_for(ca), nameless).shake() == "denied"
    expired = client_context(ca.sign(subject="/CN=late", days=-1))
    assert meet(server_for(ca), expired).shake() == "denied"


def test_an_optional_certificate_is_verified_if_there_is_one(meet: Meet) -> None:
    ca = authority()
    couple = meet(server_for(ca, "optional"))
    couple.begin()
    assert couple.end.peer is None
    bad = client_context(Authority("others").sign(subject="/CN=eve"))
    assert meet(server_for(ca, "optional"), bad).shake() == "denied"


def test_a_revoked_certificate_is_refused(meet: Meet) -> None:
    ca = Authority("with a list")
    good, bad = ca.sign(subject="/CN=good"), ca.sign(subject="/CN=bad")
    server = server_for(ca, client_crl=ca.revoke(bad).read_bytes())
    assert meet(server, client_context(good)).shake() == "done"
    assert meet(server, client_context(bad)).shake() == "denied"
    with pytest.raises(TlsError, match="client_crl: holds no list"):
        server_for(ca, client_crl=b"no list")


# --- sessions


def resumed(meet: Meet, server: TlsServer, session: ssl.SSLSession | None,
            peer: ssl.SSLContext) -> tuple[bool, ssl.SSLSession]:
    couple = meet(server, peer, session=session)
    couple.begin()
    return couple.peer.tls.session_reused, couple.peer.tls.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_by_another_worker_and_configuration(
        meet: Meet, version) -> None:
    memory = bytearray(4096)
    memory[:16] = MAGIC
    first, second = TicketKeys(memory), TicketKeys(memory)
    first.rotate()
    peer = client_context()
    peer.maximum_version = version
    before = TlsServer([pair_of(localhost())], keys=first)
    after = TlsServer([pair_of(localhost("rsa")), pair_of(localhost())], keys=second)
    assert first.names == second.names
    was, session = resumed(meet, before, None, peer)
    now, later = resumed(meet, after, session, peer)
    assert (was, now) == (False, True)
    first.rotate()
    assert resumed(meet, after, later, peer)[0]
    first.rotate()
    assert resumed(meet, before, later, peer)[0]
    first.rotate()                          # its key is overwritten
    assert not resumed(meet, after, later, peer)[0]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_ticket_is_made_while_the_first_keys_cannot_be_read(
        meet: Meet, version) -> None:
    """The program that was writing them was killed: all zeros are no key."""
    memory = bytearray(4096)
    memory[:16] = MAGIC
    writer = TicketKeys(memory)
    writer.rotate()
    memory[16] |= 1                         # the version is odd
    server = TlsServer([pair_of(localhost())], keys=TicketKeys(memory))
    peer = client_context()
    peer.maximum_version = version
    _, session = resumed(meet, server, None, peer)
    # AWS-LC makes one that no library can read
    assert session is None or not session.has_ticket or (
        not resumed(meet, server, session, peer)[0])
    writer.rotate()                         # the next program's
    _, session = resumed(meet, server, None, peer)
    assert session.has_ticket and resumed(meet, server, session, peer)[0]


def test_a_resumed_session_brings_a_new_ticket(meet: Meet) -> None:
    """RFC 8446 appendix C.4: clients use each once. After the two of a full handshake
    there were no more."""
    server = TlsServer([pair_of(localhost())], keys=TicketKeys())
    peer = client_context()
    peer.minimum_version = ssl.TLSVersion.TLSv1_3
    session, tickets = None, []

    def count(_conn, direction, _version, _content, message, _data) -> None:
        if (direction, message) == ("read", NEW_SESSION_TICKET):
            tickets.append(message)

    peer._msg_callback = count
    for _ in range(3):
        tickets.clear()
        was, session = resumed(meet, server, session, peer)
        assert tickets
    assert was


def test_no_session_is_resumed_without_keys(meet: Meet) -> None:
    peer = client_context()
    server = TlsServer([pair_of(localhost())])
    _, session = resumed(meet, server, None, peer)
    assert session is None or not resumed(meet, server, session, peer)[0]


def test_a_session_keeps_its_name_unless_the_authorities_change(meet: Meet) -> None:
    """A list of revoked certificates, too, would have no effect on resumed sessions."""
    ca, keys = Authority("with a list"), TicketKeys()
    made = ca.sign(subject="/CN=alice")
    peer = client_context(made)
    server = server_for(ca, keys=keys)
    _, session = resumed(meet, server, None, peer)
    couple = meet(server, peer, session=session)
    couple.begin()
    assert couple.peer.tls.session_reused and couple.end.peer == b"alice"
    newer = server_for(ca, keys=keys, client_crl=ca.revoke(made).read_bytes())
    assert meet(newer, peer, session=couple.peer.tls.session).shake() == "denied"


def test_a_page_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="not a page of ticket keys"):
        TicketKeys(bytearray(4096))
