"""What tests leave in /tmp: nothing, also if they are killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.folders import SharedFolder
from tests.support.proxy import ROOT
from tests.support.wait import wait_until

MAKER = """
import sys, tempfile
from tests.support.folders import SharedFolder
folder = SharedFolder("cutthrough-test-")
(folder.path / "file").touch()
print(tempfile.mkdtemp(), folder.path, flush=True)
sys.stdin.read()
"""


def test_a_run_that_is_killed_leaves_no_directory(tmp_path_factory):
    """Once each killed worker of pytest-xdist left some in /tmp."""
    with subprocess.Popen([sys.executable, "-c", MAKER], cwd=ROOT,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout
        below, shared = map(Path, maker.stdout.readline().decode().split())
        maker.kill()
    wait_until(lambda: not shared.exists(), f"{shared} is gone")
    assert below.is_relative_to(tmp_path_factory.getbasetemp())
    assert tempfile.gettempdir() == str(below.parent)


def test_a_shared_directory_is_gone_when_it_is_closed():
    folder = SharedFolder("cutthrough-test-")
    (folder.path / "file").touch()
    folder.close()
    assert not folder.path.exists()
