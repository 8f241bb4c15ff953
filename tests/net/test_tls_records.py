"""Records of our own: against a twin, and against libssl as the peer (R47)."""

import errno
import ssl
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.context import TlsClient, TlsServer
from tests.doors.tls import Side
from tests.net.conftest import Meet
from tests.net.twin_records import Half, Twin
from tests.support.certificates import authority, client_context, localhost
from tests.support.couple import Couple, pair_of

ALERT, HANDSHAKE, DATA = 21, 22, 23
UNEXPECTED, BAD_MAC, OVERFLOW, ILLEGAL, DECODE = 10, 20, 22, 47, 50
BROKEN = -errno.ECONNRESET
SECRETS = bytes(range(48)), bytes(range(100, 148))
KINDS = list(product(range(3), (False, True)))
SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
          "TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256",
          "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")


def sides(cipher: int, is_13: bool, connects: bool = False) -> tuple[Side, Side]:
    """Ours, and the peer's."""
    return (Side(cipher, is_13, connects, *SECRETS),
            Side(cipher, is_13, not connects, *SECRETS[::-1]))


# --- against the twin


@pytest.mark.hypothesis
@pytest.mark.parametrize(("cipher", "is_13"), KINDS)
@settings(deadline=None)
@given(st.data(), st.booleans())
def test_records_are_what_the_twin_says(cipher, is_13, data, connects) -> None:
    ours, peer = sides(cipher, is_13, connects)
    twin = Twin(Half(cipher, is_13, SECRETS[1]), connects)
    bodies = st.one_of(st.binary(max_size=40), st.sampled_from((
        b"\1\0", b"\2\50", b"\1\132", b"\x18\0\0\1\0", b"\x18\0\0\1\1", b"\x18\0\0\1",
        b"\4\0\0\3abc", b"\4\0\0\5a", b"\1\0\0\2ab", b"\0\0\0\0", b"\1\1\0\0",
        b"x" * 16384)))
    for _ in range(data.draw(st.integers(1, 12))):
        body = data.draw(bodies)
        how = data.draw(st.sampled_from(("kind", "pad", "update", "spoil", "raw")))
        if how == "update" and is_13:
            record = peer.update(data.draw(st.booleans()))
        elif how == "raw":
            record = data.draw(st.binary(min_size=3, max_size=3)) + len(
                body).to_bytes(2, "big") + body
        elif how == "pad" and is_13:
            record = peer.seal(0, (body + bytes([data.draw(st.sampled_from(
                (0, 20, ALERT, HANDSHAKE, DATA)))]) + b"\0" * data.draw(
                    st.integers(0, 9)))[:16384])
        else:
            kind = data.draw(st.sampled_from((ALERT, HANDSHAKE, DATA)))
            record = peer.seal(kind, body)
            if how == "spoil":
                at = data.draw(st.integers(0, len(record) - 1).filter(
                    lambda at: at not in (3, 4)))
                record = record[:at] + bytes([record[at] ^ data.draw(
                    st.integers(1, 255))]) + record[at + 1:]
        expected = twin.open(record)
        assert ours.open(record, data.draw(st.booleans())) == expected
        assert ours.refuses or not twin.refuses
        assert not is_13 or ours.needs_update == (twin.updates > 0)
        if expected[0] not in ("data", "message"):
            return


@pytest.mark.parametrize(("cipher", "is_13"), KINDS)
def test_sealed_records_are_what_the_twin_opens(cipher, is_13) -> None:
    ours, _ = sides(cipher, is_13)
    half = Half(cipher, is_13, SECRETS[0])
    seen = set()
    for n in (0, 1, 15, 16, 17, 1000, 16384):
        record = ours.seal(DATA, b"p" * n)
        assert half.open(record) == (DATA, b"p" * n)
        seen.add(record[5:13])
    assert len(seen) == 7
    assert ours.seal(DATA, b"p" * 16385) == b""
    if is_13:
        assert half.open(ours.update()) == (HANDSHAKE, b"\x18\0\0\1\0")
        half.renew()
        assert half.open(ours.seal(DATA, b"new")) == (DATA, b"new")


