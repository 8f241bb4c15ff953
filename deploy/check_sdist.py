#!/usr/bin/env python3
"""Installs the source archive of dist/ as pip does, and forwards a request by each way.

    make sdist && deploy/check_sdist.py [--suite SUITE]

The root is a bare Debian with a compiler and the headers that README.md names. pip
builds there on a terminal, on which a line says how far the build is. Then
deploy/probe_wheel.py runs, in a network of its own with `lo` alone. Ends with 1 if pip
takes more than 180 seconds of CPU, which are 90 seconds on two cores, or a way fails.

Needs root, debootstrap, util-linux, iproute2, a Debian mirror and one of PyPI. The root
stays in build/sdist for the next run.
"""

import argparse
import os
import re
import shutil
import sys
import time
from pathlib import Path

from check_image import TREE, Root, bootstrap, newest, require
from check_wheel import alone

MOST_S = 180
PACKAGES = ("ca-certificates,gcc,libc6-dev,libnghttp2-dev,libsqlite3-dev,libssl-dev,"
            "python3,python3-dev,python3-venv")


def make_root(suite: str) -> Root:
    path = TREE / f"build/sdist/{suite}"
    if not (path / "made").exists():
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        bootstrap(suite, path, f"--include={PACKAGES}")
        (path / "made").touch()
    return Root(path)


def check(archive: Path, suite: str) -> bool:
    root = make_root(suite)
    for name in ("opt/cutthrough", "sdist"):
        shutil.rmtree(root.path / name, ignore_errors=True)
    (root.path / "sdist").mkdir()
    shutil.copy(archive, root.path / "sdist")
    shutil.copy(TREE / "deploy/probe_wheel.py", root.path / "sdist")
    root.run("python3 -m venv /opt/cutthrough")
    before, started = os.times(), time.monotonic()
    root.run("script --quiet --return --command '/opt/cutthrough/bin/pip install "
             f"--no-cache-dir /sdist/{archive.name}' /sdist/terminal")
    after, wall = os.times(), time.monotonic() - started
    cpu = (after.children_user + after.children_system
           - before.children_user - before.children_system)
    shown = (root.path / "sdist/terminal").read_text(errors="replace")
    steps = re.findall(r"(translating to|compiling) C: \d+ of \d+", shown)
    print(f"{archive.name} in Debian {suite}: installed in {wall:.1f} s, {cpu:.1f} s "
          f"of CPU; the line on the terminal changed {len(steps)} times", flush=True)
    assert {*steps} == {"translating to", "compiling"}, "nothing says how far it is"
    alone(root, "/opt/cutthrough/bin/python", "/sdist/probe_wheel.py", "--hosts")
    return cpu <= MOST_S


def main() -> int:
    parser = argparse.ArgumentParser(description="install the source archive in a root")
    parser.add_argument("--suite", default="bookworm", help="Debian's [%(default)s]")
    given = parser.parse_args()
    require("debootstrap", "unshare", "ip")
    archive = newest("cutthrough-*.tar.gz", "sdist")
    return 0 if check(archive, given.suite) else 1


if __name__ == "__main__":
    sys.exit(main())
