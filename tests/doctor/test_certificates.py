"""`cutthrough doctor`: certificates that expire, and pairs that cannot be used."""

import msgspec
import pytest

from cutthrough.config.listeners import Listener
from cutthrough.doctor.certificates import check_certificates
from cutthrough.doctor.program import check_listeners
from tests.doctor.test_host import make_case
from tests.support.certificates import authority


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