@pytest.mark.parametrize(("cipher", "is_13"), KINDS)
def test_a_record_that_is_changed_anywhere_is_refused(cipher, is_13) -> None:
    for at in (0, 1, 2, *range(5, 5 + 8 + 9 + 17)):
        ours, peer = sides(cipher, is_13)
        record = bytearray(peer.seal(DATA, b"some bytes"))
        if at >= len(record):
            continue
        record[at] ^= 1
        word, plain, alert = ours.open(bytes(record))
        # The version of a record of TLS 1.2 is not looked at (RFC 5246 appendix E.1)
        if not is_13 and at in (1, 2):
            assert (word, plain) == ("data", b"some bytes")
            continue
        assert (word, plain) == ("bad", b"")
        assert alert == (UNEXPECTED if at == 0 and is_13 else BAD_MAC)


@pytest.mark.parametrize(("cipher", "is_13"), KINDS)
def test_records_again_or_out_of_order_are_refused(cipher, is_13) -> None:
    ours, peer = sides(cipher, is_13)
    first, second, third = (peer.seal(DATA, bytes([n])) for n in range(3))
    assert ours.open(first)[0] == "data"
    assert ours.open(first) == ("bad", b"", BAD_MAC)
    assert ours.open(third) == ("bad", b"", BAD_MAC)
    assert ours.open(second)[0] == "data"


def test_lengths_that_are_too_much() -> None:
    ours, peer = sides(0, True)
    full = b"x" * 16383 + bytes([DATA])
    assert ours.open(peer.seal(0, full))[1] == full[:-1]
    assert ours.open(peer.seal(DATA, b"x" * 16384))[1] == b"x" * 16384
    for n in (16384 + 18, 16384 + 256):     # one byte above RFC 8446 section 5.4; 5.2
        assert ours.open(b"\x17\3\3" + n.to_bytes(2, "big") + b"x" * n)[2] == OVERFLOW
    for n in (0, 1, 15):
        assert ours.open(b"\x17\3\3" + n.to_bytes(2, "big") + b"x" * n)[2] == BAD_MAC


@pytest.mark.parametrize(("pieces", "answer"), [
    ((b"\x18\0\0\1", b"\1"), "message"), ((b"\x18", b"\0\0", b"\1\0"), "message"),
    ((b"\x18\0\0\1\2",), ILLEGAL), ((b"\x18\0\0\2\0\0",), DECODE),
    ((b"\x18\0\0\1\0\x18",), UNEXPECTED), ((b"",), UNEXPECTED),
    ((b"\4\0\0\1a",), UNEXPECTED), ((b"\1\0\0\1a",), UNEXPECTED)])
def test_messages_of_a_client_of_tls_1_3(pieces, answer) -> None:
    ours, peer = sides(0, True)
    found = [ours.open(peer.seal(HANDSHAKE, piece)) for piece in pieces]
    assert all(one[0] == "message" for one in found[:-1])
    assert answer in (found[-1][0], found[-1][2])


def test_nothing_comes_between_the_parts_of_a_message() -> None:
    for kind, body in ((DATA, b"x"), (ALERT, b"\1\0")):
        ours, peer = sides(0, True)
        assert ours.open(peer.seal(HANDSHAKE, b"\x18\0"))[0] == "message"
        assert ours.open(peer.seal(kind, body)) == ("bad", b"", UNEXPECTED)


def test_tickets_are_skipped_in_any_pieces_and_not_for_ever() -> None:
    ticket = b"\4\0\1\0" + b"t" * 256
    for size in (1, 3, 4, 5, 259, 520):
        ours, peer = sides(0, True, connects=True)
        both = ticket * 2
        for at in range(0, len(both), size):
            assert ours.open(peer.seal(HANDSHAKE, both[at:at + size]))[0] == "message"
        assert ours.open(peer.seal(DATA, b"x")) == ("data", b"x", 0)
    ours, peer = sides(0, True, connects=True)
    answers = [ours.open(peer.seal(HANDSHAKE, ticket)) for _ in range(256)]
    assert answers[-1] == ("bad", b"", UNEXPECTED)
    assert {one[0] for one in answers[:-1]} == {"message"}


def test_a_key_is_used_for_so_many_records_and_no_more() -> None:
    """RFC 8446 section 5.5; a record of TLS 1.2 has no next key."""
    ours, peer = sides(0, True)
    ours.numbers, peer.numbers = (0, (1 << 24) - 1), ((1 << 24) - 1, 0)
    assert peer.open(ours.seal(DATA, b"last")) == ("data", b"last", 0)
    assert ours.needs_update
    assert peer.open(ours.update())[0] == "message" and not ours.needs_update
    assert ours.numbers == (0, 0) and not peer.needs_update
    assert peer.open(ours.seal(DATA, b"next")) == ("data", b"next", 0)
    ours, peer = sides(0, False)
    ours.numbers = (1, 1 << 32)
    assert not ours.needs_update and ours.seal(DATA, b"x") == b""
    ours.numbers, peer.numbers = ((1 << 64) - 1, 1), (1, (1 << 32) - 1)
    assert ours.open(peer.seal(DATA, b"x"))[0] == "bad"


