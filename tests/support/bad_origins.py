"""Origins with TLS that the proxy must refuse. badssl.com has such kinds; clients
connect to each as a.example."""

import functools
import ssl
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import Authority, Made, TlsSocket
from tests.support.inside import certificate, okay, origins, over_tls
from tests.support.origin import Connection, Script
from tests.support.proxy import ROOT


class Refusal(NamedTuple):
    reason: str             # in the log and in the metric
    alert: str              # to the client, in libssl's words
    words: str              # in the log, or their end; in small letters


BAD = "origin_certificate"
REFUSALS = {
    "expired": Refusal(BAD, "CERTIFICATE_EXPIRED", "certificate has expired"),
    "another name": Refusal(BAD, "BAD_CERTIFICATE", "hostname mismatch"),
    "no name": Refusal(BAD, "BAD_CERTIFICATE", "hostname mismatch: no subjectaltname"),
    # R86: it was accepted
    "common name": Refusal(BAD, "BAD_CERTIFICATE", "mismatch: no subjectaltname"),
    "untrusted": Refusal(BAD, "UNKNOWN_CA", "unable to get local issuer certificate"),
    "self-signed": Refusal(BAD, "UNKNOWN_CA", "signed certificate"),
    "revoked": Refusal(BAD, "CERTIFICATE_REVOKED", "certificate revoked"),
    # The beginning of this and of "signed certificate" depends on the libssl
    "weak group": Refusal("origin_tls", "HANDSHAKE_FAILURE", "alert handshake failure"),
}


@functools.cache
def bad_certificate(kind: str) -> Made:
    """The revoked one is bad by `revoked_list` alone, and that of the weak group is
    good."""
    if kind == "expired":
        return certificate(days=-1)
    if kind == "another name":
        return certificate("DNS:b.example")
    if kind == "no name":
        return origins().sign(subject="/CN=other")
    if kind == "common name":
        return origins().sign(subject="/CN=a.example")
    if kind == "weak group":                    # DHE-RSA is its only cipher
        return origins().sign("DNS:a.example", kind="rsa")
    if kind == "revoked":
        return origins().sign("DNS:a.example")
    other = Authority("stranger")
    return other.sign("DNS:a.example") if kind == "untrusted" else other.own


@functools.cache
def revoked_list() -> Path:
    """The list of the origins' authority, for the option origin_crl. Other tests write
    to the authority's own file."""
    path = origins().folder / "of-the-bad.pem"
    path.write_bytes(origins().revoke(bad_certificate("revoked")).read_bytes())
    return path


def bad_origin(kind: str) -> Script:
    return weak_group() if kind == "weak group" else over_tls(
        okay, bad_certificate(kind))


def weak_group() -> Script:
    """TLS 1.2 with Diffie-Hellman over 1024 bits, and nothing else. The proxy offers no
    group of finite fields."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*bad_certificate("weak group"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0")
    context.load_dh_params(ROOT / "tests" / "support" / "weak_dh.pem")

    def script(conn: Connection) -> None:
        try:
            TlsSocket(conn.sock, context, server_side=True).shake()
        except ssl.SSLError as error:
            assert "NO_SHARED_CIPHER" in str(error)
        else:
            raise AssertionError("the weak group was accepted")
    return script
