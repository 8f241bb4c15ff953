"""scripts/bootstrap.sh: what it changes in the system while it installs."""

import re
import subprocess

import pytest

from tests.support.proxy import ROOT

SCRIPT = (ROOT / "scripts/bootstrap.sh").read_text()
POLICY = "\n".join(re.findall(
    r"^own_policy=.*?$|^is_own\(\).*?$|^(?:forbid|allow)_services\(\) \{$.*?^\}$",
    SCRIPT, re.M | re.S))


def test_a_user_who_may_not_install_is_told_what_is_missing(tmp_path):
    """It named a command of its own that needs root, and no package."""
    (tmp_path / "apt-get").touch(0o755)
    install = re.search(r"^install\(\) \{$.*?^\}$", SCRIPT, re.M | re.S)
    done = subprocess.run(
        ["/bin/bash", "-euc", 'PATH=$1; id() { echo 1000; }; say() { echo "$@" >&2; }; '
         f'die() {{ say "$@"; exit 1; }}; daemons=()\n{install[0]}\ninstall git wrk',
         "bash", tmp_path], text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "please install, as root: apt-get install --no-install-recommends git wrk\n")


@pytest.mark.parametrize("before", ["", "#!/bin/sh\nexit 104\n"])
@pytest.mark.parametrize("steps", [
    "forbid_services; allow_services",
    "(forbid_services; trap - EXIT); forbid_services; allow_services",
    "forbid_services; (forbid_services; allow_services); allow_services"],
    ids=["a run", "after one that was killed", "two at once"])
def test_the_systems_policy_of_services_comes_back(tmp_path, before, steps):
    """A second run put aside what the first had written, and no service of this system
    was started any more when a package of it was installed."""
    policy = tmp_path / "policy-rc.d"
    if before:
        policy.write_text(before)
    subprocess.run(
        ["bash", "-euc", f'policy=$1; as_root() {{ "$@"; }}\n{POLICY}\n{steps}', "bash",
         policy], check=True)
    assert (policy.read_text() if policy.exists() else "") == before
    assert {path.name for path in tmp_path.iterdir()} == {policy.name} & {
        before and policy.name}