def test_contexts_are_shared_by_more_connections_than_there_are() -> None:
    pairs = [sides(n % 3, n % 2 == 0) for n in range(200)]
    for _ in range(3):
        for ours, peer in pairs:
            assert peer.open(ours.seal(DATA, b"ab")) == ("data", b"ab", 0)
            assert ours.open(peer.seal(DATA, b"cd")) == ("data", b"cd", 0)


# --- against libssl


def context_for(suite: str) -> ssl.SSLContext:
    peer = client_context()
    is_13 = suite.startswith("TLS_")
    version = ssl.TLSVersion.TLSv1_3 if is_13 else ssl.TLSVersion.TLSv1_2
    peer.minimum_version = peer.maximum_version = version
    return peer


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_and_every_split(meet: Meet, suite: str) -> None:
    couple = meet(TlsServer([pair_of(localhost())], ciphers=suite), context_for(suite))
    couple.begin()
    assert couple.peer.tls.cipher()[0] == suite
    couple.peer.tls.write(b"some bytes")
    couple.peer.tls.write(b"and more")
    records = couple.peer.outgoing.read()
    for cut in range(len(records) + 1):
        got = b""
        for piece in (records[:cut], records[cut:]):
            if piece:
                couple.peer.sock.send(piece)
            answer = couple.recv()
            got += answer if isinstance(answer, bytes) else b""
        assert got == b"some bytesand more"
        assert tls.stats()["in_libssl"] == 0
        assert couple.end.send(b"an answer") == 9
        assert couple.peer.recv() == b"an answer"
        couple.peer.tls.write(b"some bytes")
        couple.peer.tls.write(b"and more")
        records = couple.peer.outgoing.read()


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("n", [1, 5, 700, 16384, 40000, 65536])
def test_records_and_buffers_of_any_size(meet: Meet, suite: str, n: int) -> None:
    couple = meet(TlsServer([pair_of(localhost())], ciphers=suite), context_for(suite))
    couple.begin()
    data = bytes(range(256)) * 400
    for size in (1, 100, 16383, 16384):
        for at in range(0, min(len(data), 40 * size), size):
            couple.peer.tls.write(data[at:at + size])
        couple.peer.flush()
        got = bytearray()
        for _ in range(200000):
            couple.end.note()
            piece = couple.end.recv(n)
            if piece == -errno.EAGAIN:
                break
            got += piece
        assert bytes(got) == data[:len(got)] and len(got) == min(len(data), 40 * size)
        assert not couple.end.can_read


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("n", [1, 5, 17408, 65536])
def test_what_is_read_before_its_event_needs_none(meet: Meet, n: int) -> None:
    """An upload stood still: the event found the kernel's queue empty."""
    couple = meet()
    couple.begin()
    data = bytes(range(256)) * 80
    for sent, more in ((data[:5], 0), (data, 0), (data, 1)):
        assert couple.recv() == -errno.EAGAIN
        assert not couple.end.can_read
        for at in range(0, len(sent), 16384):
            couple.peer.tls.write(sent[at:at + 16384])
        if more:
            with suppress(ssl.SSLWantReadError):
                couple.peer.tls.unwrap()
        couple.peer.flush()
        got = couple.end.recv(n)
        while couple.end.can_read and (piece := couple.end.recv(n)):
            got += b"" if piece == -errno.EAGAIN else piece
        assert got == sent
        assert couple.end.can_read == bool(more)


