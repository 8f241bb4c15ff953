#!/usr/bin/env python3
"""Installs, upgrades, removes and purges the packages of dist/ under a real systemd.

    make packages && deploy/check_packages.py

The root is this Debian by debootstrap, made once in build/roots, with what the deb
depends on. A copy of it is booted in a container whose network is `lo` alone. After the
installation the service runs as the unit says, and forwards a request; an upgrade keeps
the changed configuration, refuses no request and hands a tunnel over, though the files
are the next version's by then; a purge leaves nothing. Then the same for the rpm, whose
dependencies are dpkg's there: `rpm --nodeps`.

Needs root, debootstrap, systemd-nspawn and a Debian mirror.
"""

import contextlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from check_image import TREE, Root, bootstrap, host, newest, require
from check_unit import Load, Machine, Origin, wait_for

ROOTS = TREE / "build/roots"
# Of the administrator of the container, who gets the packages there
HOME = "root"
CONFIG = "etc/cutthrough/cutthrough.toml"
CHANGE = 'head_timeout = "7s"\n'
# A module of the next version does not fit a process of this one
NEXT = """
from cutthrough.process import files
assert files.expected() == files.identity()
"""
# The system writes these at any time, or lists its packages in them
SYSTEMS = ("run", "tmp", "proc", "sys", "dev", "root", "var/log/journal",
           "var/lib/dpkg", "var/lib/rpm", "var/lib/systemd", "var/cache", "var/backups",
           "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-")


def make_base(deb: Path) -> Path:
    """Makes the root of this Debian, with the dependencies of the deb, and rpm."""
    release = dict(line.split("=", 1) for line in Path(
        "/etc/os-release").read_text().splitlines() if "=" in line)
    path = ROOTS / release["VERSION_CODENAME"]
    if not (path / "made").exists():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        bootstrap(release["VERSION_CODENAME"], path)
        depends = subprocess.run(["dpkg-deb", "--field", deb, "Depends"], check=True,
                                 capture_output=True, text=True).stdout.strip()
        Root(path).run("apt-get update && apt-get install -y --no-install-recommends "
                       "systemd-sysv dbus procps man-db rpm && apt-get satisfy -y "
                       f"--no-install-recommends '{depends}' && apt-get clean")
        (path / "made").touch()
    return path


