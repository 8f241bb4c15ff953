"""No test sends a packet off the machine: the guard of conftest.py sees each try."""

import os
import subprocess
import sys

import pytest

from tests.support.proxy import ROOT

TESTS = """
import socket
import pytest
import cutthrough
from tests.support.client import build_request

def dial(host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.settimeout(1)
        sock.connect_ex((host, 443))

@pytest.mark.parametrize("host", ["127.0.0.1", "127.200.0.1", "::1"])
def test_here(host):
    dial(host)

@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "169.254.169.254"])
def test_elsewhere(host):
    dial(host)

def test_datagram():
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(b"?", ("192.0.2.1", 53))
        except OSError:
            pass

async def test_proxy():
    import asyncio
    async with cutthrough.serve(user="user", password="pass:word") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(build_request("GET", "http://192.0.2.1/"))
        assert b" 502 " in await reader.readline()
        writer.close()

@pytest.mark.dials_out
def test_marked():
    dial("192.0.2.1")
"""
CAUGHT = {"test_elsewhere[192.0.2.1]", "test_elsewhere[2001:db8::1]",
          "test_elsewhere[169.254.169.254]", "test_datagram", "test_proxy"}
# In the network of the host Python's own sockets are all that can be watched.
WITHOUT = """
from tests.support import network
network.enter_alone = lambda: "unshare: not here"
from tests.conftest import *
"""


def run(tmp_path, plugin):
    """The tests that fail, here or when they are torn down; and all output."""
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-p", plugin,
         "-p", "no:cacheprovider", str(tmp_path / "test_it.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)})
    caught = {line.partition("::")[2].partition(" - ")[0]
             for line in done.stdout.splitlines()
             if line.startswith(("ERROR ", "FAILED "))}
    return caught, done.stdout + done.stderr


@pytest.mark.dials_out
def test_a_test_that_dials_elsewhere_fails(tmp_path):
    """The tests of `doctor ssrf` and others sent SYNs to public addresses."""
    caught, output = run(tmp_path, "tests.conftest")
    assert caught == CAUGHT, output
    assert "1 packets for addresses that are not loopback" in output


@pytest.mark.dials_out
def test_without_a_network_python_does_not_dial_elsewhere(tmp_path):
    """And a test that would have to is skipped."""
    (tmp_path / "without.py").write_text(WITHOUT)
    caught, output = run(tmp_path, "without")
    assert caught == CAUGHT - {"test_proxy"}, output
    assert "1 skipped" in output
    assert "no network with lo alone: unshare: not here" in output
