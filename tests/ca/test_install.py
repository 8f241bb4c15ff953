"""`cutthrough ca trust --install`, on a machine whose stores are the test's own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.proxy import ROOT, clean_environment

# Over the stores of this machine: what is written there is in memory, and of these
# processes alone
SCRIPT = """set -e
for place in /usr/local/share/ca-certificates /etc/ssl/certs; do
    cp -a $place "$1/kept"
    mount -t tmpfs tmpfs $place
    cp -a "$1/kept/." $place
    rm -r "$1/kept"
done
shift
exec "$@"
"""


def can_mount() -> bool:
    return shutil.which("unshare") is not None and subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True).returncode == 0


# The commands write into /etc and /usr: each test has both for itself alone
needs_mounts = pytest.mark.skipif(
    not can_mount() or not Path("/usr/sbin/update-ca-certificates").exists(),
    reason="needs a mount namespace, and Debian's ca-certificates")


@needs_mounts
def test_each_store_gets_the_certificate_and_loses_it_again(tmp_path):
    """The system's bundle by its own command, and NSS by certutil."""
    home = tmp_path / "home"
    database = home / ".pki/nssdb"
    database.mkdir(parents=True)
    subprocess.run(["certutil", "-N", "--empty-password", "-d", f"sql:{database}"],
                   check=True, capture_output=True)
    script = f"""set -e
ours() {{ action=$1; shift; {sys.executable} -m cutthrough ca $action --dir {
        tmp_path / "ca"} "$@"; }}
ours init --name Ours
ours trust --check && exit 1
ours trust --install > {tmp_path / "said"}
grep -c '^ *undone by: ' {tmp_path / "said"}
ours trust --check || test $? = 1
echo ---
sed -n 's/^ *undone by: //p' {tmp_path / "said"} > {tmp_path / "undo"}
sh -e {tmp_path / "undo"}
ours trust --check && exit 1
exit 0
"""
    done = subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", SCRIPT, "sh", str(tmp_path), "/bin/sh",
         "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=clean_environment(HOME=str(home), PATH=os.environ["PATH"]))
    assert done.returncode == 0, done.stdout + done.stderr
    installed, _, undone = done.stdout.partition("---")
    for kind in ("system", "NSS"):
        assert f"yes  {kind}" in installed and f"yes  {kind}" not in undone
        assert f"no   {kind}" in undone
    assert "Ours" not in Path("/etc/ssl/certs/ca-certificates.crt").read_text()
