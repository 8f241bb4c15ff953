#!/usr/bin/env python3
"""Runs deploy/Dockerfile without docker: its steps in roots that debootstrap made.

    deploy/check_image.py [--work DIRECTORY] [--base ROOT] [--keep]

Each FROM becomes a copy of a base root, each RUN a shell in it (chroot, namespaces of
its own), each COPY a copy. Then the image is run as its last lines say: the user, the
environment, process 1, no capability, a root that is read-only. Prints what the image
has beyond its base, and ends with 1 where that is over 125 MB or the program does not
serve, drain and leave with 0.

Needs root, debootstrap, util-linux and a Debian mirror.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
DOCKERFILE = TREE / "deploy/Dockerfile"
# 101 MB, before exports of spans (9), lxml and Jinja2 (8) and PKCS#11 (2) came in
MOST_BYTES = 125_000_000
# What each extra that `serve` may need brings; a test compares them with pyproject.toml
EXTRAS = {
    "redis": ("redis.asyncio",),
    "postgres": ("psycopg",),
    "codings": ("brotli", "backports.zstd"),
    "recording": ("jinja2", "re2", "lxml.etree"),
    "grpc": ("google.protobuf.json_format",),
    "pkcs11": ("pkcs11",),
    "otlp": ("opentelemetry.exporter.otlp.proto.http.trace_exporter",),
}
# Trusted while a step runs: the host may see the world through a proxy of its own.
CA_BUNDLE = "/run/host-ca.crt"
# What Debian's slim images leave out of every package
LEFT_OUT = ("doc", "man", "info", "groff", "lintian", "linda", "locale")
SLIM = "".join(f"path-exclude /usr/share/{name}/*\n" for name in LEFT_OUT)


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile: (name, rest), with continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            yield name.upper(), " ".join(rest.split())


def context() -> Iterator[Path]:
    """The files that docker takes, from the tree: those of .dockerignore's exceptions,
    without what its last lines leave out of them."""
    lines = (TREE / ".dockerignore").read_text().split()
    left_out = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    for line in lines:
        for top in TREE.glob(line[1:]) if line.startswith("!") else ():
            for path in top.rglob("*") if top.is_dir() else [top]:
                name = path.relative_to(TREE)
                if path.is_file() and not any(
                        fnmatch(part, pattern) for part in name.parts
                        for pattern in left_out):
                    yield name


def host(*argv: str | Path) -> None:
    subprocess.run(argv, check=True)


# Debian's packages, by their programs
PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "ip": "iproute2",
            "systemd-nspawn": "systemd-container"}


def require(*programs: str) -> None:
    """Ends if this is not root, or a program is missing."""
    if os.geteuid() != 0:
        raise SystemExit(f"{sys.argv[0]}: needs root, for roots and their mounts")
    if missing := [PROGRAMS[name] for name in programs if not shutil.which(name)]:
        raise SystemExit(f"{sys.argv[0]}: please install what Debian calls: "
                         f"{' '.join(missing)}")


def newest(kind: str, verb: str) -> Path:
    """The last that was made of these files in dist/."""
    files = sorted(TREE.glob(f"dist/{kind}"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise SystemExit(f"{sys.argv[0]}: no {kind} in dist/: make {verb}")
    return files[-1]


def suite_of(image: str) -> str:
    suite = re.fullmatch(r"debian:(\w+)-slim(@sha256:[0-9a-f]+)?", image)
    assert suite, f"{image}: only debian:SUITE-slim can be made"
    return suite[1]


def bootstrap(suite: str, root: Path, *options: str) -> None:
    """A root of Debian."""
    if " " in str(root):
        raise SystemExit(f"{sys.argv[0]}: debootstrap takes no path with a space, as "
                         f"{str(root)!r} has one")
    host("debootstrap", "--variant=minbase", *options, suite, root)


def make_base(image: str, root: Path) -> None:
    """debian:SUITE-slim, as near as debootstrap comes to it."""
    bootstrap(suite_of(image), root)
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(SLIM)
    for name in LEFT_OUT:
        shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
    host("sh", "-c", f"rm -rf {shlex.quote(str(root))}/var/lib/apt/lists/* "
         f"{shlex.quote(str(root))}/var/cache/apt/*")


# A mount namespace of its own: what is mounted here goes with the shell.
ENTER = """
set -eu
mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
root=$1; shift
exec chroot "$root" "$@"
"""


class Root:
    """One stage of the image, as a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workdir = "/"

    def run(self, command: str) -> None:
        bundle = self.path / CA_BUNDLE.lstrip("/")
        resolv = self.path / "etc/resolv.conf"
        shutil.copy("/etc/resolv.conf", resolv)
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", bundle)
        passed = {key: value for key, value in os.environ.items()
                  if key.lower().endswith("_proxy") or key.startswith("PIP_INDEX")}
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                   "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive",
                   "PIP_CERT": CA_BUNDLE, "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                   **passed}
        try:
            subprocess.run(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                 ENTER, "sh", self.path, "sh", "-c", f"cd {self.workdir} && {command}"],
                check=True, env=environ)
        finally:
            bundle.unlink()
            resolv.write_text("")

    def copy(self, source: str, target: str, stage: "Root | None") -> None:
        into = self.path / target.lstrip("/")
        into.mkdir(parents=True, exist_ok=True)
        if stage is not None:
            shutil.copytree(stage.path / source.lstrip("/"), into, symlinks=True,
                            dirs_exist_ok=True)
            return
        assert source == ".", source
        for name in context():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, into / name)


