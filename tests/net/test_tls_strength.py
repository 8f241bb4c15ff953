"""OpenSSL and AWS-LC refuse and accept the same keys, digests, chains and tickets
(R47 to R49): the one by its security level, the other by `libssl.h`."""

import datetime
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from cutthrough.net.tls.certificates import TlsError
from cutthrough.net.tls.context import ClientCheck, TlsClient, TlsServer
from cutthrough.net.tls.failures import why_failed
from cutthrough.net.tls.leaves import TlsInterceptor
from cutthrough.net.tls.ticket_keys import MAGIC, TicketKeys
from tests.net.conftest import Meet
from tests.support.certificates import client_context, localhost, openssl
from tests.support.couple import Couple, pair_of

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
PEM = serialization.Encoding.PEM


class Issued(NamedTuple):
    certificate: x509.Certificate
    key: Any

    @property
    def pem(self) -> tuple[bytes, bytes]:
        return self.certificate.public_bytes(PEM), self.key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def new_key(kind: str) -> Any:
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind[3:]))
    return ec.generate_private_key(ec.SECP256R1())


def issue(issuer: Issued | None, kind: str = "ec", *, names: tuple[str, ...] = (),
          ) -> Issued:
    """`issuer`: None: a root. Without names the certificate is an authority's."""
    key = new_key(kind)
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{serial:x}"[:16])])
    made = (
        x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .serial_number(serial)
        .not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(not names, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
                       critical=False))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(
            [x509.DNSName(name) for name in names]), critical=False)
    signer = issuer.key if issuer else key
    return Issued(made.sign(signer, None if isinstance(
        signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()), key)


ROOT = issue(None)


def issue_with_sha1(folder: Path) -> Issued:
    """By openssl(1): cryptography refuses."""
    key = new_key("ec")
    for name, data in (
            ("root", b"".join(ROOT.pem)), ("key", Issued(ROOT.certificate, key).pem[1]),
            ("ext", b"subjectAltName=DNS:localhost")):
        (folder / name).write_bytes(data)
    paths = {name: str(folder / name) for name in ("root", "key", "ext", "csr", "made")}
    openssl("req", "-new", "-key", paths["key"], "-subj", "/CN=one", "-out",
            paths["csr"])
    openssl("x509", "-req", "-in", paths["csr"], "-CA", paths["root"], "-CAkey",
            paths["root"], "-CAcreateserial", "-sha1", "-days", "1", "-extfile",
            paths["ext"], "-out", paths["made"])
    made = x509.load_pem_x509_certificate((folder / "made").read_bytes())
    return Issued(made, key)


@pytest.fixture
def couple_of(known):
    """Makes couples, which end with the test."""
    made: list[Couple] = []

    def make(context, peer, **more):
        made.append(Couple(known(context), peer, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def origin(issued: Issued, tmp_path, *chain: Issued) -> ssl.SSLContext:
    path = tmp_path / "origin.pem"
    path.write_bytes(b"".join([*issued.pem, *(one.pem[0] for one in chain)]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(path)
    return context


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def version(request):
    return request.param


@pytest.mark.parametrize(("kind", "answer"), [
    ("rsa1024", "denied"), ("rsa2048", "done"), ("sha1", "denied"),
    ("ed25519", "done")])
def test_an_origins_key_and_its_signature(
        couple_of, tmp_path, version, kind, answer) -> None:
    issued = issue_with_sha1(tmp_path) if kind == "sha1" else issue(
        ROOT, kind, names=("localhost",))
    server = origin(issued, tmp_path)
    server.maximum_version = version
    couple = couple_of(TlsClient(ca=ROOT.pem[0]), server, connects=True)
    assert couple.shake() == answer


@pytest.mark.parametrize(("kind", "answer"), [("rsa1024", "denied"),
                                              ("rsa2048", "done")])
def test_the_key_of_an_authority_below(
        couple_of, tmp_path, version, kind, answer) -> None:
    below = issue(ROOT, kind)
    server = origin(issue(below, names=("localhost",)), tmp_path, below)
    server.maximum_version = version
    couple = couple_of(TlsClient(ca=ROOT.pem[0]), server, connects=True)
    assert couple.shake() == answer


@pytest.mark.parametrize(("kind", "answer"), [
    ("rsa1024", "denied"), ("rsa2048", "done"), ("ec", "done"), ("ed25519", "done")])
def test_a_clients_key(meet: Meet, tmp_path, version, kind, answer) -> None:
    server = TlsServer([pair_of(localhost())],
                       clients=ClientCheck(ROOT.pem[0], certificate="required"))
    path = tmp_path / "client.pem"
    path.write_bytes(b"".join(issue(ROOT, kind, names=("me",)).pem))
    peer = client_context()
    peer.set_ciphers("ALL:@SECLEVEL=0")
    peer.load_cert_chain(path)
    peer.minimum_version = peer.maximum_version = version
    assert meet(server, peer).shake() == answer


BOUND = pytest.mark.parametrize(("sent", "answer"), [(16, "done"), (17, "invalid")])


def beside(sent: int) -> list[Issued]:
    """What is sent beside a certificate of its own, so that there are so many."""
    return [issue(ROOT, "ed25519") for _ in range(sent - 1)]


@BOUND
def test_an_origins_certificates_are_bounded(
        couple_of, tmp_path, version, sent, answer) -> None:
    """500 of them, with compressed points of P-224, held a worker for 0.3 s."""
    server = origin(issue(ROOT, names=("localhost",)), tmp_path, *beside(sent))
    server.maximum_version = version
    couple = couple_of(TlsClient(ca=ROOT.pem[0]), server, connects=True)
    assert couple.shake() == answer
    assert answer == "done" or why_failed() == "excessive message size"


@BOUND
def test_a_clients_certificates_are_bounded(
        meet: Meet, tmp_path, version, sent, answer) -> None:
    """Anybody may send them to a listener with `client_ca`."""
    server = TlsServer([pair_of(localhost())],
                       clients=ClientCheck(ROOT.pem[0], certificate="required"))
    path = tmp_path / "client.pem"
    path.write_bytes(b"".join([*issue(ROOT, names=("me",)).pem,
                               *(each.pem[0] for each in beside(sent))]))
    peer = client_context()
    peer.load_cert_chain(path)
    peer.minimum_version = peer.maximum_version = version
    assert meet(server, peer).shake() == answer


def test_no_compressed_certificate_is_asked_for(couple_of, tmp_path) -> None:
    """They could not be counted (RFC 8879), and OpenSSL 3.2 and newer asks for them."""
    server = origin(issue(ROOT, names=("localhost",)), tmp_path)
    couple = couple_of(TlsClient(ca=ROOT.pem[0]), server, connects=True)
    assert couple.end.shake() == "more"
    hello = couple.peer.sock.recv(4096)
    extensions = hello[5 + 4 + 2 + 32:]
    extensions = extensions[1 + extensions[0]:]
    extensions = extensions[2 + int.from_bytes(extensions[:2]):]
    extensions = extensions[1 + extensions[0] + 2:]
    numbers = []
    while extensions:
        numbers.append(int.from_bytes(extensions[:2]))
        extensions = extensions[4 + int.from_bytes(extensions[2:4]):]
    assert 43 in numbers and 27 not in numbers


@pytest.mark.parametrize("kind", ["ec", "rsa2048"])
def test_the_chain_of_an_intercepting_authority_is_sent(couple_of, kind) -> None:
    """Its key is of another kind than that of the leaves."""
    below = issue(ROOT, kind)
    chain = below.pem[0] + ROOT.pem[0]
    peer = ssl.create_default_context(cadata=ROOT.pem[0].decode())
    couple = couple_of(TlsInterceptor(chain, below.pem[1]), peer, name="a.example",
                       speaks_for="a.example")
    assert couple.shake() == "done" and couple.peer.done


def test_a_ticket_lasts_two_hours(meet: Meet, version) -> None:
    page = bytearray(4096)
    page[:16] = MAGIC
    keys = TicketKeys(page)
    keys.rotate()
    peer = client_context()
    peer.maximum_version = version
    couple = meet(TlsServer([pair_of(localhost())], keys=keys), peer)
    couple.begin()
    session = couple.peer.tls.session
    assert session.has_ticket and session.ticket_lifetime_hint == 7200


@pytest.mark.parametrize("names", ["NULL-SHA", "aNULL"])
def test_no_connection_is_without_encryption(meet: Meet, names) -> None:
    peer = client_context()
    peer.maximum_version = ssl.TLSVersion.TLSv1_2
    peer.set_ciphers(f"{names}:@SECLEVEL=0")
    try:
        couple = meet(TlsServer([pair_of(localhost())], ciphers=names), peer)
    except TlsError:
        return
    assert couple.shake() == "unshared"


def test_a_refusal_is_known_though_a_reset_follows(meet: Meet) -> None:
    """R57: the alert comes in clear, and no peer is there for an answer."""
    couple = meet(peer=client_context())
    assert couple.end.shake() == "more"
    couple.peer.sock.send(couple.peer.step())
    couple.end.note()
    assert couple.end.shake() == "more"
    couple.peer.step()
    couple.peer.sock.send(b"\x15\x03\x03\x00\x02\x02\x30")      # unknown_ca
    couple.peer.sock.close()
    couple.end.note()
    assert couple.end.shake() == "rejected"


@pytest.mark.parametrize("sealed_first", [False, True])
def test_an_alert_in_clear_that_somebody_slips_in(
        couple_of, tmp_path, sealed_first) -> None:
    """Behind a server's ServerHello all is sealed; an unsealed record is no alert."""
    server = origin(issue(ROOT, names=("localhost",)), tmp_path)
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    couple = couple_of(TlsClient(ca=ROOT.pem[0]), server, connects=True)
    assert couple.end.shake() == "more"
    flight = couple.peer.step()
    first = 5 + int.from_bytes(flight[3:5], "big")
    if sealed_first:                        # and the ChangeCipherSpec before it
        first += 6
        first += 5 + int.from_bytes(flight[first + 3:first + 5], "big")
    couple.peer.sock.send(flight[:first] + b"\x15\x03\x03\x00\x02\x02\x74")
    couple.end.note()
    assert couple.end.shake() == "invalid"


def test_a_failure_of_ours_is_none_of_pythons(couple_of, tmp_path) -> None:
    """Both may have the same libcrypto, and its queue of errors belongs to the thread:
    authorities could not be loaded behind a handshake that had failed."""
    server = origin(issue(None, names=("localhost",)), tmp_path)
    couple = couple_of(TlsClient(ca=ROOT.pem[0]), server, connects=True)
    assert couple.shake() == "denied"
    couple.end.close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(
        cadata=ROOT.certificate.public_bytes(serialization.Encoding.DER))
