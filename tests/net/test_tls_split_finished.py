"""Finished of TLS 1.2 in several records: they have numbers under the new keys, too."""

import hmac
import ssl

import pytest

from cutthrough.net.tls.context import TlsServer
from tests.net.conftest import Meet
from tests.net.twin_records import DATA, HANDSHAKE, KEYS, Half
from tests.support.certificates import client_context, localhost
from tests.support.couple import pair_of

CHANGE_CIPHER_SPEC, FINISHED_N = 20, 16
RANDOM = slice(11, 43)                      # of a hello, behind the record's head
SUITES = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305")

pytestmark = pytest.mark.usefixtures("behind")


def records_in(data: bytes) -> list[bytes]:
    found = []
    while data:
        n = 5 + int.from_bytes(data[3:5], "big")
        found.append(data[:n])
        data = data[n:]
    return found


def key_of_client(cipher: int, master: bytes, seed: bytes) -> bytes:
    """Key and IV of the key block (RFC 5246 sections 5 and 6.3), as Half takes them."""
    n, iv_n = KEYS[cipher], 12 if cipher == 2 else 4
    seed = a = b"key expansion" + seed
    block = b""
    while len(block) < 2 * (n + iv_n):
        a = hmac.digest(master, a, "sha256")
        block += hmac.digest(master, a + seed, "sha256")
    return block[:n].ljust(32, b"\0") + block[2 * n:2 * n + iv_n].ljust(12, b"\0")


def seal(half: Half, kind: int, plain: bytes) -> bytes:
    number = half.number.to_bytes(8, "big")
    half.number += 1
    extra = number + bytes([kind]) + b"\3\3" + len(plain).to_bytes(2, "big")
    if half.cipher == 2:
        nonce = bytes(a ^ b for a, b in zip(half.iv, bytes(4) + number, strict=True))
        explicit = b""
    else:                                   # libssl's own began with another number
        explicit = b"\xaa" + number[1:]
        nonce = half.iv[:4] + explicit
    body = explicit + half.aead.encrypt(nonce, plain, extra)
    return bytes([kind]) + b"\3\3" + len(body).to_bytes(2, "big") + body


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("size", [1, 5, 15])
def test_records_behind_a_finished_in_parts_are_read(
        meet: Meet, tmp_path, suite, size) -> None:
    """The first byte behind it got bad_record_mac (tlsfuzzer)."""
    peer = client_context()
    peer.maximum_version = ssl.TLSVersion.TLSv1_2
    peer.set_ciphers(suite)
    peer.keylog_filename = str(tmp_path / "keys")
    couple = meet(TlsServer([pair_of(localhost())]), peer)
    hello = couple.peer.step()
    couple.peer.sock.send(hello)
    couple.end.note()
    assert couple.end.shake() == "more"
    answer = couple.peer.sock.recv(65536)
    couple.peer.incoming.write(answer)
    *first, finished = records_in(couple.peer.step())
    assert first[-1][0] == CHANGE_CIPHER_SPEC
    master = bytes.fromhex((tmp_path / "keys").read_text().split()[-1])
    cipher = 2 * SUITES.index(suite)
    secret = key_of_client(cipher, master, answer[RANDOM] + hello[RANDOM])
    theirs, ours = Half(cipher, False, secret), Half(cipher, False, secret)
    kind, message = theirs.open(finished)
    assert (kind, len(message)) == (HANDSHAKE, FINISHED_N)
    parts = [message[at:at + size] for at in range(0, FINISHED_N, size)]
    couple.peer.sock.send(b"".join((*first, *(
        seal(ours, HANDSHAKE, part) for part in parts))))
    couple.end.note()
    assert couple.end.shake() == "done"
    for question in (b"a question", b"and another"):
        couple.peer.step()
        couple.peer.tls.write(question)
        kind, plain = theirs.open(couple.peer.outgoing.read())
        couple.peer.sock.send(seal(ours, DATA, plain))
        assert couple.recv() == question
        assert couple.end.send(question[::-1]) == len(question)
        assert couple.peer.recv() == question[::-1]