class Image:
    """What a Dockerfile makes: its last stage, and how that is to be run."""

    def __init__(self, work: Path, base: Path | None) -> None:
        self.work, self.base = work, base
        self.values: dict[str, str] = {}
        self.environ: dict[str, str] = {}
        self.user = ""
        self.argv: list[str] = []
        self.stages: dict[str, Root] = {}
        self.root = Root(work)

    def build(self) -> None:
        for name, rest in steps(DOCKERFILE.read_text()):
            print(f"-- {name} {rest}", flush=True)
            match name:
                case "ARG":
                    key, _, value = rest.partition("=")
                    self.values[key] = value
                case "FROM":
                    self.begin(*rest.split(" "))
                case "RUN":
                    self.root.run(rest)
                case "WORKDIR":
                    self.root.workdir = rest
                case "COPY":
                    words = rest.split(" ")
                    stage = None
                    if words[0].startswith("--from="):
                        stage = self.stages[words.pop(0).removeprefix("--from=")]
                    self.root.copy(*words, stage)
                case "ENV":
                    words = shlex.split(rest)
                    self.environ |= dict(word.split("=", 1) for word in words)
                case "USER":
                    self.user = rest
                case "ENTRYPOINT" | "CMD":
                    self.argv += re.findall(r'"([^"]*)"', rest)
                case "EXPOSE" | "STOPSIGNAL" | "HEALTHCHECK":
                    pass                    # for whoever runs it
                case _:
                    raise SystemExit(f"{name}: this script does not know that")

    def begin(self, image: str, _as: str = "", name: str = "last") -> None:
        if image.startswith("$"):
            image = self.values[image[1:]]
        if self.base is None:
            self.base = self.work / "base"
            make_base(image, self.base)
        path = self.work / name
        host("cp", "-a", self.base, path)
        self.stages[name] = self.root = Root(path)

    def added(self) -> int:
        """Bytes of files that the base does not have, or has otherwise."""
        assert self.base is not None
        total = 0
        for top, _, names in os.walk(self.root.path):
            for name in names:
                path = Path(top, name)
                status = path.lstat()
                twin = self.base / path.relative_to(self.root.path)
                if stat.S_ISREG(status.st_mode) and not same(status, twin):
                    total += status.st_size
        return total

    def start(self, errors: int) -> subprocess.Popen[bytes]:
        """Runs it as docker would with --read-only --cap-drop ALL."""
        uid, _, gid = self.user.partition(":")
        password = self.root.path / "run/secrets/password"
        password.parent.mkdir(exist_ok=True)
        password.write_text("of-the-image-check\n")
        inside = ["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups",
                  "--bounding-set=-all", "--no-new-privs", *self.argv]
        script = ('mount --bind "$1" "$1"; mount -t proc proc "$1/proc"\n'
                  'mount --rbind /dev "$1/dev"\n'
                  f'mount -t tmpfs -o uid={uid} tmpfs "$1/run/cutthrough"\n'
                  'mount -o remount,bind,ro "$1"; root=$1; shift\n'
                  f'exec {shutil.which("chroot")} "$root" "$@"')
        return subprocess.Popen(
            [str(shutil.which("unshare")), "--mount", "--pid", "--fork", "--kill-child",
             "sh", "-euc", script, "sh", self.root.path, *inside],
            env={**self.environ, "CUTTHROUGH_LISTEN": "127.0.0.1:0"}, stderr=errors)


