"""Leaves: OpenSSL and a client in memory check them (R55)."""

import datetime
import ipaddress
import ssl
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from cutthrough.ca.leaf import make_root
from cutthrough.ca.names import build_constraints
from cutthrough.ca.store import encode_key
from cutthrough.net.tls import leaves
from cutthrough.net.tls.certificates import TlsError
from cutthrough.net.tls.leaves import MOST_LEAVES, TlsInterceptor
from tests.net.conftest import Meet
from tests.support.certificates import authority, client_context, localhost
from tests.support.couple import Couple

DAY = datetime.timedelta(days=1)
LONG = ".".join(["a" * 60] * 4) + ".example"


def interceptor(**more) -> TlsInterceptor:
    return TlsInterceptor(*authority().own.pem, **more)


def read(name: str) -> x509.Certificate:
    return x509.load_der_x509_certificate(interceptor().leaf(name))


@pytest.mark.parametrize("name", [
    "a.example", "a" * 63 + ".example", LONG, "192.0.2.1", "2001:db8::1"])
def test_a_leaf_passes_openssls_strict_verification(name: str, tmp_path: Path) -> None:
    (tmp_path / "leaf.pem").write_text(
        ssl.DER_cert_to_PEM_cert(interceptor().leaf(name)))
    is_host = name[-1].isalpha()
    done = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-no-CApath",
         "-CAfile", authority().own.certificate,
         "-verify_hostname" if is_host else "-verify_ip", name,
         tmp_path / "leaf.pem"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_leaf_has_the_extensions_of_cutthrough_ca_issue() -> None:
    made = read("a.example").extensions
    assert [one.value.__class__.__name__ for one in made] == [
        "BasicConstraints", "KeyUsage", "ExtendedKeyUsage", "SubjectKeyIdentifier",
        "AuthorityKeyIdentifier", "SubjectAlternativeName"]
    assert [one.critical for one in made] == [True, True, False, False, False, False]


def test_a_leaf_begins_two_days_ago_and_lives_197_days_at_most() -> None:
    made = read("a.example")
    now = datetime.datetime.now(datetime.UTC)
    assert 2 * DAY <= now - made.not_valid_before_utc < 2 * DAY + DAY / 24 \
        or made.not_valid_before_utc > now - DAY / 24        # the authority is younger
    assert made.not_valid_after_utc - made.not_valid_before_utc < 197 * DAY


def test_a_leaf_of_an_old_authority_has_all_of_its_time() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    then = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - 100 * DAY
    root = make_root(key, "old", 730, None, then).public_bytes(Encoding.PEM)
    made = x509.load_der_x509_certificate(
        TlsInterceptor(root, encode_key(key)).leaf("a.example"))
    lives = made.not_valid_after_utc - made.not_valid_before_utc
    assert lives == 197 * DAY - datetime.timedelta(seconds=1)


def test_a_leaf_does_not_outlive_the_authority() -> None:
    own = x509.load_pem_x509_certificate(authority().own.pem[0])
    assert read("a.example").not_valid_after_utc == own.not_valid_after_utc


def test_an_address_is_one_of_the_alternative_names_and_no_common_name() -> None:
    made = read("192.0.2.1")
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [*names.value] == [x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
    assert names.critical and not [*made.subject]


def test_all_leaves_have_one_key_and_serial_numbers_of_their_own() -> None:
    of = interceptor()
    made = [x509.load_der_x509_certificate(of.leaf(f"{i}.example")) for i in range(20)]
    assert len({one.public_key().public_numbers() for one in made}) == 1
    assert len({one.serial_number for one in made}) == 20


def test_an_expired_authority_signs_nothing() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    then = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - 100 * DAY
    root = make_root(key, "old", 50, None, then).public_bytes(Encoding.PEM)
    with pytest.raises(TlsError, match="has expired"):
        TlsInterceptor(root, encode_key(key))


def test_a_servers_certificate_is_no_authority() -> None:
    with pytest.raises(TlsError, match="not the certificate of an authority"):
        TlsInterceptor(*localhost().pem)


# --- connections


def accept(meet: Meet, of: TlsInterceptor, name: str = "a.example",
           offered: Sequence[str] = ()) -> Couple:
    peer = client_context()
    if offered:
        peer.set_alpn_protocols(offered)
    return meet(of, peer, name=name, speaks_for=name)


def test_a_client_that_trusts_the_authority_accepts_each_name(meet: Meet) -> None:
    of = interceptor()
    for name in ("a.example", "b.example", "192.0.2.1"):
        couple = accept(meet, of, name)
        couple.begin()
        couple.peer.send(b"question")
        assert couple.recv() == b"question"
    assert (of.minted, of.found, of.kept) == (3, 0, 3)


def test_a_kept_leaf_is_used_again(meet: Meet) -> None:
    of = interceptor()
    for _ in range(3):
        accept(meet, of, "a.example").begin()
    assert (of.minted, of.found) == (1, 2)


def test_a_leaf_of_a_clock_that_was_set_back_is_made_again(
        meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """By three days, and it was shown before its time of validity."""
    of, now = interceptor(), time.time()
    monkeypatch.setattr(leaves, "time", SimpleNamespace(time=lambda: now + 3 * 86400))
    with pytest.raises(AssertionError):      # the client's clock is right
        accept(meet, of, "a.example").begin()
    monkeypatch.setattr(leaves, "time", time)
    accept(meet, of, "a.example").begin()
    assert (of.minted, of.found) == (2, 0)


def test_the_oldest_leaf_makes_room(meet: Meet) -> None:
    of = interceptor(most=2)
    for name in ("a.example", "b.example", "c.example", "b.example", "a.example"):
        accept(meet, of, name).begin()
    assert (of.minted, of.found, of.kept) == (4, 1, 2)
    assert MOST_LEAVES == 4096


def test_a_client_that_offers_http2_alone_is_refused(meet: Meet) -> None:
    assert accept(meet, interceptor(), offered=["h2"]).shake() == "unshared"


@pytest.mark.parametrize(("offered", "chosen"), [
    (["h2", "http/1.1"], "http/1.1"), (["imap"], None), ([], None)])
def test_another_protocol_is_neither_chosen_nor_refused(
        meet: Meet, offered, chosen) -> None:
    couple = accept(meet, interceptor(), offered=offered)
    couple.begin()
    assert couple.peer.tls.selected_alpn_protocol() == chosen


def test_a_name_that_the_authority_may_not_have_is_signed_once() -> None:
    """It was signed again for each tunnel, and a permitted one twice: for the look, and
    for the handshake."""
    key = ec.generate_private_key(ec.SECP256R1())
    root = make_root(key, "narrow", 100, build_constraints(["a.example"]))
    of = TlsInterceptor(root.public_bytes(Encoding.PEM), encode_key(key), most=2)
    for _ in range(3):
        assert of.why_silent(b"a.example") == ""
        assert "permitted subtree" in of.why_silent(b"b.example")
    assert (of.minted, of.kept) == (2, 1)
    for name in (b"c.example", b"d.example", b"b.example"):     # two are remembered
        assert of.why_silent(name)
    assert of.minted == 5
