"""Numbers of the TLS contexts of interception, through reloads."""

import ssl
import types

import pytest

from cutthrough.config.config import Config
from cutthrough.generation.generation import Generation
from cutthrough.generation.interception import InterceptionFiles
from cutthrough.generation.tls_files import PairFiles
from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.context import TlsContext
from cutthrough.policy.source import Policy
from cutthrough.worker import tls_interception
from cutthrough.worker.tls_interception import LATE_S, TlsInterception
from cutthrough.worker.transaction import Transaction
from tests.support.certificates import authority, localhost
from tests.support.couple import Couple


@pytest.fixture
def clock(monkeypatch):
    made = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(tls_interception, "time", types.SimpleNamespace(
        monotonic=lambda: made.now))
    return made


@pytest.fixture
def contexts():
    made = TlsInterception()
    yield made
    made.close()


def files(*names: str, **more) -> InterceptionFiles:
    """A certificate for each name, the same one for the same name."""
    certificate, key = authority().own.pem
    pairs = tuple((name, PairFiles(name, *localhost().pem)) for name in names)
    return InterceptionFiles(certificate, key, pairs=pairs, **more)


def put(contexts: TlsInterception, wanted: InterceptionFiles) -> None:
    transaction = Transaction(Generation(1, Config(), Policy()))
    contexts.prepare(wanted, transaction)
    transaction.commit()


def test_each_certificate_has_a_number(clock, contexts) -> None:
    """R46."""
    put(contexts, files("a", "b"))
    numbers = [number for number, _ in contexts.origins.values()]
    assert contexts.origins.keys() == {"", "a", "b"}
    assert len({*numbers}) == 3


def test_what_has_not_changed_keeps_it(clock, contexts) -> None:
    put(contexts, files("a"))
    before = dict(contexts.origins)
    put(contexts, files("a", "b"))
    assert {name: contexts.origins[name] for name in before} == before
    put(contexts, files("a", origin_ca=authority().own.certificate.read_bytes()))
    assert not {*contexts.origins.values()} & {*before.values()}


def test_a_number_is_never_used_again(clock, contexts) -> None:
    """R46: a request of an earlier generation may still have it."""
    seen = set()
    for turn in range(20):
        put(contexts, files("a", f"new {turn}"))
        number, _ = contexts.origins[f"new {turn}"]
        assert number not in seen
        seen.add(number)
        clock.now += LATE_S + 1
    assert len(contexts._late) <= 2, "others are freed"


def test_a_freed_context_opens_nothing() -> None:
    number = tls.put(TlsContext())
    try:
        with pytest.raises(OSError, match="open_transport"):
            Couple(number, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
                   name="localhost", connects=True)
    finally:
        tls.remove(number)
