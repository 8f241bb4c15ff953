"""Records of TLS in Python, as the RFCs have them: written without a look at the C.

The AEAD is that of `cryptography`, the key schedule is `hmac`.
"""

import hmac
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

KEYS, HASHES = (16, 32, 32), ("sha256", "sha384", "sha256")
ALERT, HANDSHAKE, DATA = 21, 22, 23
UNEXPECTED, BAD_MAC, OVERFLOW, ILLEGAL, DECODE = 10, 20, 22, 47, 50
MOST = 16384


def expand(cipher: int, secret: bytes, label: bytes, n: int) -> bytes:
    """HKDF-Expand-Label, RFC 8446 section 7.1."""
    label = b"tls13 " + label
    info = n.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return hmac.digest(secret, info + b"\1", HASHES[cipher])[:n]


@dataclass
class Bad(Exception):
    alert: int


@dataclass
class Half:
    """One direction, for either side."""

    cipher: int
    is_13: bool
    secret: bytes
    number: int = 0

    def __post_init__(self) -> None:
        n = KEYS[self.cipher]
        if self.is_13:
            self.secret = self.secret[:48 if n == 32 and self.cipher == 1 else 32]
            self.key = expand(self.cipher, self.secret, b"key", n)
            self.iv = expand(self.cipher, self.secret, b"iv", 12)
        else:
            self.key, self.iv = self.secret[:n], self.secret[32:44]
        self.aead = (ChaCha20Poly1305 if self.cipher == 2 else AESGCM)(self.key)

    def renew(self) -> None:
        self.secret = expand(self.cipher, self.secret, b"traffic upd", len(self.secret))
        self.number = 0
        self.__post_init__()

    def open(self, record: bytes) -> tuple[int, bytes]:
        """Returns kind and plain bytes; raises Bad."""
        kind, body = record[0], record[5:]
        if kind not in ((DATA,) if self.is_13 else (ALERT, HANDSHAKE, DATA)):
            raise Bad(UNEXPECTED)
        if len(body) > MOST + 256:
            raise Bad(OVERFLOW)
        explicit = not self.is_13 and self.cipher != 2
        n = len(body) - 16 - 8 * explicit
        if n < 0:
            raise Bad(BAD_MAC)
        if n > MOST + self.is_13:
            raise Bad(OVERFLOW)
        counted = self.number.to_bytes(12, "big")
        nonce = bytes(a ^ b for a, b in zip(self.iv, counted, strict=True))
        extra = record[:5]
        if not self.is_13:
            extra = counted[4:] + record[:1] + b"\3\3" + n.to_bytes(2, "big")
        if explicit:
            nonce, body = self.iv[:4] + body[:8], body[8:]
        try:
            plain = self.aead.decrypt(nonce, body, extra)
        except InvalidTag:
            raise Bad(BAD_MAC) from None
        self.number += 1
        if self.is_13:
            plain = plain.rstrip(b"\0")
            if not plain:
                raise Bad(UNEXPECTED)
            kind, plain = plain[-1], plain[:-1]
        return kind, plain


@dataclass
class Twin:
    """A side's reading of records."""

    half: Half
    connects: bool
    held: bytearray = field(default_factory=bytearray)
    refuses: bool = False
    updates: int = 0

    def open(self, record: bytes) -> tuple[str, bytes, int]:
        try:
            kind, plain = self.half.open(record)
            if kind == HANDSHAKE:
                self._messages(plain)
                return "message", b"", 0
            if self.held:
                raise Bad(UNEXPECTED)
            if kind == DATA:
                return "data", plain, 0
            if kind != ALERT:
                raise Bad(UNEXPECTED)
            if len(plain) != 2:
                raise Bad(DECODE if plain else UNEXPECTED)
        except Bad as bad:
            return "bad", b"", bad.alert
        if plain[1] == 0:
            return "end", b"", 0
        ignored = plain[1] == 90 or (not self.half.is_13 and plain[0] == 1)
        return "message" if ignored else "refused", b"", 0

    def _messages(self, plain: bytes) -> None:
        if not plain:
            raise Bad(UNEXPECTED)
        self.held += plain
        while len(self.held) >= 4:
            kind, n = self.held[0], int.from_bytes(self.held[1:4], "big")
            self._judge(kind, n)
            if len(self.held) < 4 + n:
                return
            body, self.held = self.held[4:4 + n], self.held[4 + n:]
            if kind == 24 and self.half.is_13:
                if body[0] > 1:
                    raise Bad(ILLEGAL)
                if self.held:
                    raise Bad(UNEXPECTED)
                self.updates += body[0]
                self.half.renew()
            elif not self.half.is_13:
                self.refuses = True

    def _judge(self, kind: int, n: int) -> None:
        if self.half.is_13 and kind == 24:
            if n != 1:
                raise Bad(DECODE)
        elif self.half.is_13 and self.connects and kind == 4:
            if n > 131338:
                raise Bad(DECODE)
        elif not self.half.is_13 and kind == (0 if self.connects else 1):
            if n > MOST:
                raise Bad(DECODE)
        else:
            raise Bad(UNEXPECTED)
