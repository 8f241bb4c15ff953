"""Makes certificates: the authority's own, and those of servers (leaves).

This module reads no files and keeps nothing: a function gets keys and names, and
returns a certificate. A leaf can have its own key, or share one with others.
"""

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cutthrough.ca.names import (
    AuthorityError,
    Name,
    constraints_of,
    is_permitted,
    show_names,
)
from cutthrough.ca.token import PublicKey, TokenKey

# Baseline Requirements of the CA/Browser Forum, section 6.3.2: 200 days since March
# 2026. BACKDATED: because a client's clock may be slow (R55)
LEAF_DAYS = 197
BACKDATED = datetime.timedelta(days=2)
# ub-common-name of RFC 5280, appendix A.1
MOST_COMMON_NAME = 64
SECOND = datetime.timedelta(seconds=1)


Key = ec.EllipticCurvePrivateKey | TokenKey


class Authority(NamedTuple):
    """A certificate that may sign others, and its key."""

    certificate: x509.Certificate
    key: Key

    def __repr__(self) -> str:               # never the key (R37)
        return f"Authority({self.certificate.subject.rfc4514_string()!r})"


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def make_root(key: Key, name: str, days: int,
              constraints: x509.NameConstraints | None,
              now: datetime.datetime | None = None) -> x509.Certificate:
    """Returns the authority's own certificate, valid for `days` from now. It may sign
    leaves, and if its key is in a token, authorities that may sign leaves. Raises
    AuthorityError if `name` has a bad length."""
    now = now or utc_now()
    if not 1 <= len(name) <= MOST_COMMON_NAME:
        raise AuthorityError(f"a name has 1 to {MOST_COMMON_NAME} characters")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    in_token = isinstance(key, TokenKey)
    builder = authority_builder(
        key.public if isinstance(key, TokenKey) else key.public_key(), subject, subject,
        now - BACKDATED, now + datetime.timedelta(days=days), int(in_token))
    if constraints is not None:
        builder = builder.add_extension(constraints, critical=True)
    return _sign(builder, key)


def authority_builder(key: PublicKey, subject: x509.Name, issuer: x509.Name,
                      begin: datetime.datetime, end: datetime.datetime,
                      path_length: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length),
                       critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False))


def _sign(builder: x509.CertificateBuilder, key: Key) -> x509.Certificate:
    return key.sign(builder) if isinstance(key, TokenKey) else builder.sign(
        key, hashes.SHA256())


def make_leaf(authority: Authority, names: Sequence[Name],
              key: ec.EllipticCurvePublicKey, days: int = LEAF_DAYS,
              now: datetime.datetime | None = None) -> x509.Certificate:
    """Returns a server's certificate for these names and this key.

    It begins two days ago and ends `days` from now, but lives LEAF_DAYS at most (R55),
    and never outlives the authority. Raises AuthorityError if the authority's
    constraints do not permit a name, if there are no names, and if the authority has
    expired.
    """
    now = now or utc_now()
    names = list(dict.fromkeys(names))
    issuer = authority.certificate
    if not names:
        raise AuthorityError("a certificate needs a name")
    if not 1 <= days <= LEAF_DAYS:
        raise AuthorityError(f"a certificate is valid for 1 to {LEAF_DAYS} days")
    constraints = constraints_of(issuer)
    if refused := [name for name in names if not is_permitted(name, constraints)]:
        raise AuthorityError("the authority's constraints do not permit "
                             + show_names(refused))
    if now >= issuer.not_valid_after_utc:
        raise AuthorityError(
            f"the authority expired on {issuer.not_valid_after_utc:%Y-%m-%d}")
    begin = max(now - BACKDATED, issuer.not_valid_before_utc)
    # Both ends belong to the time of validity (RFC 5280 section 4.1.2.5)
    longest = now - BACKDATED + datetime.timedelta(days=LEAF_DAYS) - SECOND
    end = min(now + datetime.timedelta(days=days), longest, issuer.not_valid_after_utc)
    subject = _subject(names)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        # Critical if there is no subject (RFC 5280 section 4.2.1.6)
        .add_extension(x509.SubjectAlternativeName(names), critical=not list(subject))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
                       critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(issuer_key(issuer), critical=False))
    return _sign(builder, authority.key)


def _subject(names: Sequence[Name]) -> x509.Name:
    """The first host name that fits, for people: clients read the other names. Not an
    address, because OpenSSL compares it with the constraints of host names."""
    for name in names:
        if isinstance(name, x509.DNSName) and len(name.value) <= MOST_COMMON_NAME:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name.value)])
    return x509.Name([])


def issuer_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        key = issuer.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own.value)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False)
