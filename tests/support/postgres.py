"""A private PostgreSQL: on loopback and a unix socket, with a password."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.support.folders import SharedFolder
from tests.support.nginx import free_port
from tests.support.processes import children_of
from tests.support.wait import wait_until

# Those of CUTTHROUGH_POSTGRES, a directory, or of the newest version that is installed:
# Debian keeps the server's programs apart, a directory for each
PROGRAMS = Path(named) if (named := os.environ.get("CUTTHROUGH_POSTGRES")) else next((
    path.parent for path in sorted(
    Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None) or (
    Path(found).parent if (found := shutil.which("initdb")) else None)
PASSWORD = "s3cret-of-postgres"
USER = "postgres"                            # of the database


class Postgres:
    """Starts when constructed, in a directory of its own; `close` removes it. The
    server refuses to be root's, and its account may not enter pytest's directories."""

    def __init__(self, *options: str) -> None:
        """`options`: of the server's command, before which ours have no force."""
        assert PROGRAMS, "postgresql is not installed"
        self._folder = SharedFolder("cutthrough-pg-")
        self.base = base = self._folder.path
        self.port = free_port()
        self._made = 0
        self._options = options
        self.wrapper: list[str] = []         # before the server's command
        self.owner: str | None = None
        if os.getuid() == 0:
            self.owner = "postgres"          # Debian's package makes it
            shutil.chown(base, self.owner)
        (base / "password").write_text(PASSWORD)
        os.chmod(base / "password", 0o644)
        subprocess.run(
            [PROGRAMS / "initdb", "-D", base / "data", "-U", USER, "-A",
             "scram-sha-256", "--pwfile", base / "password", "-E", "UTF8",
             "--locale=C", "--no-sync"],
            check=True, capture_output=True, user=self.owner, cwd=base,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert PROGRAMS
        with open(self.base / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, PROGRAMS / "postgres", "-D", self.base / "data",
                 "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
                 "-k", self.base, "-c", "fsync=off", "-c", "max_connections=40",
                 "-c", "shared_buffers=32MB", *self._options],
                cwd=self.base, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                user=None if self.wrapper else self.owner, start_new_session=True)
        wait_until(self._answers, lambda: (self.base / "log").read_text())

    def _answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    def path_url(self, name: str = "postgres") -> str:
        return f"postgresql://{USER}:{PASSWORD}@/{name}?host={self.base}&port={self.port}"

    def make(self) -> str:
        """The URL of a new database."""
        self._made += 1
        self.ask(f"CREATE DATABASE base{self._made}")
        return self.url(f"base{self._made}")

    def ask(self, statement: str, url: str = "") -> list[tuple[Any, ...]]:
        with psycopg.connect(url or self.url(), autocommit=True,
                             connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def dump(self, url: str) -> bytes:
        """All of a database, as bytes."""
        return self._run("pg_dump", url)

    def back_up(self, url: str, path: Path) -> None:
        self._run("pg_dump", "--format=custom", f"--file={path}", url)

    def restore(self, url: str, path: Path) -> None:
        self._run("pg_restore", "--clean", f"--dbname={url}", str(path))

    @staticmethod
    def _run(program: str, *arguments: str) -> bytes:
        assert PROGRAMS
        return subprocess.run([PROGRAMS / program, *arguments], check=True,
                              capture_output=True).stdout

    def pause(self) -> None:
        """Accepts connections without an answer until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """To the process of each connection too."""
        if self.process is None:
            return
        for child in children_of(self.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)
        self.process.send_signal(number)

    def kill(self) -> None:
        """Stops at once, without a farewell to connections; `start` starts again."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(20)
            self.process = None

    def close(self) -> None:
        self.resume()
        self.kill()
        self._folder.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    if PROGRAMS is None:
        pytest.skip("postgresql is not installed")
    with contextlib.closing(Postgres()) as running:
        yield running


@pytest.fixture
def postgres(server: Postgres) -> Iterator[Postgres]:
    """A server that runs again after each test."""
    yield server
    server.resume()
    if server.process is None:
        server.start()


@pytest.fixture
def url_file(postgres: Postgres, tmp_path: Path) -> Path:
    """The file that names an empty database."""
    path = tmp_path / "url"
    path.write_text(postgres.make() + "\n")
    return path
