"""Sessions of our connections to a server: resumed, bounded, used once (R47, R48)."""

import contextlib
import socket
import ssl

import pytest

from cutthrough.net.tls.context import TlsClient
from tests.support.certificates import authority, localhost
from tests.support.couple import Couple

pytestmark = pytest.mark.usefixtures("behind")
MOST = 8                                # of net.tls.sessions
REFUSAL = b"\x15\x03\x03\0\x02\x02\x28"       # an alert: handshake_failure


def client(**more: str) -> TlsClient:
    return TlsClient(ca=authority().own.certificate.read_bytes(),
                     **{"resumes": "server", **more})


def make_server() -> ssl.SSLContext:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*localhost())
    return server


def visit(number: int, server: ssl.SSLContext, name: str = "localhost") -> bool:
    """Connects, and reads the bytes behind the handshake. True: it was resumed."""
    couple = Couple(number, server, name, connects=True)
    with contextlib.closing(couple):
        assert couple.shake() == "done"
        couple.peer.send(b"x")
        assert couple.recv() == b"x"
        return bool(couple.peer.tls.session_reused)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_by_later_connections(known, version) -> None:
    server, number = make_server(), known(client())
    server.maximum_version = version
    assert [visit(number, server) for _ in range(4)] == [False, True, True, True]
    assert not visit(known(client()), server), "another parent or identity"


def test_without_sessions_each_handshake_is_full(known) -> None:
    server, number = make_server(), known(client(resumes=""))
    assert [visit(number, server) for _ in range(3)] == [False] * 3


def test_a_ticket_is_used_once(known) -> None:
    """RFC 8446 appendix C.4: the second use would show that both are one client's."""
    server, number = make_server(), known(client())
    server.num_tickets = 1
    assert not visit(number, server)
    server.num_tickets = 0
    assert [visit(number, server) for _ in range(2)] == [True, False]


def test_the_newest_sessions_are_kept_and_no_more_than_the_bound(known) -> None:
    server, number = make_server(), known(client())
    server.num_tickets = MOST + 5
    assert not visit(number, server)
    server.num_tickets = 0
    assert [visit(number, server) for _ in range(MOST + 1)] == [True] * MOST + [False]


def test_a_server_that_declines_a_session_is_connected_to(known) -> None:
    number = known(client())
    assert not visit(number, make_server())
    assert not visit(number, make_server()), "it has other keys"


def test_a_server_that_fails_on_a_session_gets_none_any_more(known) -> None:
    """Half of the connections to it would fail: each full one brings tickets."""
    server, number = make_server(), known(client())
    assert not visit(number, server)
    couple = Couple(number, server, connects=True)
    with contextlib.closing(couple):
        assert couple.end.shake() == "more"
        couple.peer.sock.send(REFUSAL)
        couple.end.note()
        assert couple.end.shake() == "alert"
    assert [visit(number, server) for _ in range(3)] == [False] * 3


def test_an_end_in_the_handshake_is_no_such_failure(known) -> None:
    server, number = make_server(), known(client())
    assert not visit(number, server)
    couple = Couple(number, server, connects=True)
    with contextlib.closing(couple):
        assert couple.end.shake() == "more"
        couple.peer.sock.shutdown(socket.SHUT_WR)
        couple.end.note()
        assert couple.end.shake() == "closed"
    assert visit(number, server)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_of_many_servers_are_kept_by_name(known, version) -> None:
    """R48: a session proves nothing of another name, even if one server has both."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*authority().sign(
        "DNS:a.example,DNS:b.example,IP:127.0.0.1"))
    server.maximum_version = version
    number = known(client(resumes="name"))
    assert [visit(number, server, "a.example") for _ in range(3)] == [False, True, True]
    assert [visit(number, server, "b.example") for _ in range(2)] == [False, True]
    assert visit(number, server, "a.example")
    assert [visit(number, server, "127.0.0.1") for _ in range(2)] == [False, False]


def test_a_name_without_a_valid_certificate_gets_no_session_of_another(known) -> None:
    server, number = make_server(), known(client(resumes="name"))
    assert not visit(number, server)
    for _ in range(2):
        couple = Couple(number, server, "other.example", connects=True)
        with contextlib.closing(couple):
            assert couple.shake() == "denied"


def test_many_names_take_each_others_places_and_no_more_memory(known) -> None:
    """256 places: of 600 names some are kept, and none gets another's session."""
    names = [f"n{number}.a.example" for number in range(600)]
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*authority().sign("DNS:*.a.example"))
    number = known(client(resumes="name"))
    assert not any(visit(number, server, name) for name in names)
    found = [visit(number, server, name) for name in reversed(names)]
    assert 100 < sum(found) <= 256


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("n, resumed", [(2, True), (15, False)])
def test_a_session_with_a_long_chain_is_not_kept(
        known, tmp_path, version, n, resumed) -> None:
    """A session has the chain: 95 KB of it took 260 KB of memory, 2048 times."""
    long_names = [f"DNS:{number}{'a' * 50}.example" for number in range(40)]
    made = authority().sign("DNS:localhost", "IP:127.0.0.1", *long_names)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(made.certificate.read_bytes() * n)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(chain, made.key)
    server.maximum_version = version
    number = known(client(resumes="name"))
    assert [visit(number, server) for _ in range(3)] == [False, resumed, resumed]


def test_a_server_that_fails_on_a_session_is_known_by_its_name(known) -> None:
    server, number = make_server(), known(client(resumes="name"))
    assert not visit(number, server)
    couple = Couple(number, server, connects=True)
    with contextlib.closing(couple):
        assert couple.end.shake() == "more"
        couple.peer.sock.send(REFUSAL)
        couple.end.note()
        assert couple.end.shake() == "alert"
    assert [visit(number, server) for _ in range(3)] == [False] * 3
