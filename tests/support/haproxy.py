"""A private HAProxy in front of the proxy: each of its ports sends another header."""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.nginx import free_port
from tests.support.wait import wait_until

PROGRAM = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")

CONFIG = """
global
    maxconn 200
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s
# Else it makes this section of resolv.conf, and connects a socket to each name server
resolvers default
    nameserver none 127.0.0.1:9
"""
LISTEN = """
listen {name}
    bind 127.0.0.1:{port}
    server proxy 127.0.0.1:{to} {options}
"""


class HAProxy:
    """Forwards to the local port `to`, with these options of its `server` line by name;
    stopped by `close`."""

    def __init__(self, base: Path, to: int, options: Mapping[str, str]) -> None:
        assert PROGRAM, "haproxy is not installed"
        base.mkdir(parents=True, exist_ok=True)
        self.ports = {name: free_port() for name in options}
        config = base / "haproxy.cfg"
        config.write_text(CONFIG + "".join(
            LISTEN.format(name=name, port=self.ports[name], to=to, options=text)
            for name, text in options.items()))
        self.log = base / "haproxy.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "-db", "-f", config], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT)
        wait_until(self._answers, lambda: f"haproxy: {self.log.read_text()}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", max(self.ports.values()))) == 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