def same(status: os.stat_result, twin: Path) -> bool:
    try:
        other = twin.lstat()
    except OSError:
        return False
    return status.st_size == other.st_size and status.st_mtime_ns == other.st_mtime_ns


def check_running(image: Image) -> None:
    reading, writing = os.pipe()
    process = image.start(writing)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as errors:
            line = ""
            while " listening on " not in line:
                line = errors.readline()
                assert line, f"it ended with {process.wait(10)} before it served"
                print(line, end="")
            port = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert port
            program = children_of(process.pid)[0]
            check_confinement(program)
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{port[1]}"}))
            try:
                opener.open("http://example.invalid/", timeout=10)
            except urllib.error.HTTPError as error:
                assert error.code == 407, error.code
            healthy = enter(program, "healthcheck").returncode == 0
            knows = "admin =" in enter(program, "cutthrough", "config").stdout
            assert healthy == knows, f"healthcheck: {healthy}, admin option: {knows}"
            print(f"407 without credentials; healthcheck passes: {healthy}")
            modules = ", ".join(name for names in EXTRAS.values() for name in names)
            imported = enter(program, "python3", "-c", f"import {modules}")
            assert imported.returncode == 0, imported.stderr
            os.kill(program, signal.SIGTERM)
            assert process.wait(20) == 0, "a drain ends with 0"
    finally:
        process.kill()
        process.wait()


def enter(program: int, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command in the container, as its user (as `docker exec`)."""
    environ = dict(pair.split("=", 1) for pair in Path(
        f"/proc/{program}/environ").read_text().split("\0") if pair)
    return subprocess.run(
        ["nsenter", "--target", str(program), "--mount", "--pid", "--root", "--wd=/",
         "--setuid", "65532", "--setgid", "65532", *argv],
        env=environ, capture_output=True, text=True, timeout=20, check=False)


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def check_confinement(program: int) -> None:
    status = dict(line.split(":\t", 1) for line in Path(
        f"/proc/{program}/status").read_text().splitlines() if ":\t" in line)
    assert status["NSpid"].split()[-1] == "1", "it is process 1"
    assert status["Uid"].split() == ["65532"] * 4
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0
    refused = enter(program, "touch", "/opt/cutthrough/x")
    assert "Read-only file system" in refused.stderr, refused


def main() -> int:
    parser = argparse.ArgumentParser(description="run deploy/Dockerfile without docker")
    parser.add_argument("--work", type=Path, help="where to build; must not exist")
    parser.add_argument("--base", type=Path, help="a base root that is there already")
    parser.add_argument("--keep", action="store_true", help="leave the roots there")
    given = parser.parse_args()
    require("unshare", *([] if given.base else ["debootstrap"]))
    work = given.work or Path(tempfile.mkdtemp(prefix="cutthrough-image-"))
    work.mkdir(exist_ok=True)
    image = Image(work, given.base)
    try:
        image.build()
        added = image.added()
        print(f"beyond the base: {added / 1e6:.1f} MB of at most {MOST_BYTES / 1e6:g}")
        check_running(image)
    finally:
        if not given.keep:
            shutil.rmtree(work)
    return 0 if added <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
