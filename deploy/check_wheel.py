#!/usr/bin/env python3
"""Installs the wheel of dist/ in a bare Debian and forwards a request by each way.

    deploy/check_wheel.py [WHEEL] [--suite SUITE] [--machine MACHINE]

The root has Python and Debian's authorities, and neither a compiler nor the headers or
libraries of nghttp2. What the wheel depends on is loaded first; then pip installs, in a
network of its own with `lo` alone, and deploy/probe_wheel.py runs there. Ends with 1 if
the installation takes more than five seconds of CPU, the first request is answered
later than ten seconds after the program's start, or a way does not work.

The wheel of another architecture is tried in a root of that architecture, emulated by
qemu-user (qemu-user-static, with its entry in binfmt_misc). Times are not judged there.

Needs root, debootstrap, util-linux, iproute2 and a Debian mirror. The root stays in
build/wheel for the next run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from check_image import TREE, Root, bootstrap, newest, require

MOST_INSTALL_S = 5
# Debian's names, by those of a wheel
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SUITES = {"cp311": "bookworm", "cp313": "trixie", "cp314": "sid"}
ALONE = """
set -eu
ip link set lo up
mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
root=$1; shift
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LC_ALL=C.UTF-8 PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore "$@"
"""


def alone(root: Root, *argv: str) -> tuple[float, float]:
    """Runs a command in the root, without a network. Returns its seconds of wall time
    and of CPU, those of its children included."""
    before, started = os.times(), time.monotonic()
    subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c",
         ALONE, "sh", root.path, *argv], check=True)
    after = os.times()
    return time.monotonic() - started, (
        after.children_user + after.children_system
        - before.children_user - before.children_system)


def require_emulation(machine: str) -> None:
    """F in the flags: the kernel holds the interpreter open, so the root needs none."""
    entry = Path("/proc/sys/fs/binfmt_misc", f"qemu-{machine}")
    if not entry.exists() or not re.search(r"^flags:.*F", entry.read_text(), re.M):
        raise SystemExit(f"install qemu-user-static, or: update-binfmts --enable "
                         f"qemu-{machine}")


def make_root(suite: str, architecture: str) -> Root:
    path = TREE / f"build/wheel/bare-{suite}-{architecture}"
    ready = path / "made"
    if not ready.exists():
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        bootstrap(suite, path, f"--arch={architecture}",
                  "--include=python3,python3-venv,ca-certificates")
        ready.touch()
    for name in ("usr/bin/cc", "usr/bin/gcc", "usr/include/openssl/ssl.h",
                 "usr/include/stdio.h"):
        assert not (path / name).exists(), f"{path / name}: the root is not bare"
    assert not list(path.glob("usr/lib/*/libnghttp2*"))
    return Root(path)


def check(wheel: Path, suite: str, machine: str) -> bool:
    emulated = machine != os.uname().machine
    if emulated:
        require_emulation(machine)
    root = make_root(suite, ARCHITECTURES[machine])
    for name in ("opt/cutthrough", "wheel"):
        shutil.rmtree(root.path / name, ignore_errors=True)
    (root.path / "wheel/needed").mkdir(parents=True)
    shutil.copy(wheel, root.path / "wheel")
    shutil.copy(TREE / "requirements/run.txt", root.path / "wheel")
    shutil.copy(TREE / "deploy/probe_wheel.py", root.path / "wheel")
    pip = "/opt/cutthrough/bin/pip"
    root.run(f"python3 -m venv /opt/cutthrough && {pip} download --quiet "
             "--require-hashes --dest /wheel/needed --requirement /wheel/run.txt")
    wall, cpu = alone(root, pip, "install", "--quiet", "--no-index", "--find-links",
                      "/wheel/needed", f"/wheel/{wheel.name}")
    place = f"Debian {suite}" + ", emulated" * emulated
    print(f"{wheel.name} in {place}: installed in {wall:.1f} s, {cpu:.1f} s of CPU",
          flush=True)
    alone(root, "/opt/cutthrough/bin/python", "/wheel/probe_wheel.py",
          *(["--emulated"] if emulated else []))
    return emulated or cpu <= MOST_INSTALL_S


def main() -> int:
    parser = argparse.ArgumentParser(description="install a wheel in a bare root")
    parser.add_argument("wheel", type=Path, nargs="?", help="[the newest in dist/]")
    parser.add_argument("--suite", help="Debian's; [the one with the wheel's Python]")
    parser.add_argument("--machine", choices=ARCHITECTURES, default=os.uname().machine,
                        help="whose newest wheel [%(default)s]")
    given = parser.parse_args()
    require("debootstrap", "unshare", "ip")
    verb = f"wheel ARCHITECTURE={ARCHITECTURES[given.machine]}"
    wheel = given.wheel or newest(f"*manylinux*_{given.machine}.whl", verb)
    tags = re.search(r"-(cp3\d+)-.*manylinux\w*?_(x86_64|aarch64)\.whl$", wheel.name)
    if tags is None:
        parser.error(f"{wheel.name}: not a wheel for Linux on x86-64 or arm64")
    suite = given.suite or SUITES.get(tags[1])
    if suite is None:
        parser.error(f"{wheel.name}: no Debian has its Python; name one by --suite")
    return 0 if check(wheel, suite, tags[2]) else 1


if __name__ == "__main__":
    sys.exit(main())
