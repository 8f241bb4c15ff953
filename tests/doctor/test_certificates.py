"""`cutthrough doctor`: certificates that expire, and pairs that cannot be used."""

import msgspec
import pytest

from cutthrough.config.listeners import Listener
from cutthrough.config.parents import Parent
from cutthrough.doctor.certificates import (
    check_authority,
    check_certificates,
    check_certificates_of_parents,
    check_interception_authority,
)
from cutthrough.doctor.program import check_listeners
from cutthrough.generation.tls_files import expiries, read_parent_files
from tests.doctor.hosts import make_case
from tests.support.certificates import Authority, authority, end_in


def findings(days: int, key: str = "") -> list:
    made = authority().sign("DNS:a.example", days=days)
    listener = Listener(address=("127.0.0.1", 0), certificates=(str(made.certificate),),
                        certificate_keys=(key or str(made.key),))
    case = make_case()
    config = msgspec.structs.replace(case.config, listeners=(listener,))
    return list(check_certificates(case._replace(config=config)))


def test_without_tls_there_is_nothing_to_check():
    assert not list(check_certificates(make_case()))


@pytest.mark.parametrize(("days", "verdict", "seen"), [
    (30, "ok", "ECDSA, a.example, 29 days left"),
    (5, "warn", "ECDSA, a.example, 4 days left"),
    (-1, "fail", "ECDSA, a.example, expired")])
def test_how_long_a_certificate_is_valid(days, verdict, seen):
    (found,) = findings(days)
    assert (found.verdict, found.seen) == (verdict, seen)


def test_a_pair_that_cannot_be_used():
    (found,) = findings(30, str(authority().sign().key))
    assert found.verdict == "fail"
    assert "the key does not belong to the certificate" in found.seen


@pytest.mark.parametrize(("protocols", "verdict"), [
    (("http",), "ok"), (("http", "tls"), "note")])
def test_certificates_protect_a_port_without_plain_text(protocols, verdict):
    listener = Listener(address=("0.0.0.0", 0), certificates=("/etc/proxy.pem",),
                        protocols=protocols)
    case = make_case(user="me", password="secret")
    config = msgspec.structs.replace(case.config, listen=(), listeners=(listener,))
    found = next(check_listeners(case._replace(config=config)))
    assert (found.name, found.verdict) == ("listen 0.0.0.0:0", verdict)


# For parents


def case_of(*parents: Parent):
    case = make_case()
    return case._replace(config=msgspec.structs.replace(case.config, parents=parents))


def parent(days: int = 30, ca: str = "", name: str = "a") -> Parent:
    made = authority().sign(subject="/CN=the proxy", days=days)
    return Parent(name=name, url="https://127.0.0.1:1", ca=ca,
                  certificate=str(made.certificate), certificate_key=str(made.key))


def test_without_files_of_parents_there_is_nothing_to_check():
    plain = Parent(name="a", url="http://127.0.0.1:1")
    assert not list(check_certificates_of_parents(case_of(plain)))


@pytest.mark.parametrize(("days", "verdict", "seen"), [
    (30, "ok", "29 days left"), (5, "warn", "4 days left"), (-1, "fail", "expired")])
def test_how_long_our_certificate_for_a_parent_is_valid(days, verdict, seen):
    (found,) = check_certificates_of_parents(case_of(parent(days)))
    assert (found.verdict, found.seen) == (verdict, f"ECDSA, the proxy, {seen}")


def test_of_a_file_of_authorities_the_first_one_to_expire_counts(tmp_path):
    """A parent's certificate is accepted as long as its own authority is valid."""
    bundle = tmp_path / "ca.pem"
    short = authority().sign(subject="/CN=short", days=5)
    bundle.write_bytes(Authority("long").own.certificate.read_bytes()
                       + short.certificate.read_bytes())
    case = case_of(parent(ca=str(bundle)), parent(ca=str(bundle), name="b"))
    found = [one for one in check_certificates_of_parents(case)
             if one.name == f"certificate {bundle}"]
    assert [(one.verdict, one.seen) for one in found] == [
        ("warn", "ECDSA, short, 4 days left")], "and once"


def test_the_expiries_of_parents_are_in_the_metric():
    made = parent(ca=str(authority().own.certificate))
    config = case_of(made).config
    found = expiries(config, (), read_parent_files(config))
    assert found.keys() == {made.certificate, made.ca}
    assert all(at > 0 for at in found.values())


def test_files_of_a_parent_that_cannot_be_used():
    made = msgspec.structs.replace(
        parent(), certificate_key=str(authority().sign().key))
    (found,) = check_certificates_of_parents(case_of(made))
    assert found.verdict == "fail"
    assert "the key does not belong to the certificate" in found.seen


# `ca_certificate`

def test_without_an_authority_there_is_nothing_to_check():
    assert not list(check_authority(make_case()))


@pytest.mark.parametrize(("days", "verdict", "seen"), [
    (70, "ok", "commonName=ours, 69 days left"),
    (30, "warn", "commonName=ours, 29 days left"),
    (-1, "fail", "commonName=ours, expired")])
def test_how_long_an_authority_is_valid(tmp_path, days, verdict, seen):
    ours = Authority("ours", tmp_path)
    end_in(days, *ours.own)
    (found,) = check_authority(make_case(ca_certificate=str(ours.own.certificate)))
    assert (found.verdict, found.seen) == (verdict, seen)
    assert bool(found.advice) == (verdict != "ok")


def test_a_certificate_of_an_authority_that_cannot_be_used(tmp_path):
    (found,) = check_authority(make_case(ca_certificate=str(tmp_path / "none")))
    assert found.verdict == "fail" and "No such file" in found.seen


# `intercept_ca`

def test_without_interception_there_is_no_authority_to_check():
    assert not list(check_interception_authority(make_case()))


@pytest.mark.parametrize(("days", "verdict"), [(70, "ok"), (30, "warn"), (-1, "fail")])
def test_how_long_the_authority_of_interception_is_valid(tmp_path, days, verdict):
    ours = Authority("ours", tmp_path)
    end_in(days, *ours.own)
    ours.own.key.chmod(0o600)
    (found,) = check_interception_authority(make_case(intercept_ca=str(tmp_path)))
    assert (found.verdict, found.name) == (verdict, f"intercept_ca {tmp_path}/ca.pem")


def test_an_authority_of_interception_that_is_missing(tmp_path):
    (found,) = check_interception_authority(make_case(intercept_ca=str(tmp_path)))
    assert found.verdict == "fail" and "`cutthrough ca init` makes it" in found.seen
