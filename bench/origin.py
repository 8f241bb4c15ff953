"""The origin of every measurement: a private nginx and its own count of requests.

Owns a temporary directory with the configuration, the files and the access log;
never touches a system service. Beside nginx a small C server (sink.c) takes
uploads. `Origin` is a context manager: leaving it stops both and removes the
directory.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psutil

from bench.children import (
    HERE,
    BenchError,
    Site,
    end,
    free_port,
    spawn,
    tree_of,
    wait_for_port,
)

FILES = {"1k": 1 << 10, "16k": 16 << 10, "128k": 128 << 10, "1m": 1 << 20}
#: A document and forty resources, 768 KiB together: how many there are of which size.
PAGE_DOCUMENT = 24 << 10
PAGE_RESOURCES = {2: 12, 8: 10, 16: 8, 32: 6, 64: 3, 128: 1}  # KiB: count
#: nginx writes a log line when its response has been sent, the file 50 ms later.
LOG_SECONDS = 0.06

SERVER_OF_TLS = """    server {
        listen @IP@:@TLS_PORT@ ssl http2 backlog=4096;
        ssl_certificate origin.pem;
        ssl_certificate_key origin.key;
        root files;
    }"""


@functools.cache
def build_tool(name: str) -> str:
    """Return the path of bench/bin/`name`, compiled anew if its source is newer."""
    (HERE / "bin").mkdir(exist_ok=True)
    with open(HERE / "bin/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)        # several runs of the tests at a time
        made = subprocess.run(
            ["make", "-s", f"bin/{name}"], cwd=HERE, capture_output=True, text=True
        )
    if made.returncode:
        raise BenchError(f"make bin/{name}: {made.stderr.strip()}")
    return str(HERE / "bin" / name)


class Log:
    """A server's log of `STATUS BYTES PATH` lines, counted piece by piece."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_to = 0

    def count(
        self,
        expected: int,
        lengths: dict[str, int],
        cut: int = 0,
        strangers: bool = False,
    ) -> int:
        """Return how many 200 replies for these paths were logged since the last call.

        Waits for `expected` lines, and then until the file stops growing. At most `cut`
        of them may have a short body (wrk hangs up at the end of its time). Any other
        line raises; with `strangers` (hostile clients) it is ignored.
        """
        whole = {f"200 {size} {path}\n".encode() for path, size in lengths.items()}
        names = {f" {path}\n".encode() for path in lengths}
        lines, idle = 0, 0
        while idle < (3 if lines >= expected else 20):
            time.sleep(LOG_SECONDS)  # one buffer of the log later
            with self._file.open("rb") as log:
                log.seek(self._read_to)
                data = log.read()
            data = data[: data.rfind(b"\n") + 1]
            idle = 0 if data else idle + 1
            self._read_to += len(data)
            lines += (in_data := data.count(b"\n"))
            if len(whole) == 1 and in_data == data.count(next(iter(whole))):
                continue
            for line in data.splitlines(keepends=True):
                if line in whole:
                    continue
                if strangers:
                    lines -= 1
                    continue
                cut -= 1
                ours = line.startswith(b"200 ") and line[line.rfind(b" ") :] in names
                if cut < 0 or not ours:
                    raise BenchError(f"the origin logged {line.decode().strip()!r}")
        return lines

    def skip(self) -> None:
        """Forget what has been logged so far (the warm-up's requests)."""
        before = -1
        while before != self._file.stat().st_size:
            before = self._file.stat().st_size
            time.sleep(2 * LOG_SECONDS)  # two buffers, and nothing came
        self._read_to = before


