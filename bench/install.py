"""Installs the peers on request: from Debian, PyPI, npm, Go's modules, Maven and
Rust's cargo.

Only `python -m bench peers --install` installs. Debian's packages go into the system,
and their services are neither started nor enabled; everything else goes into the cache
directory outside the tree.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.children import BenchError
from bench.peers import ALL, CACHE, FILES, SEARCH

POLICY = Path("/usr/sbin/policy-rc.d")
FORBIDDEN = "#!/bin/sh\nexit 101\n"  # of any action on any service


def _do(command: list[str], cwd: Path | None = None, **more: str) -> None:
    print(f"# {' '.join(command)}", file=sys.stderr, flush=True)
    env = {**os.environ, "PATH": SEARCH, "DEBIAN_FRONTEND": "noninteractive", **more}
    done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BenchError(f"{command[0]} ended with {done.returncode}")


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Keeps Debian from starting an installed daemon, by policy-rc.d."""
    before = POLICY.read_text() if POLICY.exists() else None
    POLICY.write_text(FORBIDDEN)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        if before is None:
            POLICY.unlink(missing_ok=True)
        else:
            POLICY.write_text(before)


def _apt(packages: list[str]) -> None:
    if os.geteuid():
        raise BenchError(f"needs root: apt-get install {' '.join(packages)}")
    before = set(Path("/etc/init.d").glob("*"))
    with _no_service_starts():
        _do(["apt-get", "-qq", "update"])
        _do(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "install", "-y",
             "--no-install-recommends", *packages])  # fmt: skip
    # A newly installed service must not start at the next boot.
    for service in set(Path("/etc/init.d").glob("*")) - before:
        subprocess.run(["update-rc.d", service.name, "disable"], capture_output=True)


def _pip(name: str, package: str) -> None:
    venv = CACHE / name
    _do([sys.executable, "-m", "venv", "--clear", str(venv)])
    _do([str(venv / "bin" / "pip"), "install", "--quiet", *package.split()])


def _copy(name: str) -> Path:
    shutil.copytree(FILES / name, CACHE / name, dirs_exist_ok=True)
    return CACHE / name


def _npm(name: str, package: str) -> None:
    _do(["npm", "install", "--silent", "--no-audit", "--no-fund"], _copy(name))


def _go(name: str, package: str) -> None:
    directory = _copy(name)
    _do(["go", "mod", "tidy"], directory)
    _do(["go", "build", "-o", name, "."], directory)


def _goinstall(name: str, package: str) -> None:
    _do(["go", "install", package], GOBIN=str(CACHE / name))


def _maven(name: str, package: str) -> None:
    _do(["mvn", "--quiet", "--batch-mode", "package"], _copy(name))


def _cargo(name: str, package: str) -> None:
    address, *words = package.split()
    for one in " ".join(words).split(" + "):
        _do(["cargo", "install", "--quiet", "--locked", "--root", str(CACHE / name),
             "--git", address, *one.split()])  # fmt: skip


def _git(name: str, package: str) -> None:
    """A program in Go that has its dependencies in its repository."""
    address, inside = package.split()
    directory = CACHE / name
    source = directory / "source"
    _do(["git", "clone", "--quiet", "--depth=1", address, str(source)])
    _do(["go", "build", "-mod=vendor", "-o", str(directory / name), inside], source)


def _hand(name: str, package: str) -> None:
    """A program that its user installs; missing() found none in PATH."""
    raise BenchError(f"put its release into PATH: {package}")


def _deb(name: str, package: str) -> None:
    """A package that excludes another peer's: unpacked; what it needs is installed."""
    directory = CACHE / package
    directory.mkdir(parents=True, exist_ok=True)
    _do(["apt-get", "-qq", "download", package], directory)
    for file in directory.glob("*.deb"):
        needs = subprocess.check_output(["dpkg-deb", "-f", file, "Depends"], text=True)
        names = [need.split()[0] for need in needs.split(",")]
        _apt([name for name in names if name.startswith(("lib", "squid-"))])
        _do(["dpkg-deb", "-x", str(file), str(directory)])
        file.unlink()


_BY_SOURCE = {"deb": _deb, "pip": _pip, "npm": _npm, "go": _go, "maven": _maven,
              "goinstall": _goinstall, "cargo": _cargo, "git": _git, "hand": _hand}


def install_peers(names: list[str]) -> None:
    """Install the missing peers of those named, or all; continue after a failure."""
    missing = {
        name: peer.source.partition(":")
        for name, peer in ALL.items()
        if (not names or name in names) and peer.missing()
    }
    packages = sorted({p for kind, _, p in missing.values() if kind == "apt"})
    try:
        if packages:
            _apt(packages)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
    CACHE.mkdir(parents=True, exist_ok=True)
    for name, (kind, _, package) in missing.items():
        if kind == "apt" or not ALL[name].missing():    # another has the same
            continue
        try:
            _BY_SOURCE[kind](ALL[name].program.partition("/")[0], package)
        except (BenchError, OSError) as error:
            print(f"bench: {name}: {error}", file=sys.stderr)


def print_peers(names: list[str]) -> int:
    """Print each peer's version, configuration and command; 1 if one is missing."""
    status = 0
    for name, peer in ALL.items():
        if names and name not in names:
            continue
        missing = peer.missing()
        status |= bool(missing)
        state = f"skipped: {missing}" if missing else peer.read_version()
        print(f"{name:14} {state}")
        files = [f"bench/peers/{word.partition(' as ')[0]}" for word in peer.files]
        if not files:
            kind = peer.source.partition(":")[2].rpartition(":")[2].rpartition("/")[2]
            files = [f"bench/peers/{kind}/"]
        print(f"{'':14} {peer.about}; {peer.source}; {', '.join(files)}")
        print(f"{'':14} {peer.command}")
    return status
