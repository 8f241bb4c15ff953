"""The obvious twin of `wire.clienthello`: slices and lists, in the words of RFC 8446.

It shares no code with the parser, and hashes for itself. `build_*` make hellos.
"""

import hashlib
import re
from typing import NamedTuple

from tests.wire.twin_target import read_authority

MOST = 16384


class Hello(NamedTuple):
    """A ClientHello, as the parser's door returns one."""

    length: int                 # of its records
    legacy: int
    version: int
    name: str | None
    name_kind: str              # "", "host", "address", "invalid"
    alpn: list[bytes]
    ech: bool
    ja4: str
    ja3: str


class Broken(Exception):
    """No ClientHello."""


class More(Exception):
    """More bytes are needed."""


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, n: int) -> bytes:
        if n > len(self.data):
            raise Broken
        taken, self.data = self.data[:n], self.data[n:]
        return taken

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n))

    def list(self, length_bytes: int) -> bytes:
        return self.take(self.number(length_bytes))


def only_list(data: bytes, length_bytes: int) -> bytes:
    reader = Reader(data)
    found = reader.list(length_bytes)
    if reader.data:
        raise Broken
    return found


def numbers(data: bytes, size: int = 2) -> list[int]:
    if len(data) % size:
        raise Broken
    return [int.from_bytes(data[i:i + size]) for i in range(0, len(data), size)]


def is_grease(number: int) -> bool:
    return number in {0x0A0A + 0x1010 * i for i in range(16)}


def real(found: list[int]) -> list[int]:
    return [number for number in found if not is_grease(number)]


def find_message(data: bytes) -> tuple[bytes, int]:
    """The message with its head, and the bytes of its records."""
    message, at = b"", 0
    while True:
        head = data[at:at + 5]
        template = (b"\x16", b"\x03")
        for have, must in zip(head, template, strict=False):
            if have != must[0]:
                raise Broken
        if (len(head) > 3 and head[3] > 64) or at + 5 > MOST:
            raise Broken
        if len(head) < 5:
            raise More
        size = int.from_bytes(head[3:])
        if size == 0 or at + 5 + size > MOST:
            raise Broken
        part = data[at + 5:at + 5 + size]
        message += part
        at += 5 + size
        if message and message[0] != 1:
            raise Broken
        if len(message) >= 4:
            want = 4 + int.from_bytes(message[1:4])
            # with the rest of this record, which may not be there yet
            if want < 38 or want > MOST - 5 or len(message) - len(part) + size > want:
                raise Broken
            if len(message) == want:
                return message, at
        if len(part) < size:
            raise More


def read_hello(data: bytes) -> Hello | str | None:
    """A Hello; "broken"; None: more is needed."""
    try:
        message, length = find_message(data)
        return read_message(message[4:], length)
    except More:
        return None
    except Broken:
        return "broken"


def read_message(body: bytes, length: int) -> Hello:
    reader = Reader(body)
    legacy = version = reader.number(2)
    reader.take(32)
    if legacy >> 8 != 3 or len(reader.list(1)) > 32:
        raise Broken
    ciphers = numbers(reader.list(2))
    if not ciphers or not reader.list(1):
        raise Broken
    extensions: list[tuple[int, bytes]] = []
    if reader.data:
        reader = Reader(only_list(reader.data, 2))
        while reader.data:
            extensions.append((reader.number(2), reader.list(2)))
    kinds = [kind for kind, _ in extensions]
    if any(kinds.count(kind) > 1 for kind in kinds if kind < 64):
        raise Broken
    values = dict(extensions)
    name, name_kind = read_name(values[0]) if 0 in values else (None, "")
    alpn = read_alpn(values[16]) if 16 in values else []
    groups = numbers(only_list(values[10], 2)) if 10 in values else []
    formats = list(only_list(values[11], 1)) if 11 in values else []
    signatures = numbers(only_list(values[13], 2)) if 13 in values else []
    if 43 in values:
        versions = numbers(only_list(values[43], 1))
        if not versions:
            raise Broken
        version = max(real(versions), default=0)
    return Hello(
        length, legacy, version, name, name_kind, alpn, 0xFE0D in kinds,
        ja4(version, 0 in kinds, ciphers, kinds, alpn, signatures),
        ja3(legacy, ciphers, kinds, groups, formats))


