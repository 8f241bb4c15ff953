"""TLS as a transport: bytes and ends, and the side that connects (R48)."""

import contextlib
import ctypes
import ctypes.util
import errno
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import pytest

from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.context import TlsClient
from tests.net.conftest import Meet
from tests.support.certificates import (
    Authority,
    Made,
    authority,
    localhost,
    on_aws_lc,
)
from tests.support.couple import Couple, Peer, pair_of, tcp_pair

pytestmark = pytest.mark.usefixtures("behind")
TRUNCATED = -errno.ECONNRESET
UNFINISHED = -errno.ENODATA
AGAIN = -errno.EAGAIN


def test_ends_of_both_directions(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    couple.peer.send(b"last")
    with contextlib.suppress(ssl.SSLWantReadError):
        couple.peer.tls.unwrap()
    couple.peer.flush()
    couple.end.note()
    assert [couple.end.recv() for _ in range(3)] == [b"last", b"", b""]
    assert couple.end.send(b"after") == 5
    couple.end.half_close()
    assert couple.end.send(b"x") == -errno.EPIPE
    assert couple.peer.recv() == b"after"
    assert couple.peer.tls.unwrap() is None     # close_notify came


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("connects", [False, True])
def test_what_came_before_a_reset_is_read_behind_a_failed_send(
        meet: Meet, known: Callable[..., int], connects: bool) -> None:
    """R84: the send's errno answered every read."""
    if connects:
        peer = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        peer.load_cert_chain(*localhost())
        client = TlsClient(ca=authority().own.certificate.read_bytes())
        couple = Couple(known(client), peer, connects=True, pair=tcp_pair())
    else:
        couple = meet(pair=tcp_pair())
    try:
        couple.begin()
        couple.peer.send(b"a" * 40_000)
        couple.peer.send(b"refused")
        reset(couple.peer.sock)
        assert couple.end.send(b"x" * 20_000) == TRUNCATED
        data = couple.recv()
        assert isinstance(data, bytes)
        while not data.endswith(b"refused"):
            data += couple.end.recv()
        assert data == b"a" * 40_000 + b"refused"
        assert couple.end.recv() == TRUNCATED, "no regular end"
        assert couple.end.send(b"x") == TRUNCATED
    finally:
        couple.close()


def test_a_clients_end_without_close_notify_is_an_end(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    couple.peer.send(b"last")
    couple.peer.sock.shutdown(socket.SHUT_WR)
    couple.end.note()
    assert [couple.end.recv(), couple.end.recv()] == [b"last", b""]
    assert couple.end.send(b"after") == 5
    assert couple.peer.recv() == b"after"


@pytest.mark.parametrize("ended", [False, True])
def test_a_close_is_an_end_unless_the_peer_has_ended(meet: Meet, ended: bool) -> None:
    """It may have closed, and then a reset would answer."""
    couple = meet()
    couple.begin()
    if ended:
        couple.peer.sock.shutdown(socket.SHUT_WR)
        assert couple.recv() == b""
    couple.end.close()
    couple.ours.shutdown(socket.SHUT_WR)
    couple.peer.sock.setblocking(True)
    assert (couple.peer.sock.recv(1000) == b"") == ended


def test_a_reset_and_bytes_that_are_no_record(meet: Meet) -> None:
    for data in (b"\x17\x03\x03\x00\x20" + b"\0" * 32, b"\x15\x03\x03\x00\x02\x01\x00",
                 b"\x17\x03\x03\xff\xff", b"GET / HTTP/1.1\r\n\r\n"):
        couple = meet()
        couple.begin()
        couple.peer.send(b"before")
        couple.peer.sock.send(data)
        couple.end.note()
        assert couple.end.recv() == b"before"
        assert couple.end.recv() == TRUNCATED
        assert couple.end.recv() == TRUNCATED
        assert couple.end.send(b"x") < 0
        assert not couple.end.holds_back


def test_a_read_takes_all_records_and_then_knows_that_it_is_dry(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    couple.peer.send(b"a" * 30000)
    couple.peer.send(b"b" * 20000)
    got = couple.recv()
    assert got == b"a" * 30000 + b"b" * 20000
    assert not couple.end.can_read
    assert couple.end.recv() == AGAIN


def test_the_end_of_a_handshake_knows_if_more_has_come(
        meet: Meet, request: pytest.FixtureRequest) -> None:
    couple = meet()
    couple.begin()
    # AWS-LC reads record by record, and so does not know that there is no other
    assert not couple.end.can_read or (
        on_aws_lc() and request.node.callspec.params["behind"] == "libssl")
    assert couple.recv() == AGAIN
    other = meet()
    assert other.end.shake() == "more"
    other.peer.sock.send(other.peer.step())
    other.end.note()
    assert other.end.shake() == "more"
    finished = other.peer.step()
    other.peer.tls.write(b"request")
    other.peer.sock.send(finished + other.peer.outgoing.read())
    other.end.note()
    assert other.end.shake() == "done"
    assert other.end.can_read
    assert other.end.recv() == b"request"
    assert not other.end.can_read


def test_peeked_bytes_stay_and_may_span_records(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    for piece in (b"abc", b"def", b"ghi"):
        couple.peer.send(piece)
    couple.end.note()
    assert couple.end.has_unread
    assert couple.end.peek(5) == b"abcde"
    assert couple.end.peek() == b"abcdefghi"
    assert couple.end.skip(4) == 4
    assert couple.end.recv(2) == b"ef"
    assert couple.end.peek(1) == b"g"
    assert couple.end.recv() == b"ghi"
    assert couple.end.recv() == AGAIN
    assert not couple.end.has_unread and couple.end.peek() == AGAIN


def test_a_peek_that_finds_nothing_knows_that_it_is_dry(meet: Meet) -> None:
    """With own records the connection was always ready, and its worker never slept."""
    couple = meet()
    couple.begin()
    couple.peer.send(b"abc")
    couple.end.note()
    assert couple.end.peek() == b"abc"
    assert couple.end.skip(3) == 3
    assert couple.end.peek() == AGAIN
    assert not couple.end.can_read


@pytest.mark.parametrize("pieces", [(1, 0), (300, 5000), (16384, 1), (20000, 70000),
                                    (16384, 16384), (1, 100000)])
def test_every_byte_arrives_though_the_socket_is_full(meet: Meet, pieces) -> None:
    couple = meet()
    couple.begin()
    couple.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    data = bytes(range(256)) * 2000
    a, b = data[:pieces[0]], data[pieces[0]:sum(pieces)]
    sent = couple.end.send(a, b)
    arrived = bytearray()
    stuck = 0
    while sent < len(data):
        assert sent >= 0
        if not couple.end.can_write:
            stuck += 1
            arrived += couple.peer.recv()
            couple.end.note()
        taken = couple.end.send(data[sent:sent + 50000])
        assert taken >= 0
        sent += taken
    couple.end.half_close()
    while couple.end.holds_back:
        arrived += couple.peer.recv()
        couple.end.note()
    arrived += couple.peer.recv()
    assert bytes(arrived) == data and stuck
    assert couple.peer.tls.unwrap() is None


def test_an_end_behind_a_part_of_a_record_is_a_cut(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    couple.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    while couple.end.send(b"x" * 16384):
        pass
    assert couple.end.holds_back
    couple.end.half_close()
    assert not couple.end.holds_back
    couple.peer.recv()
    with pytest.raises(ssl.SSLError):
        couple.peer.incoming.write_eof()
        couple.peer.tls.read(1)


def libssl() -> ctypes.CDLL:
    """The library that Python's `ssl` uses."""
    library = ctypes.CDLL(ctypes.util.find_library("ssl"))
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
    library.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long,
                                     ctypes.c_void_p]
    return library


def pointer_in(thing: object, field: int) -> int:
    """A pointer in the object, by its number behind the object's header."""
    return ctypes.c_void_p.from_address(id(thing) + 16 + 8 * field).value


@pytest.mark.parametrize("at_once", [1, 700])
def test_keys_are_updated_and_a_flood_of_updates_is_an_end(
        meet: Meet, at_once: int) -> None:
    """An update costs as much as a request, and carries nothing."""
    couple, library = meet(), libssl()
    couple.begin()
    ssl_object = pointer_in(couple.peer.tls._sslobj, 1)
    for n in range(9):
        assert library.SSL_key_update(ssl_object, n % 2) == 1
        couple.peer.send(b"bytes")
        assert couple.recv() == b"bytes"
        assert couple.end.send(b"more") == 4
        assert couple.peer.recv() == b"more"
    for _ in range(300):
        for _ in range(at_once):
            library.SSL_key_update(ssl_object, 0)
            library.SSL_do_handshake(ssl_object)
        couple.peer.send(b"late")
        if couple.recv() == TRUNCATED:
            break
    else:
        pytest.fail("it goes on")


# --- as a client


@pytest.fixture
def reach(known, meet: Meet) -> Iterator[Callable[..., Couple]]:
    made: list[Couple] = []

    def make(client: TlsClient, certificate: Made, name: str = "localhost") -> Couple:
        peer = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        peer.load_cert_chain(*certificate)
        made.append(Couple(known(client), peer, name=name, connects=True))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_server_is_verified_against_its_name(reach) -> None:
    """R48."""
    client = TlsClient(ca=authority().own.certificate.read_bytes())
    for name in ("localhost", "127.0.0.1"):
        couple = reach(client, localhost(), name)
        assert couple.shake() == "done"
        couple.end.send(b"a question")
        assert couple.peer.recv() == b"a question"
        couple.peer.send(b"an answer")
        assert couple.recv() == b"an answer"
    for name in ("other.example", "127.0.0.2", "localhost.example"):
        assert reach(client, localhost(), name).shake() == "denied"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_common_name_is_no_name_of_a_server(reach, name: str) -> None:
    """R86: the connection was made."""
    client = TlsClient(ca=authority().own.certificate.read_bytes())
    alone = authority().sign(subject=f"/CN={name}")
    assert reach(client, alone, name).shake() == "denied"
    if name == "localhost":
        assert tls.why_denied().endswith("mismatch: no subjectAltName")


def test_an_unknown_authority_or_an_expired_certificate_is_refused(reach) -> None:
    """R48."""
    client = TlsClient(ca=authority().own.certificate.read_bytes())
    stranger = Authority("another").sign("DNS:localhost")
    late = authority().sign("DNS:localhost", days=-1)
    assert reach(client, stranger).shake() == "denied"
    assert reach(client, late).shake() == "denied"
    assert reach(TlsClient(), localhost()).shake() == "denied"


def test_a_server_that_is_cut_has_not_ended(reach) -> None:
    couple = reach(TlsClient(ca=authority().own.certificate.read_bytes()), localhost())
    assert couple.shake() == "done"
    couple.peer.send(b"half of")
    couple.peer.sock.shutdown(socket.SHUT_WR)
    couple.end.note()
    assert [couple.end.recv(), couple.end.recv()] == [b"half of", UNFINISHED]


def test_a_server_that_speaks_no_tls(reach) -> None:
    client = TlsClient(ca=authority().own.certificate.read_bytes())
    couple = reach(client, localhost())
    assert couple.end.shake() == "more"
    couple.peer.sock.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    couple.end.note()
    assert couple.end.shake() == "invalid"


def test_a_certificate_of_our_own_is_shown(known, reach) -> None:
    made = authority().sign(subject="/CN=the proxy")
    client = TlsClient(ca=authority().own.certificate.read_bytes(), pair=pair_of(made))
    couple = reach(client, localhost())
    couple.peer = Peer(couple.peer.sock, _asking(), None, None, server_side=True)
    assert couple.shake() == "done"
    subject = couple.peer.tls.getpeercert()["subject"]
    assert subject == ((("commonName", "the proxy"),),)


def test_a_server_that_refuses_behind_our_handshake_is_told_from_a_reset(reach) -> None:
    """TLS 1.3: the server looks at our certificate when our side is done."""
    couple = reach(TlsClient(ca=authority().own.certificate.read_bytes()), localhost())
    couple.peer = Peer(couple.peer.sock, _asking(), None, None, server_side=True)
    with contextlib.suppress(ssl.SSLError):
        couple.shake()
    couple.end.note()
    assert couple.end.recv() == -errno.ENOKEY
    assert tls.why_refused() == "certificate required"


def test_handshakes_of_ours_are_not_counted_as_a_listeners(reach) -> None:
    before = tls.stats()
    couple = reach(TlsClient(ca=authority().own.certificate.read_bytes()), localhost())
    assert couple.end.shake() == "more"
    assert tls.stats() == {**before, "open": before["open"] + 1,
                           "in_libssl": before["in_libssl"] + 1}
    tls.set_most_handshakes(0)
    try:
        assert couple.shake() == "done"
        assert reach(TlsClient(), localhost()).shake() == "denied"
    finally:
        tls.set_most_handshakes(1024)
    assert tls.why_denied() == "unable to get local issuer certificate"
    assert tls.stats()["full"] == before["full"]


def _asking() -> ssl.SSLContext:
    peer = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=authority().own.certificate)
    peer.load_cert_chain(*localhost())
    peer.verify_mode = ssl.CERT_REQUIRED
    return peer


@pytest.mark.skipif(on_aws_lc(), reason="AWS-LC writes before the rest has come")
def test_a_send_waits_while_half_a_ticket_has_come(known, meet: Meet) -> None:
    """A ticket with a client's certificate takes two short records."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*localhost())
    server.load_verify_locations(authority().own.certificate)
    server.verify_mode = ssl.CERT_REQUIRED
    most_of_a_record = 52                   # SSL_CTRL_SET_MAX_SEND_FRAGMENT
    assert libssl().SSL_CTX_ctrl(pointer_in(server, 0), most_of_a_record, 512, None)
    client = TlsClient(ca=authority().own.certificate.read_bytes(),
                       pair=pair_of(authority().sign(subject="/CN=us")),
                       resumes="server")
    couple = Couple(known(client), server, connects=True)
    with contextlib.closing(couple):
        assert couple.end.shake() == "more"
        couple.peer.sock.send(couple.peer.step())
        couple.end.note()
        assert couple.end.shake() == "done"
        tickets = couple.peer.step()
        first = 5 + int.from_bytes(tickets[3:5], "big")
        assert couple.peer.done and first < len(tickets)
        couple.peer.sock.send(tickets[:first])
        assert couple.recv() == AGAIN
        assert couple.end.send(b"a question") == 0 and not couple.end.can_write
        couple.peer.sock.send(tickets[first:])
        couple.end.note(writable=False)
        assert couple.end.can_write and couple.end.send(b"a question") == 10
        assert couple.peer.recv() == b"a question"