def repack(deb: Path, to: Path) -> None:
    """Makes a deb with a higher version, another module and another configuration."""
    tree = to.with_suffix("")
    host("dpkg-deb", "--raw-extract", deb, tree)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 1:"))
    with open(tree / CONFIG, "a") as file:
        file.write("# next\n")
    (module,) = tree.glob("opt/cutthrough/lib/*/*/cutthrough/worker/handover.py")
    with open(module, "a") as file:
        file.write(NEXT)
    for compiled in module.parent.glob("__pycache__/handover.*"):
        compiled.unlink()
    host("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, to)
    shutil.rmtree(tree)


def paths_of(root: Path) -> set[str]:
    """Returns all paths, without those that the system itself writes."""
    found = set()
    for top, folders, names in os.walk(root):
        inside = Path(top).relative_to(root)
        folders[:] = [name for name in folders if str(inside / name) not in SYSTEMS]
        found |= {str(inside / name) for name in (*folders, *names)}
    return found - {*SYSTEMS}


class Package:
    """One kind of package in a booted root."""

    def __init__(self, kind: str, machine: Machine, root: Path, files: list[str],
                 origin: int) -> None:
        self.kind, self.machine, self.root, self.files = kind, machine, root, files
        self.origin = origin

    def install(self, file: str) -> None:
        self.machine.run(*{
            "deb": ("dpkg", "--force-confdef", "--force-confold", "-i"),
            "rpm": ("rpm", "-U", "--nodeps", "--replacepkgs")}[self.kind], file)

    def remove(self) -> None:
        self.machine.run(*{"deb": ("dpkg", "-r"), "rpm": ("rpm", "-e", "--nodeps")}[
            self.kind], "cutthrough")

    def check(self) -> None:
        before = paths_of(self.root)
        self.install(self.files[0])
        load = self.check_running()
        self.check_upgrade(load)
        self.remove()
        assert self.machine.show("LoadState") == "not-found"
        assert load.ask() not in ("200", "407"), "nobody listens"
        left = paths_of(self.root) - before
        assert not [path for path in left if path.startswith(("opt", "usr"))], left
        if self.kind == "deb":
            assert CHANGE in (self.root / CONFIG).read_text(), "a removal keeps it"
            self.machine.run("dpkg", "-P", "cutthrough")
            left = paths_of(self.root) - before
            assert not left, left
            assert "cutthrough" not in (self.root / "etc/passwd").read_text()
            assert "cutthrough" not in (self.root / "etc/group").read_text()
        print(f"{self.kind}: after the removal there are left:", sorted(left))

    def check_running(self) -> Load:
        wait_for(lambda: self.machine.show("ActiveState") == "active", "the service")
        password = (self.root / "etc/cutthrough/password").read_text().strip()
        load = Load(8888, self.origin, "cutthrough", password)
        assert load.ask() == "200"
        inside = Path(f"/proc/{self.machine.init}", "root", "proc")
        status = (inside / self.machine.show("MainPID") / "status").read_text()
        user = self.machine.run("id", "-u", "cutthrough").strip()
        assert f"\nUid:\t{user}\t{user}\t" in status, status
        for page in ("cutthrough", "cutthrough.toml"):
            assert self.machine.run("man", "-w", page)
        print(f"{self.kind}:", self.machine.run("cutthrough", "version").strip())
        print(self.machine.run("cutthrough", "status", "--admin",
                               "unix:/run/cutthrough/admin").strip())
        return load

    def check_upgrade(self, load: Load) -> None:
        with open(self.root / CONFIG, "a") as file:
            file.write(CHANGE)
        main = self.machine.show("MainPID")
        tunnel = load.tunnel()
        with load.running():
            self.install(self.files[-1])
            wait_for(lambda: self.machine.show("MainPID") not in (main, "0"),
                     "an upgrade")
            wait_for(lambda: self.machine.show("ActiveState") == "active", "READY=1")
        print(f"{self.kind}: during the upgrade:", dict(load.answers))
        assert set(load.answers) == {"200"}
        assert CHANGE in (self.root / CONFIG).read_text(), "an upgrade keeps it"
        old = Path(f"/proc/{self.machine.init}", "root", "proc", main)
        wait_for(lambda: not old.exists(), "the old program's end")
        with tunnel:
            tunnel.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert tunnel.recv(65536)[9:12] == b"200", "the tunnel has not moved"


@contextlib.contextmanager
def booted(base: Path, kind: str, files: list[Path]) -> Iterator[tuple[Machine, Path]]:
    root = ROOTS / kind
    shutil.rmtree(root, ignore_errors=True)
    host("cp", "-a", base, root)
    for file in files:
        shutil.copy(file, root / HOME)
    machine = Machine(root, ROOTS / f"{kind}.log")
    try:
        yield machine, root
    except BaseException as error:
        print(getattr(error, "stderr", ""))
        print(machine.run("journalctl", "-b", "--no-pager", "-u", "cutthrough*"))
        raise
    finally:
        machine.stop()
        shutil.rmtree(root)


def main() -> int:
    require("debootstrap", "unshare", "ip", "systemd-nspawn")
    deb, rpm = newest("cutthrough_*.deb", "deb"), newest("cutthrough-*.rpm", "rpm")
    base = make_base(deb)
    if sys.argv[1:] != ["--alone"]:
        return subprocess.run(["unshare", "--net", "sh", "-c", 'ip link set lo up && '
                               'exec "$0" --alone', __file__], check=False).returncode
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    newer = ROOTS / "newer.deb"
    repack(deb, newer)
    for kind, files in {"deb": [deb, newer], "rpm": [rpm]}.items():
        with booted(base, kind, files) as (machine, root):
            inside = [f"/{HOME}/{file.name}" for file in files]
            Package(kind, machine, root, inside, origin.server_port).check()
    origin.shutdown()
    newer.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
