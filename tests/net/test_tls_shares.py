"""Shares of keys in a hello of ours, by the build's libssl and by a newer one.

The psycopg that the tests install brings OpenSSL 3.5, which knows ML-KEM: a child
loads that in place of the system's.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from cutthrough.net.tls import transport as tls
from cutthrough.net.tls.context import TlsClient
from cutthrough.net.tls.offer import offer_as
from cutthrough.wire.offers import read_offer
from tests.doors.transport import TLS, End
from tests.support.certificates import on_aws_lc
from tests.wire.recorded_hellos import data_of
from tests.wire.twin_hello import Reader, find_message

Newer = Callable[[str], list[int]]

X25519, ML_KEM = 0x001d, 0x11ec
KEY_SHARE = 51


def shares_in(data: bytes) -> list[int]:
    """The groups of a hello's shares."""
    hello = Reader(find_message(data)[0][4 + 2 + 32:])
    for length_bytes in (1, 2, 1):          # session, ciphers, compressions
        hello.list(length_bytes)
    extensions = Reader(hello.list(2))
    while extensions.number(2) != KEY_SHARE:
        extensions.list(2)
    shares, groups = Reader(Reader(extensions.list(2)).list(2)), []
    while shares.data:
        groups.append(shares.number(2))
        shares.list(2)
    return groups


def shares_of_ours(client: str = "") -> list[int]:
    """`client`: a recorded hello's, whose offer is passed on."""
    number = tls.put(TlsClient())
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        end = End(ours.fileno(), TLS, number, "example.test")
        if client:
            offer_as(ours.fileno(), read_offer(data_of(client)))
        assert end.shake() == "more"
        data = peer.recv(65536)
        end.close()
    tls.remove(number)
    return shares_in(data)


@pytest.fixture
def newer(tmp_path: Path) -> Newer:
    """Evaluates an expression of this module in a child that loads psycopg's libssl."""
    package = find_spec("psycopg_binary")
    beside = Path(package.origin).parents[1] if package else tmp_path
    for name in ("libssl", "libcrypto"):    # psycopg's libssl needs the longer name
        for path in beside.glob(f"psycopg_binary.libs/{name}-*.so.3"):
            (tmp_path / path.name).symlink_to(path)
            (tmp_path / f"{name}.so.3").symlink_to(path)

    def evaluate(expression: str) -> list[int]:
        child = ("import ssl, sys\nif ssl.OPENSSL_VERSION_INFO < (3, 5): sys.exit(77)\n"
                 "from tests.net.test_tls_shares import *\n"
                 f"print(*{expression})")
        done = subprocess.run(
            [sys.executable, "-c", child], capture_output=True, text=True, timeout=120,
            env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)})
        if done.returncode == 77:           # built from source, it has the system's
            pytest.skip("psycopg brings no OpenSSL 3.5")
        assert done.returncode == 0, done.stderr
        return [int(word) for word in done.stdout.split()]
    return evaluate


# Built with AWS-LC, our modules have no libssl that LD_LIBRARY_PATH could replace
ON_OPENSSL = pytest.mark.skipif(on_aws_lc(), reason="the child would load it too")


def test_a_classical_share_goes_out() -> None:
    """With any libssl: a server that has no ML-KEM need not ask again."""
    assert shares_of_ours()[-1] == X25519


@ON_OPENSSL
def test_a_classical_share_goes_out_beside_that_of_ml_kem(newer: Newer) -> None:
    """OpenSSL 3.5 sent the first alone, and each server without ML-KEM asked again."""
    assert newer("shares_of_ours()") == [ML_KEM, X25519]


@ON_OPENSSL
@pytest.mark.parametrize("name", ["firefox", "chromium", "curl"])
def test_shares_are_of_the_groups_that_a_client_prefers(
        newer: Newer, name: str) -> None:
    """Of a client's offer, too; of one that prefers no ML-KEM, the first group's."""
    theirs = [group for group in shares_in(data_of(name)) if group in (X25519, ML_KEM)]
    assert newer(f"shares_of_ours({name!r})") == theirs
