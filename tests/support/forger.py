"""A client over TLS that goes on by itself: it forges records with libssl's keys."""

import struct
from pathlib import Path

from tests.net.twin_records import DATA, Half
from tests.support.certificates import TlsSocket

COUNTERS = Path("/proc/net/tls_stat")


def counted(name: str) -> int:
    """Returns a counter of kTLS of this network."""
    lines = dict(line.split() for line in COUNTERS.read_text().splitlines())
    return int(lines[name])


class Forger(TlsSocket):
    """Counts the records that it sends, and can go on by itself with TLS 1.3."""

    sent = 0

    def shake(self) -> None:
        super().shake()
        self.sent = 0

    def _flush(self) -> None:
        with self._sending:
            with self._lock:
                data = self._out.read()
            at = 0
            while at < len(data):
                at += 5 + int.from_bytes(data[at + 3:at + 5], "big")
                self.sent += 1
            if data:
                self._sock.sendall(data)

    def forge(self, kind: int, data: bytes, log: Path) -> bytes:
        """Returns the next record, with the suite TLS_AES_128_GCM_SHA256."""
        (line,) = (line for line in log.read_text().splitlines()
                   if line.startswith("CLIENT_TRAFFIC_SECRET_0 "))
        half = Half(0, True, bytes.fromhex(line.split()[2]), self.sent)
        self.sent += 1
        nonce = (int.from_bytes(half.iv, "big") ^ half.number).to_bytes(12, "big")
        head = struct.pack(">BHH", DATA, 0x303, len(data) + 17)
        return head + half.aead.encrypt(nonce, data + bytes([kind]), head)

    def send_raw(self, data: bytes) -> None:
        self._sock.sendall(data)
