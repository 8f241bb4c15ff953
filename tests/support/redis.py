"""A private redis-server: over TCP, TLS and a unix socket, with a password.

CUTTHROUGH_REDIS names the program of another one, a valkey-server perhaps.
"""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from tests.support.nginx import free_port
from tests.support.wait import wait_until

NAMED = os.environ.get("CUTTHROUGH_REDIS")
PROGRAMS = {name: NAMED if NAMED and Path(NAMED).name == name else shutil.which(name)
            for name in ("redis-server", "valkey-server")}
PROGRAM = NAMED or PROGRAMS["redis-server"] or PROGRAMS["valkey-server"]
PASSWORD = "s3cret-of-redis"


@functools.cache
def knows_tls(program: str) -> bool:
    """Does this program know TLS? It ends at once, for want of a certificate or of TLS.
    """
    ended = subprocess.run([program, "--port", "0", "--tls-port", "1", "--save", ""],
                           capture_output=True, text=True, timeout=60, check=False)
    return "tls-cert-file" in ended.stdout + ended.stderr


Backup = list[tuple[bytes, int, bytes]]


class Redis:
    """Starts when constructed, in its own directory; `close` stops it."""

    def __init__(self, base: Path, program: str | None = PROGRAM, *flags: str,
                 has_tls: bool = True) -> None:
        assert program, "redis-server is not installed"
        self.has_tls = has_tls and knows_tls(program)
        self.base, self.program = base, program
        self.ca = base / "ca.pem"
        self.port, self.tls_port = free_port(), free_port()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        own = authority.issue_cert("localhost")
        own.private_key_pem.write_to_path(str(base / "key.pem"))
        with open(base / "cert.pem", "wb") as file:
            for part in own.cert_chain_pems:
                file.write(part.bytes())
        self.flags = flags if not self.has_tls else (
            "--tls-port", str(self.tls_port), "--tls-auth-clients", "no",
            "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", *flags)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    @property
    def tls_url(self) -> str:
        if not self.has_tls:
            # Debian's has it; another may have been built without
            # Valkey from PyPI is built without it; Debian's redis-server has it
            pytest.skip("this Redis has no TLS")
        return f"rediss://:{PASSWORD}@localhost:{self.tls_port}/0?ssl_ca_certs={self.ca}"

    @property
    def path_url(self) -> str:
        return f"unix://:{PASSWORD}@{self.base}/socket"

    def start(self) -> None:
        """Starts, or starts again without the data."""
        with open(self.base / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--port", str(self.port), "--bind", "127.0.0.1",
                 "--unixsocket", "socket", "--requirepass", PASSWORD,
                 "--save", "", "--appendonly", "no", *self.flags],
                cwd=self.base, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, lambda: (self.base / "log").read_text())

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(
                ("127.0.0.1", self.port), 1):
            return (self.base / "socket").exists()
        return False

    def ask(self, *command: Any) -> Any:
        with redis.Redis.from_url(self.url, decode_responses=True) as client:
            return client.execute_command(*command)

    def backup(self) -> Backup:
        """All keys, with their lives in ms and their content."""
        with redis.Redis.from_url(self.url) as client:
            keys = client.keys("*")
            with client.pipeline() as pipe:
                for key in keys:
                    pipe.pttl(key).dump(key)
                answers = pipe.execute()
            return list(zip(keys, answers[::2], answers[1::2], strict=True))

    def restore(self, backup: Backup) -> None:
        """As if nothing had come since."""
        with redis.Redis.from_url(self.url) as client, client.pipeline() as pipe:
            pipe.flushall()
            for key, life, content in backup:
                pipe.restore(key, max(life, 0), content)
            pipe.execute()

    def pause(self) -> None:
        """Accepts connections without an answer until `resume`."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    close = kill


@contextlib.contextmanager
def cluster(bases: Iterable[Path]) -> Iterator[list[Redis]]:
    """A node in each directory, of a cluster that is ready; each has as many slots."""
    with contextlib.ExitStack() as running:
        nodes = [running.enter_context(contextlib.closing(Redis(
            base, PROGRAM, "--cluster-enabled", "yes", "--cluster-port",
            str(free_port()), "--cluster-require-full-coverage", "no"))
        ) for base in bases]
        share = 16384 // len(nodes)
        for number, node in enumerate(nodes):
            last = 16383 if node is nodes[-1] else (number + 1) * share - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.flags[-3])
        for node in nodes:
            for word in ("cluster_state:ok", "cluster_slots_ok:16384"):
                wait_until(lambda node=node, word=word: word in node.ask(
                    "CLUSTER", "INFO"), "a cluster")
        yield nodes
