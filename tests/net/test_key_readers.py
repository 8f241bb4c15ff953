"""Certificates of servers with each kind of key, and the system's authorities."""

import ssl
import subprocess
from pathlib import Path

import pytest

from cutthrough.net.tls.context import TlsClient
from tests.support.certificates import authority, localhost, on_aws_lc
from tests.support.couple import Couple

KINDS = {
    "P-256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "P-384": ["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
    "P-521": ["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
    "RSA": ["rsa:2048"],
    "RSA-PSS": ["rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"],
    "Ed25519": ["ed25519"],
    "Ed448": ["ed448"],
}


def shake(known, client: TlsClient, certificate: Path, key: Path) -> str:
    peer = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    peer.load_cert_chain(certificate, key)
    couple = Couple(known(client), peer, name="localhost", connects=True)
    try:
        how: str = couple.shake()
    finally:
        couple.close()
    return how


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_is_verified_by_each_kind_of_key(known, tmp_path, kind) -> None:
    """R48. The second one is of another authority of this name."""
    if on_aws_lc() and kind in ("RSA-PSS", "Ed448"):
        # Its TLS neither offers nor accepts these algorithms: docs/tls.md
        pytest.skip("AWS-LC has no signatures of these keys in TLS")
    made = []
    for name in ("one", "two"):
        pem, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-nodes", "-days", "3", "-subj", "/CN=x",
             "-addext", "subjectAltName=DNS:localhost", "-newkey", *KINDS[kind],
             "-out", pem, "-keyout", key], check=True, capture_output=True, timeout=30)
        made.append((pem, key))
    client = TlsClient(ca=made[0][0].read_bytes())
    assert [shake(known, client, *one) for one in made] == ["done", "denied"]


@pytest.mark.parametrize("place", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_the_systems_authorities_are_read(known, tmp_path, monkeypatch, place) -> None:
    """Of a directory each is read when a certificate names it."""
    trusted = authority().own.certificate
    digest = subprocess.run(
        ["openssl", "x509", "-noout", "-subject_hash", "-in", trusted], check=True,
        capture_output=True, text=True, timeout=30).stdout.strip()
    (tmp_path / f"{digest}.0").write_bytes(trusted.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert shake(known, TlsClient(), *localhost()) == "denied"
    monkeypatch.setenv(
        place, str(trusted if place == "SSL_CERT_FILE" else tmp_path))
    assert shake(known, TlsClient(), *localhost()) == "done"