class Origin:
    """nginx with index.html and FILES; `lengths` maps a path to its body length."""

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()
        nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if nginx is None:
            raise BenchError("nginx is not installed")
        self.ip = self.site.origin_ip
        self.directory = Path(tempfile.mkdtemp(prefix="bench-origin."))
        self._children: list[subprocess.Popen[str]] = []
        self.ports = {"web": free_port(), "tls": free_port(), "sink": 0}
        self.config = self.directory / "nginx.conf"
        try:
            self.lengths = self._make_files()
            self.config.write_text(self._fill((HERE / "origin.conf").read_text()))
        except BaseException:
            self.close()
            raise
        self.command = [nginx, "-p", str(self.directory), "-c", str(self.config)]
        self.logs = {
            "web": Log(self.directory / "access.log"),
            "sink": Log(self.directory / "sink.log"),
        }
        self.logs["tls"] = self.logs["web"]

    def _make_files(self) -> dict[str, int]:
        files = self.directory / "files"
        (files / "page").mkdir(parents=True)
        shutil.copy(HERE.parent / "index.html", files / "index.html")
        for name, size in FILES.items():
            (files / name).write_bytes(os.urandom(size))
        (files / "page" / "document").write_bytes(os.urandom(PAGE_DOCUMENT))
        sizes = [kib for kib, count in PAGE_RESOURCES.items() for _ in range(count)]
        for number, kib in enumerate(sizes):
            (files / "page" / f"{number}").write_bytes(os.urandom(kib << 10))
        lengths = {
            f"/{file.relative_to(files)}": file.stat().st_size
            for file in sorted(files.rglob("*"))
            if file.is_file()
        }
        # Large and small resources alternate, as they do in a real document.
        order = ["/page/document", *(f"/page/{n * 7 % 40}" for n in range(40))]
        self.pages = self.directory / "pages"
        self.pages.write_text("".join(f"{path} {lengths[path]}\n" for path in order))
        return {**lengths, "/up": FILES["1m"], "/both": FILES["1m"]}

    def _make_certificate(self) -> bool:
        if shutil.which("openssl") is None:
            return False
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
        command += " -nodes -days 2 -subj /CN=origin.invalid"
        command += " -addext subjectAltName=DNS:localhost,DNS:*.fresh.example"
        # VEY requires both usages
        command += " -addext keyUsage=digitalSignature,keyCertSign"
        command += " -addext extendedKeyUsage=serverAuth"
        command += " -keyout origin.key -out origin.pem"
        made = subprocess.run(command.split(), cwd=self.directory, capture_output=True)
        return made.returncode == 0

    def _fill(self, text: str) -> str:
        tls = SERVER_OF_TLS if self._make_certificate() else ""
        # As root, nginx would change to a user that cannot enter the directory.
        user = "user root;" if os.geteuid() == 0 else ""
        for name, value in {
            "TLS": tls, "USER": user, "IP": self.ip, "PORT": str(self.ports["web"]),
            "TLS_PORT": str(self.ports["tls"]),
        }.items():  # fmt: skip
            text = text.replace(f"@{name}@", value)
        return text

    @property
    def port(self) -> int:
        return self.ports["web"]

    @property
    def authority(self) -> str:
        return self.authority_of("web")

    def authority_of(self, kind: str) -> str:
        """Return host:port of the server of that kind: web, tls or sink."""
        return f"{self.ip}:{self.ports[kind]}"

    def __enter__(self) -> Origin:
        try:
            web = spawn(self.site.within("origin", self.command))
            self._children.append(web)
            wait_for_port(self.port, web)
            if shutil.which("cc") and shutil.which("make"):
                self._start_sink()
        except BaseException:
            self.close()
            raise
        return self

    def _start_sink(self) -> None:
        command = [build_tool("sink"), self.ip, "0", str(self.directory / "sink.log")]
        sink = spawn(self.site.within("origin", command), stdout=subprocess.PIPE)
        self._children.append(sink)
        assert sink.stdout is not None
        self.ports["sink"] = int(sink.stdout.readline().split()[1])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def count_requests(
        self,
        expected: int,
        path: str,
        cut: int = 0,
        kind: str = "web",
        strangers: bool = False,
    ) -> int:
        """Return how many 200 replies for `path` were logged since the last call.

        If `path` ends in a slash, it stands for all resources of the page scenario.
        """
        lengths = {path: self.lengths.get(path, 0)}
        if path == "/page/":
            pages = self.pages.read_text().split()[::2]
            lengths = {name: self.lengths[name] for name in pages}
        return self.logs[kind].count(expected, lengths, cut, strangers)

    def tree(self) -> list[psutil.Process]:
        """The servers' processes."""
        return [one for child in self._children for one in tree_of(child)]

    def skip_log(self, kind: str = "web") -> None:
        self.logs[kind].skip()

    def close(self) -> None:
        """Stop the servers and remove the directory. Idempotent."""
        try:
            for child in self._children:
                end(child, 10)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