def test_the_longest_record_is_peeked_behind_a_part_of_another(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    couple.peer.tls.write(b"a" * 16384)
    couple.peer.tls.write(b"b" * 16384)
    couple.peer.flush()
    couple.end.note()
    assert couple.end.recv(5) == b"aaaaa"
    assert couple.end.peek(16384) == b"a" * 16379 + b"b" * 5
    assert couple.end.skip(16379) == 16379
    assert couple.recv() == b"b" * 16384


@pytest.mark.parametrize("suite", [SUITES[0], SUITES[3]])
def test_the_peer_learns_why(meet: Meet, suite: str) -> None:
    server = TlsServer([pair_of(localhost())], ciphers=suite)
    for spoiled, reason in ((b"\x17\3\3\0\x20" + b"\0" * 32, "bad record mac"),
                            (b"\x17\3\3\x7f\xff", "record overflow"),
                            (b"\x14\3\3\0\1\1", "unexpected message")):
        couple = meet(server, context_for(suite))
        couple.begin()
        couple.peer.send(b"before")
        couple.peer.sock.send(spoiled)
        couple.end.note()
        assert [couple.end.recv() for _ in range(2)] == [b"before", BROKEN]
        with pytest.raises(ssl.SSLError, match=reason):
            couple.peer.recv()


def test_an_end_in_a_record_is_a_cut(meet: Meet) -> None:
    couple = meet()
    couple.begin()
    couple.peer.tls.write(b"whole")
    couple.peer.tls.write(b"a part")
    couple.peer.sock.send(couple.peer.outgoing.read()[:-1])
    couple.peer.sock.shutdown(1)
    couple.end.note()
    assert [couple.end.recv() for _ in range(2)] == [b"whole", BROKEN]


def test_nothing_is_sealed_twice_for_a_peer_to_see(meet: Meet) -> None:
    """If the kernel has not begun to take a record, it is sealed again, with other
    bytes."""
    couple = meet()
    couple.begin()
    couple.ours.setsockopt(1, 7, 4608)      # SO_SNDBUF
    sent, wanted, got = 0, b"", b""
    for turn in range(200):
        # The begun record's bytes first, as the table of transports demands
        data = wanted[sent:] + bytes([turn]) * (70000 - turn)
        taken = couple.end.send(data)
        assert taken >= 0
        wanted = wanted[:sent] + data[:max(taken + 16384, 16384)]
        sent += taken
        got += couple.peer.recv()
        couple.end.note()
    assert got[:sent] == wanted[:sent] and len(got) >= sent - 16384


def test_unknown_ciphers_stay_in_libssl(meet: Meet) -> None:
    suite = "ECDHE-ECDSA-AES128-SHA"
    peer = context_for(suite)
    peer.set_ciphers(suite)
    couple = meet(TlsServer([pair_of(localhost())], ciphers=suite), peer)
    couple.begin()
    for _ in range(3):
        couple.peer.send(b"a question")
        assert couple.recv() == b"a question"
        assert couple.end.send(b"an answer") == 9
        assert couple.peer.recv() == b"an answer"
    assert tls.stats()["in_libssl"] == 1


# --- as a client


def test_late_tickets_are_kept_and_then_libssl_goes(known) -> None:
    """If libssl has the next record's header, it must end that record."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*localhost())
    client = TlsClient(ca=authority().own.certificate.read_bytes(), resumes="server")
    number = known(client)
    for cut in (0, 3, 5, 6, 30):
        couple = Couple(number, server, connects=True)
        assert couple.end.shake() == "more"
        couple.peer.sock.send(couple.peer.step())
        couple.end.note()
        assert couple.end.shake() == "done"
        assert couple.end.send(b"early") == 5 and tls.stats()["in_libssl"] == 1
        tickets = couple.peer.step()
        couple.peer.tls.write(b"an answer")
        answer = couple.peer.outgoing.read()
        couple.peer.sock.send(tickets + answer[:cut])
        assert couple.recv() == -errno.EAGAIN
        couple.peer.sock.send(answer[cut:])
        assert couple.recv() == b"an answer"
        assert couple.end.send(b"and more") == 8
        assert couple.peer.recv() == b"earlyand more"
        couple.peer.send(b"the last")
        assert couple.recv() == b"the last"
        assert tls.stats()["in_libssl"] == 0
        assert couple.peer.tls.session_reused == (cut > 0)
        couple.close()
    tls.remove(number)


def test_tickets_that_nobody_keeps_are_skipped(known) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*localhost())
    client = TlsClient(ca=authority().own.certificate.read_bytes())
    couple = Couple(known(client), server, connects=True)
    assert couple.shake() == "done"
    assert couple.end.send(b"x") == 1 and tls.stats()["in_libssl"] == 0
    couple.peer.step()
    couple.peer.send(b"an answer")
    assert couple.recv() == b"an answer"
    couple.close()
