"""Loopback alone: the tries of `doctor ssrf` leave no packet on the wire."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.proxy import ROOT

LOOK = """
import json, socket, psutil
from cutthrough.net import loopback_only
from cutthrough.net.interfaces import own_hosts

def dial(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        return sock.connect_ex((host, 9))

def look():
    loopback_only.enter(["127.0.0.1", "192.0.2.7", "2001:db8::7"])
    interfaces = psutil.net_if_stats().items()
    return {"up": [name for name, one in interfaces if one.isup],
            "addresses": sorted(own_hosts()), "alone": loopback_only.is_alone(),
            "elsewhere": [dial("192.0.2.8"), dial("2001:db8::8")],
            "here": [dial("127.0.0.1"), dial("192.0.2.7"), dial("2001:db8::7")]}

try:
    print(json.dumps(look()))
except PermissionError as error:
    print(json.dumps({"refused": str(error)}))
"""
NOBODY = 65534


@pytest.mark.parametrize("user", [None, NOBODY], ids=["self", "nobody"])
def test_a_process_that_went_there_reaches_itself_only(user):
    """R26, R27: with the host's own addresses, which are still to be refused."""
    if user is not None and os.geteuid():
        pytest.skip("only root can be somebody else")
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=ROOT, text=True, timeout=60,
                          capture_output=True, user=user, check=False)
    if done.returncode and "Permission denied" in done.stderr:
        pytest.skip("nobody may not read this tree")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    if "refused" in seen:
        pytest.skip(f"unshare: {seen['refused']}")
    assert seen == {
        "up": ["lo"], "alone": True,
        "addresses": ["127.0.0.1", "192.0.2.7", "2001:db8::7", "::1"],
        "elsewhere": [101, 101], "here": [111, 111, 111]}, "ENETUNREACH, ECONNREFUSED"