def read_name(value: bytes) -> tuple[str, str]:
    names = Reader(only_list(value, 2))
    if names.number(1) != 0:
        raise Broken
    raw = only_list(names.data, 2)
    if not 0 < len(raw) < 256:
        raise Broken
    found = None if b":" in raw or b"[" in raw else read_authority(raw, 1)
    if found is None:
        return raw.decode("latin-1"), "invalid"
    host, kind, _ = found
    return host, "host" if kind == "name" else "address"


def read_alpn(value: bytes) -> list[bytes]:
    reader = Reader(only_list(value, 2))
    found = []
    while reader.data:
        found.append(reader.list(1))
        if not found[-1]:
            raise Broken
    if not found:
        raise Broken
    return found


VERSIONS = {0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3"}


def ja4(version: int, named: bool, ciphers: list[int], kinds: list[int],
        alpn: list[bytes], signatures: list[int]) -> str:
    kinds = real(kinds)
    rest = ",".join(sorted(f"{kind:04x}" for kind in kinds if kind not in (0, 16)))
    signed = ",".join(f"{number:04x}" for number in real(signatures))
    return "_".join((
        f"t{VERSIONS.get(version, '00')}{'d' if named else 'i'}"
        f"{min(99, len(real(ciphers))):02}{min(99, len(kinds)):02}{of_alpn(alpn)}",
        hashed(",".join(sorted(f"{cipher:04x}" for cipher in real(ciphers)))),
        hashed(f"{rest}_{signed}" if signed else rest)))


def of_alpn(alpn: list[bytes]) -> str:
    if not alpn:
        return "00"
    ends = alpn[0][:1] + alpn[0][-1:]
    if re.fullmatch(rb"[0-9A-Za-z]{2}", ends):
        return ends.decode()
    return alpn[0].hex()[0] + alpn[0].hex()[-1]


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else "0" * 12


def ja3(legacy: int, *lists: list[int]) -> str:
    *others, formats = lists
    parts = ["-".join(map(str, real(found))) for found in others]
    text = ",".join([str(legacy), *parts, "-".join(map(str, formats))])
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


# --- making hellos -----------------------------------------------------------------

def listed(data: bytes, length_bytes: int = 2) -> bytes:
    return len(data).to_bytes(length_bytes) + data


def words(*found: int) -> bytes:
    return b"".join(number.to_bytes(2) for number in found)


def named(host: bytes) -> tuple[int, bytes]:
    return 0, listed(b"\0" + listed(host))


def offering(*protocols: bytes) -> tuple[int, bytes]:
    return 16, listed(b"".join(listed(one, 1) for one in protocols))


VERSIONS_13 = (43, listed(words(0x0304, 0x0303), 1))
SIGNATURES = (13, listed(words(0x0403, 0x0804)))


def build_body(*extensions: tuple[int, bytes], ciphers: tuple[int, ...] = (0x1301,),
               legacy: int = 0x0303, session: bytes = b"") -> bytes:
    block = b"".join(words(kind) + listed(value) for kind, value in extensions)
    fixed = words(legacy) + bytes(range(32)) + listed(session, 1)
    return (fixed + listed(words(*ciphers)) + b"\x01\0"
            + (listed(block) if extensions else b""))


def build_message(body: bytes) -> bytes:
    return b"\x01" + listed(body, 3)


def build_records(message: bytes, *sizes: int) -> bytes:
    """The message in records of these sizes, the rest in a last one."""
    out, at = b"", 0
    for size in (*sizes, len(message)):
        part = message[at:at + size]
        if part:
            out += b"\x16\x03\x01" + listed(part)
        at += size
    return out


def build_hello(*extensions: tuple[int, bytes], ciphers: tuple[int, ...] = (0x1301,),
                legacy: int = 0x0303) -> bytes:
    return build_records(build_message(
        build_body(*extensions, ciphers=ciphers, legacy=legacy)))
