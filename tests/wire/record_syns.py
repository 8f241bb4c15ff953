"""Writes `syns.json`: SYN packets, and the signature that p0f 3.09b gives each.

    python -m tests.wire.record_syns        # needs p0f

The packets are those of known systems, and packets with options, lengths and flags
drawn at random. p0f reads them from a file: nothing is sent.
"""

import json
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SYNS = Path(__file__).parent / "syns.json"
RAW_IP = 101                            # LINKTYPE_RAW
SIGNATURE = re.compile(r"mod=syn\|cli=([^|/]+)/.*raw_sig=(\S+)")

LINUX = "020405b4 0402 080a00112233 00000000 01 030307"
WINDOWS = "020405b4 01 030308 01 01 0402"
MACOS = "020405b4 01 030306 01 01 080a11223344 00000000 0402 00 00"
# Options of known kinds and of none, whole, and with a wrong length
PIECES = ["020405b4", "02040218", "020400ff", "0402", "030307", "03030f", "01", "00",
          "080a0000000100000000", "080a0000000000000000", "080a1234567800000009",
          "1c04ffff", "fd04f989", "050a0000000100000002", "02050001ff", "040300",
          "0303", "1301", "13", "05", "0000ff", "22020000"]


def build(*, version: int = 4, ttl: int = 64, ident: int = 1, frag: int = 0x4000,
          tos: int = 0, flow: int = 0, window: int = 64240, options: str = LINUX,
          flags: int = 2, seq: int = 77, ack: int = 0, urgent: int = 0, extra: int = 0,
          ip_options: bytes = b"", reserved: int = 0, number: int = 0) -> bytes:
    """A packet from an address of its own, without check sums."""
    tail = bytes.fromhex(options.replace(" ", ""))
    tail = tail[:40] + bytes(-len(tail[:40]) % 4)
    tcp = struct.pack("!HHIIBBHHH", 4000, 3128, seq, ack,
                      (5 + len(tail) // 4) << 4 | reserved, flags, window, 0,
                      urgent) + tail + bytes(extra)
    if version == 6:
        source = socket.inet_pton(socket.AF_INET6, f"2001:db8::{number + 1:x}")
        return struct.pack("!IHBB", 6 << 28 | tos << 20 | flow, len(tcp), 6, ttl
                           ) + source + bytes(15) + b"\1" + tcp
    head = 20 + len(ip_options)
    return struct.pack("!BBHHHBBH", 4 << 4 | head // 4, tos, head + len(tcp), ident,
                       frag, ttl, 6, 0) + bytes((10, 0, number >> 8, number & 255)
                       ) + b"\x7f\0\0\1" + ip_options + tcp


def draw(rng: random.Random, number: int) -> bytes:
    options = "".join(rng.choices(PIECES, k=rng.randrange(8)))
    if rng.random() < .5:
        options = rng.choice((LINUX, WINDOWS, MACOS))
    mss = rng.choice((1460, 536, 1220, 90, 65495))
    return build(
        version=rng.choice((4, 4, 6)),
        ttl=rng.choice((64, 57, 128, 113, 255, 1, 33, 90)),
        ident=rng.choice((0, 7)), frag=rng.choice((0x4000, 0x4000, 0, 0x8000, 0xc000)),
        tos=rng.choice((0, 0, 1, 0x10)), flow=rng.choice((0, 0x12345)),
        window=rng.choice((mss * 20, (mss - 12) * 4, 1500 * 9, 1500, (mss + 40) * 3,
                           (mss + 60) * 5, 65535, 8192, 0, 1440 * 7, 1428 * 3)) & 65535,
        options=options, flags=rng.choice((2, 2, 2, 0xc2, 0x0a, 0x22, 0x42)),
        seq=rng.choice((0, 5, 5)), ack=rng.choice((0, 0, 0, 0x01000001)),
        urgent=rng.choice((0, 0, 9)), extra=rng.choice((0, 0, 0, 3)),
        ip_options=rng.choice((b"", b"", b"\1\1\1\1", b"\x94\4\0\0\1\1\1\0")),
        reserved=rng.choice((0, 0, 1)), number=number)


def packets() -> list[bytes]:
    rng = random.Random(36)
    known = [{}, {"version": 6, "options": LINUX.replace("05b4", "05a0"),
                  "window": 64800},
             {"ttl": 128, "options": WINDOWS, "window": 64240},
             {"ttl": 119, "options": WINDOWS, "window": 65535},
             {"options": MACOS, "window": 65535, "ident": 0},
             {"ttl": 43, "frag": 0, "options": "020405b4", "window": 1024},
             {"options": LINUX.replace("05b4", "ffd7"), "window": 65495}]
    return [*(build(number=number, **about) for number, about in enumerate(known)),
            *(draw(rng, number) for number in range(len(known), 240))]

def ask_p0f(syns: list[bytes], folder: Path) -> dict[str, str]:
    """The signatures, by the client's address in p0f's spelling."""
    capture, log = folder / "syns.pcap", folder / "p0f.log"
    capture.write_bytes(struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, RAW_IP)
                        + b"".join(struct.pack("=IIII", 1, n, len(syn), len(syn)) + syn
                                   for n, syn in enumerate(syns)))
    subprocess.run(["p0f", "-r", str(capture), "-o", str(log)], check=True,
                   stdout=subprocess.DEVNULL)
    return dict(SIGNATURE.findall(log.read_text()))


def shown(syn: bytes) -> str:
    if syn[0] >> 4 == 4:
        return socket.inet_ntop(socket.AF_INET, syn[12:16])
    return ":".join(f"{word:x}" for word in struct.unpack("!8H", syn[8:24]))


def main() -> None:
    syns = packets()
    with tempfile.TemporaryDirectory() as folder:
        said = ask_p0f(syns, Path(folder))
    lines = [json.dumps([syn.hex(), said[shown(syn)]]) for syn in syns
             if shown(syn) in said]
    SYNS.write_text("[" + ",\n".join(lines) + "]\n")
    sys.stderr.write(f"{len(lines)} of {len(syns)} packets have a signature\n")


if __name__ == "__main__":
    main()
