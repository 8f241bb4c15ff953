"""What do a client's fingerprints cost a connection?

The ClientHellos are recorded ones; HTTP/2 begins as Chromium's does. `kept` is a client
software met before; `another` has other ciphers each time, and their hash is computed.
MOST_US has the bounds (docs/fingerprints.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from bench.micro import Micro, load_compiled

HELLOS = Path(__file__).parents[2] / "tests/wire/hellos"
CLIENTS = sorted(HELLOS.glob("*.bin"))
SYN = bytes.fromhex(
    "4500003c00014000400600000a0000007f0000010fa00c380000004d00000000a002faf00000"
    "0000020405b40402080a001122330000000001030307"
)
HTTP2 = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    b"\0\0\x18\4\0\0\0\0\0\0\1\0\1\0\0\0\2\0\0\0\0\0\4\0\x60\0\0\0\6\0\4\0\0"
    b"\0\0\4\x08\0\0\0\0\0\0\xef\0\1"
    b"\0\0\1\1\5\0\0\0\1\x82"
)


@functools.cache
def _loops() -> ModuleType:
    return load_compiled(Path(__file__).with_suffix(".pyx"))


def _of_hello(name: str, wanted: int, changes: bool = False) -> Callable[[int], float]:
    data = (HELLOS / f"{name}.bin").read_bytes()[5:]  # each came in one record
    return lambda n: float(_loops().read_hellos(data, wanted, changes, n))


def _of_clients(wanted: int, changes: bool = False) -> Callable[[int], float]:
    hellos = [file.read_bytes()[5:] for file in CLIENTS]
    return lambda n: float(_loops().read_clients(hellos, wanted, changes, n))


JA4, JA3, ALL = 1, 2, 31
BENCHES = [
    Micro("prints_ja4_kept", "JA4 of Chromium's hello, met before",
          _of_hello("chromium", JA4)),
    Micro("prints_ja4_another", "JA4, its ciphers not met before",
          _of_hello("chromium", JA4, True)),
    Micro("prints_ja4_clients", f"JA4 of {len(CLIENTS)} clients in turn, met before",
          _of_clients(JA4)),
    Micro("prints_ja4_clients_another", "the same, their ciphers not met before",
          _of_clients(JA4, True)),
    Micro("prints_ja3", "JA3 of Chromium's hello", _of_hello("chromium", JA3)),
    Micro("prints_all_another", "all five of OpenSSL's, its ciphers not met before",
          _of_hello("openssl", ALL, True)),
    Micro("prints_entrance", "an entrance of one connection, and its Prints",
          lambda n: float(_loops().copy_entrances(n))),
    Micro("prints_tcp", "p0f's of a SYN, without the system call",
          lambda n: float(_loops().read_syns(SYN, n))),
    Micro("prints_http2", "HTTP/2's, from its first octets to its text",
          lambda n: float(_loops().read_http2(HTTP2, n)), len(HTTP2)),
]  # fmt: skip
#: Microseconds of a connection, at most.
MOST_US = {
    "prints_ja4_kept": 3.0, "prints_ja4_another": 3.0, "prints_ja4_clients": 3.0,
    "prints_ja4_clients_another": 3.0, "prints_http2": 1.0,
}  # fmt: skip
