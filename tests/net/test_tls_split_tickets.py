"""Tickets in pieces behind a handshake, from a server that seals by itself."""

import errno
import ssl

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from cutthrough.net.tls.context import TlsClient
from tests.support.certificates import authority, localhost, on_aws_lc
from tests.support.couple import Couple

AGAIN = -errno.EAGAIN
HANDSHAKE, DATA = 22, 23


def ticket(number: int) -> bytes:
    """NewSessionTicket (RFC 8446 section 4.6.1)."""
    body = (7200).to_bytes(4, "big") + b"\1\2\3\4\1" + bytes([number, 0, 100]) + (
        bytes([number]) * 100 + b"\0\0")
    return b"\x04" + len(body).to_bytes(3, "big") + body


class Sealer:
    """The server's side of a connection, with the secret that its key log has."""

    def __init__(self, secret: bytes) -> None:
        digest = hashes.SHA384() if len(secret) == 48 else hashes.SHA256()

        def expand(name: bytes, n: int) -> bytes:
            label = b"tls13 " + name
            return HKDFExpand(digest, n, n.to_bytes(2, "big") + bytes(
                [len(label)]) + label + b"\0").derive(secret)

        self.cipher = AESGCM(expand(b"key", 32 if len(secret) == 48 else 16))
        self.iv, self.number = int.from_bytes(expand(b"iv", 12), "big"), 0

    def seal(self, kind: int, data: bytes) -> bytes:
        header = b"\x17\x03\x03" + (len(data) + 17).to_bytes(2, "big")
        nonce = (self.iv ^ self.number).to_bytes(12, "big")
        self.number += 1
        return header + self.cipher.encrypt(nonce, data + bytes([kind]), header)


@pytest.mark.skipif(on_aws_lc(), reason="AWS-LC does not tell of half a message")
@pytest.mark.parametrize("parts", [
    [ticket(1) + ticket(2)[:20], ticket(2)[20:]],
    [ticket(1)[:20], ticket(1)[20:]],
    [ticket(1), ticket(2)[:3], ticket(2)[3:]],
])
def test_a_connection_stays_in_libssl_while_it_has_half_a_ticket(
        known, tmp_path, parts) -> None:
    """RFC 8446 section 5.1: a message may be in several records. Its rest was taken for
    a bad message, and the connection ended."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*localhost())
    server.minimum_version, server.num_tickets = ssl.TLSVersion.TLSv1_3, 0
    server.keylog_filename = str(tmp_path / "keys")
    client = TlsClient(ca=authority().own.certificate.read_bytes(), resumes="server")
    couple = Couple(known(client), server, connects=True)
    assert couple.shake() == "done"
    lines = (tmp_path / "keys").read_text().splitlines()
    sealer = Sealer(bytes.fromhex(next(
        line.split()[2] for line in lines if line.startswith("SERVER_TRAFFIC"))))
    for part in parts:
        couple.peer.sock.send(sealer.seal(HANDSHAKE, part))
        assert couple.recv() == AGAIN
    couple.peer.sock.send(sealer.seal(DATA, b"an answer"))
    assert couple.recv() == b"an answer"
    assert couple.end.send(b"a question") == 10
    couple.close()
