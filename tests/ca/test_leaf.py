"""Leaves and roots: OpenSSL and a client over loopback check them (R55)."""

import datetime
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from cutthrough.ca.leaf import LEAF_DAYS, Authority, make_leaf, make_root, utc_now
from cutthrough.ca.names import (
    AuthorityError,
    build_constraints,
    constraints_of,
    copy_names,
    is_permitted,
    read_name,
    show_constraints,
)
from cutthrough.ca.store import encode_key
from tests.support.certificates import authority as signed_by_openssl

DAY = datetime.timedelta(days=1)
# One for all leaves of this file, as interception would have it
KEY = ec.generate_private_key(ec.SECP256R1())
LONG = ".".join(["a" * 30] * 3) + ".example"


def make(*permitted: str, days: int = 100, now: datetime.datetime | None = None,
         ) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    return Authority(make_root(key, "an authority", days, build_constraints(permitted),
                               now), key)


AUTHORITY = make(days=730)


def leaf(*names: str, of: Authority = AUTHORITY, **more) -> x509.Certificate:
    return make_leaf(of, [*map(read_name, names)], KEY.public_key(), **more)


def verify(folder: Path, certificate: x509.Certificate, of: Authority, *arguments: str,
           ) -> str:
    """The report of `openssl verify`; "": it is valid."""
    for name, one in (("root", of.certificate), ("leaf", certificate)):
        (folder / name).write_bytes(one.public_bytes(Encoding.PEM))
    done = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-no-CApath",
         "-CAfile", folder / "root", *arguments, folder / "leaf"],
        capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def shake(folder: Path, certificate: x509.Certificate, name: str,
          of: Authority = AUTHORITY) -> None:
    """A handshake over loopback. Raises ssl.SSLError."""
    pair = folder / "pair.pem"
    pair.write_bytes(encode_key(KEY) + certificate.public_bytes(Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair)
    client = ssl.create_default_context(
        cadata=of.certificate.public_bytes(Encoding.PEM).decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    def serve() -> None:
        with listening.accept()[0] as sock:
            sock.settimeout(10)
            try:
                server.wrap_socket(sock, server_side=True).close()
            except OSError:                  # the client refused
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening, \
            ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve)
        with socket.create_connection(listening.getsockname(), 10) as sock, \
                client.wrap_socket(sock, server_hostname=name):
            pass
        done.result(10)


@pytest.mark.parametrize(("typed", "asked"), [
    ("a.example", "a.example"), ("A.Example.", "a.example"),
    ("*.a.example", "b.a.example"), ("bücher.example", "bücher.example"),
    ("*.bücher.example", "x.xn--bcher-kva.example"), ("127.0.0.1", "127.0.0.1"),
    ("::1", "::1"), ("[::1]", "::1"), ("localhost", "localhost"), (LONG, LONG),
])
def test_a_client_accepts_the_name(tmp_path, typed, asked):
    made = leaf(typed)
    assert verify(tmp_path, made, AUTHORITY) == ""
    shake(tmp_path, made, asked)


@pytest.mark.parametrize(("typed", "asked"), [
    ("a.example", "b.example"), ("a.example", "b.a.example"),
    ("*.a.example", "a.example"), ("*.a.example", "c.b.a.example"),
    ("127.0.0.1", "127.0.0.2"), ("a.example", "127.0.0.1"),
])
def test_a_client_refuses_another_name(tmp_path, typed, asked):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
        shake(tmp_path, leaf(typed), asked)


def test_leaves_of_several_names_share_a_key(tmp_path):
    first, second = leaf("a.example", "10.0.0.1", "a.example"), leaf("b.example")
    assert first.public_key() == second.public_key()
    assert first.serial_number != second.serial_number
    assert len(copy_names(first)) == 2       # each once
    shake(tmp_path, first, "a.example")
    shake(tmp_path, second, "b.example")


@pytest.mark.parametrize("text", [
    "", "*", "*.", "a b.example", "a..example", "a.*.example", "*.10.0.0.1",
    "http://a.example", "a.example:443", "10.0.0.0/8", "a" * 64 + ".example",
])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(AuthorityError):
        read_name(text)


def test_a_leaf_begins_two_days_ago_and_lives_197_days():
    """R55."""
    now = utc_now()
    made = leaf("a.example", now=now)
    assert made.not_valid_before_utc == now - 2 * DAY
    lives = made.not_valid_after_utc - made.not_valid_before_utc
    assert lives + datetime.timedelta(seconds=1) == LEAF_DAYS * DAY
    assert leaf("a.example", days=1, now=now).not_valid_after_utc == now + DAY


def test_a_leaf_never_outlives_its_authority():
    now = utc_now()
    short = make(days=10, now=now)
    made = leaf("a.example", of=short, now=now)
    assert made.not_valid_after_utc == short.certificate.not_valid_after_utc
    # An authority of another program may have begun today
    late = make(days=10, now=now + DAY)
    assert leaf("a.example", of=late, now=now).not_valid_before_utc == (
        late.certificate.not_valid_before_utc)


def test_an_expired_authority_signs_nothing():
    with pytest.raises(AuthorityError, match="the authority expired on 20"):
        leaf("a.example", of=make(days=1, now=utc_now() - 3 * DAY))


@pytest.mark.parametrize("days", [0, 198])
def test_no_leaf_lives_longer_or_not_at_all(days):
    with pytest.raises(AuthorityError, match="1 to 197 days"):
        leaf("a.example", days=days)


def test_a_certificate_without_a_name_is_refused():
    with pytest.raises(AuthorityError, match="needs a name"):
        leaf()


@pytest.mark.parametrize(("name", "subject"), [
    ("a.example", "CN=a.example"), (LONG, ""), ("10.0.0.1", "")])
def test_the_subject_is_a_name_that_fits_or_nothing(name, subject):
    """A common name of an address would be compared with constraints of host names."""
    made = leaf(name)
    assert made.subject.rfc4514_string() == subject
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.critical == (not subject)   # RFC 5280 section 4.2.1.6


def test_an_authority_signs_no_authority(tmp_path):
    below = Authority(make_root(KEY, "below", 10, None), KEY)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(AUTHORITY.certificate.subject)
        .subject_name(below.certificate.subject)
        .public_key(KEY.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(utc_now() - DAY).not_valid_after(utc_now() + DAY))
    for one in below.certificate.extensions:
        builder = builder.add_extension(one.value, one.critical)
    (tmp_path / "between").write_bytes(
        builder.sign(AUTHORITY.key, SHA256()).public_bytes(Encoding.PEM))
    found = verify(tmp_path, leaf("a.example", of=below), AUTHORITY, "-untrusted",
                   str(tmp_path / "between"))
    assert "path length constraint exceeded" in found


# The names of another certificate

def test_the_names_of_a_servers_certificate_are_copied(tmp_path):
    made = signed_by_openssl().sign(
        "DNS:a.example", "DNS:*.b.example", "IP:10.0.0.1", "IP:::1",
        "URI:spiffe://example.org/x", "email:me@example.org", "DNS:../../x",
        "DNS:a b", "DNS:10.0.0.2", "DNS:*.*.example")
    names = copy_names(x509.load_pem_x509_certificate(made.pem[0]))
    copied = make_leaf(AUTHORITY, names, KEY.public_key())
    assert [str(one.value) for one in copy_names(copied)] == [
        "a.example", "*.b.example", "10.0.0.1", "::1"]
    shake(tmp_path, copied, "x.b.example")


@pytest.mark.parametrize("names", [(), ("URI:spiffe://example.org/x",)])
def test_a_certificate_without_names_has_none_to_copy(names):
    made = signed_by_openssl().sign(*names)
    with pytest.raises(AuthorityError, match=r"no readable names|no host name"):
        copy_names(x509.load_pem_x509_certificate(made.pem[0]))


# Constraints

CASES = [
    (("a.example",), ("a.example", "b.a.example", "*.a.example"),
     ("b.example", "xa.example", "*.example", "10.0.0.1", "::1")),
    (("*.a.example", ".b.example"), ("a.example", "x.b.example"), ("c.example",)),
    (("10.0.0.0/8",), ("10.1.2.3",), ("11.0.0.1", "::1", "a.example")),
    (("::1",), ("::1",), ("::2", "127.0.0.1", "a.example")),
    (("a.example", "127.0.0.1"), ("a.example", "127.0.0.1"),
     ("127.0.0.2", "::1", "b.example")),
    ((), ("a.example", "10.0.0.1"), ()),
]


@pytest.mark.parametrize(("permitted", "good", "bad"), CASES)
def test_constraints_hold_here_and_in_openssl(tmp_path, permitted, good, bad):
    """An authority that could sign for every address was not constrained at all: a kind
    of name that no subtree permits is free (RFC 5280 section 4.2.1.10)."""
    of = make(*permitted)
    for name in good:
        assert verify(tmp_path, leaf(name, of=of), of) == ""
    free = Authority(make_root(of.key, "an authority", 10, None), of.key)
    for name in bad:
        assert not is_permitted(read_name(name), constraints_of(of.certificate))
        with pytest.raises(AuthorityError, match="do not permit"):
            leaf(name, of=of)
        # Signed by the same key without a look at the constraints
        found = verify(tmp_path, leaf(name, of=free), of)
        assert "permitted subtree violation" in found or (
            "excluded subtree violation" in found)


def test_constraints_are_shown():
    assert show_constraints(build_constraints(["a.example", "10.0.0.0/8"])) == (
        "only for a.example and below, 10.0.0.0/8")
    assert show_constraints(None) == "none: it may sign for every name"


@pytest.mark.parametrize("text", ["", "*", "10.0.0.1/8", "a/b", "a b"])
def test_what_cannot_be_permitted_is_refused(text):
    with pytest.raises(AuthorityError):
        build_constraints([text])


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_root_has_a_name_of_64_characters_at_most(name):
    with pytest.raises(AuthorityError, match="1 to 64"):
        make_root(KEY, name, 1, None)


def test_no_text_of_an_authority_has_its_key():
    assert "key" not in repr(AUTHORITY) and "an authority" in repr(AUTHORITY)
