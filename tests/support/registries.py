"""Origins for package managers and git: files of an index, and a server of git's."""

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

from tests.support.origin import Connection, Script

NAME = "cutthrough-tiny"
WHEEL = "cutthrough_tiny-1.0-py3-none-any.whl"
METADATA = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n"
# The same commit each time, because its date is in the pushed bytes
COMMITTER = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
             for what, value in (("NAME", "test"), ("EMAIL", "test@localhost"),
                                 ("DATE", "2026-01-01T00:00Z"))}


def make_pip_index(root: Path, data: bytes) -> None:
    """/simple: a package with this data, by PEP 503."""
    folder = root / "simple" / NAME
    folder.mkdir(parents=True)
    info = "cutthrough_tiny-1.0.dist-info"
    files = {"cutthrough_tiny/__init__.py": b"", "cutthrough_tiny/data": data,
             f"{info}/METADATA": METADATA.encode(),
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\n"
                              b"Root-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, content in (*files.items(), (f"{info}/RECORD", record.encode())):
            wheel.writestr(name, content)
    digest = hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()
    (folder / "index.html").write_text(
        f'<!doctype html><a href="{WHEEL}#sha256={digest}">{WHEEL}</a>')


def make_npm_registry(root: Path, url: str, data: bytes) -> None:
    """/npm; `url` is that of `root`."""
    (root / "npm").mkdir()
    packed, version = io.BytesIO(), {"name": NAME, "version": "1.0.0"}
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("package.json", json.dumps(version).encode()),
                              ("data", data)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    (root / "npm" / f"{NAME}.tgz").write_bytes(packed.getvalue())
    digest = base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    dist = {"tarball": f"{url}/npm/{NAME}.tgz", "integrity": f"sha512-{digest}"}
    (root / "npm" / NAME).write_text(json.dumps({
        "name": NAME, "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**version, "dist": dist}}}))


def make_apt_repository(root: Path, data: bytes) -> bytes:
    """/apt, a flat one; returns the package."""
    folder, tree = root / "apt", root / "apt-tree"
    (tree / "DEBIAN").mkdir(parents=True)
    folder.mkdir()
    control = (f"Package: {NAME}\nVersion: 1.0\nArchitecture: all\n"
               "Maintainer: tests <tests@localhost>\nDescription: a file\n")
    (tree / "DEBIAN" / "control").write_text(control)
    (tree / "data").write_bytes(data)
    path = folder / f"{NAME}_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--build", "-Znone", str(tree), str(path)], check=True,
                   capture_output=True, timeout=60)
    package = path.read_bytes()
    (folder / "Packages").write_text(
        f"{control}Filename: ./{path.name}\nSize: {len(package)}\n"
        f"SHA256: {hashlib.sha256(package).hexdigest()}\n")
    return package


def make_apt_home(home: Path, source: str, proxy: str, authority: Path) -> str:
    """Directories of an apt of its own; returns its configuration's path."""
    for name in ("etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d",
                 "state/lists/partial", "cache/archives/partial", "log"):
        (home / name).mkdir(parents=True)
    (home / "status").write_text("")
    (home / "etc" / "sources.list").write_text(f"deb [trusted=yes] {source} ./\n")
    config = home / "apt.conf"
    config.write_text(f"""
Dir::Etc "{home}/etc"; Dir::State "{home}/state"; Dir::Cache "{home}/cache";
Dir::Log "{home}/log"; Dir::State::status "{home}/status";
Dir::Etc::trusted "{home}/etc/trusted.gpg";
Dir::Etc::trustedparts "{home}/etc/trusted.gpg.d";
APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "0";
Acquire::https::Proxy "{proxy}"; Acquire::https::CaInfo "{authority}";
""")
    return str(config)


def make_repository(root: Path) -> None:
    """/repo.git, a bare one, which takes pushes of all users."""
    bare = str(root / "repo.git")
    for words in (("init", "-q", "--bare", "-b", "main", bare),
                  ("-C", bare, "config", "http.receivepack", "true")):
        subprocess.run(["git", *words], check=True, timeout=30)


def git_server(root: Path) -> Script:
    """git's own program for a web server, below `root`."""
    def serve(conn: Connection) -> None:
        while request := conn.read_request():
            path, _, query = request.target.partition("?")
            done = subprocess.run(
                ["git", "http-backend"], input=request.body, capture_output=True,
                timeout=60, check=True, env={
                    "PATH": os.environ["PATH"], "HOME": str(root),
                    "GIT_CONFIG_NOSYSTEM": "1", "GIT_PROJECT_ROOT": str(root),
                    "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": request.method,
                    "PATH_INFO": path, "QUERY_STRING": query,
                    "CONTENT_TYPE": request.get("Content-Type") or "",
                    "CONTENT_LENGTH": str(len(request.body)),
                    "HTTP_CONTENT_ENCODING": request.get("Content-Encoding") or "",
                    "GIT_PROTOCOL": request.get("Git-Protocol") or ""})
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            status = b"200 OK"
            if head.startswith(b"Status: "):
                line, _, head = head.partition(b"\r\n")
                status = line.removeprefix(b"Status: ")
            conn.send(b"HTTP/1.1 %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s"
                      % (status, head, len(body), body))
    return serve
