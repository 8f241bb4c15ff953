"""keepalived's own check of deploy/keepalived. IPVS itself is not in every kernel."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.intercepting import ip
from tests.support.network import own_network
from tests.support.proxy import ROOT

CONFIG = ROOT / "deploy/keepalived/keepalived.conf"
PROGRAM = shutil.which(
    "keepalived", path=os.environ.get("PATH", "") + ":/usr/sbin")
# `make test` installs it; elsewhere nothing can judge the file
needs_keepalived = pytest.mark.skipif(
    PROGRAM is None, reason="keepalived is not installed")


def check(path: Path) -> tuple[int, str]:
    """Status and complaints of `keepalived -t`, on a host with eth0."""
    assert PROGRAM is not None
    with own_network():
        ip("link", "add", "eth0", "type", "veth", "peer", "name", "far")
        ip("addr", "add", "192.0.2.2/24", "dev", "eth0")
        ip("link", "set", "eth0", "up")
        done = subprocess.run([PROGRAM, "-t", "-f", path], capture_output=True,
                              text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@needs_keepalived
def test_keepalived_takes_the_configuration() -> None:
    assert check(CONFIG) == (0, "")


@needs_keepalived
@pytest.mark.parametrize(("what", "other"), [
    ("lvs_method DR", "lvs_method DRS"), ("HTTP_GET", "HTTP_TEST"),
    ("path /readyz", "way /readyz")])
def test_keepalived_refuses_mistakes(tmp_path: Path, what: str, other: str) -> None:
    """So that its silence says something."""
    path = tmp_path / "keepalived.conf"
    path.write_text(CONFIG.read_text().replace(what, other))
    status, complaints = check(path)
    assert status != 0 and complaints


def test_the_page_has_its_addresses() -> None:
    page = (ROOT / "docs/fleet.md").read_text()
    text = CONFIG.read_text()
    named = re.findall(r"real_server (\S+) (\d+)", text)
    assert len(named) == len(set(named)) == 3
    virtual, port = re.findall(r"virtual_server (\S+) (\d+)", text)[0]
    admin = re.findall(r"connect_port (\d+)", text)[0]
    assert f'listen = ["{virtual}:{port}"]' in page
    assert f'admin = "{named[0][0]}:{admin}"' in page
