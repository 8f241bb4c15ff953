"""Files of other programs, without the compression that they may have.

gzip (`.har.gz`, `.yaml.gz`) and zlib (`.zhar` of mitmproxy) are seen from their first
bytes, whatever the name says. A file is read as it is inflated, so that its reader
bounds what it becomes.
"""

import zlib

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.formats.tnetstring import Readable

PIECE = 64 << 10
# Bytes that tell the program of a file: the length in front of a dump, or a mark
FRONT = 12
# Members of gzip: one without content takes 10 µs, and 20 bytes of a file
MOST_MEMBERS = 100_000
_BLANKS = b" \t\r\n"
_GZIP = b"\x1f\x8b"


def unpacked(file: Readable) -> tuple[Readable, bytes]:
    """The content from its first byte that is no blank, and FRONT bytes of it, or
    fewer if it has no more."""
    front = file.read(2)
    if front == _GZIP or is_zlib(front):
        file, front = Inflated(Pushed(front, file)), b""
    while not (front := front.lstrip(_BLANKS)) and (byte := file.read(1)):
        front = byte
    front += file.read(FRONT - len(front)) if front else b""
    return Pushed(front, file), front


def is_zlib(front: bytes) -> bool:
    """A header of zlib (RFC 1950) with a right check. No file of text begins so: it
    is `x` and a control character, `^`, or a byte beyond ASCII."""
    return (len(front) == 2 and front[:1] == b"x" and front[1:] in b"\x01\x5e\x9c\xda"
            and int.from_bytes(front) % 31 == 0)


class Inflated:
    """Reads the content of a file of gzip or zlib. Raises NotImported."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(47)           # 15, and either header
        self._left = b""
        self._members = 1

    def read(self, size: int, /) -> bytes:
        data = bytearray()
        while len(data) < size and (piece := self._piece(size - len(data))):
            data += piece
        return bytes(data)

    def _piece(self, most: int) -> bytes:
        """b"": it has ended."""
        while not self._inflate.eof or self._begin_member():
            data = self._left or self._file.read(PIECE)
            try:
                piece = self._inflate.decompress(data, most)
            except zlib.error as error:
                raise NotImported(f"its compression is damaged: {error}") from None
            self._left = self._inflate.unconsumed_tail
            if piece:
                return piece
            if not data:
                raise NotImported("its compression has no end")
        return b""

    def _begin_member(self) -> bool:
        """gzip may have several members (RFC 1952 section 2.2), with zeros behind them.
        False: there is no other one."""
        rest = self._inflate.unused_data.lstrip(b"\0")
        while len(rest) < len(_GZIP) and (data := self._file.read(PIECE)):
            rest = (rest + data).lstrip(b"\0")
        if not rest.startswith(_GZIP):
            return False
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise NotImported(f"its compression has more than {MOST_MEMBERS} members")
        self._inflate, self._left = zlib.decompressobj(31), rest
        return True


class Pushed:
    """A file with bytes in front that were read already."""

    def __init__(self, front: bytes, file: Readable) -> None:
        self._front = front
        self._file = file

    def read(self, size: int, /) -> bytes:
        front, self._front = self._front[:size], self._front[size:]
        return front + self._file.read(size - len(front))
