"""A client of the admin listener: HTTP over TCP or over a unix socket."""

import contextlib
import http.client
import json
import re
import socket
from pathlib import Path

from tests.support.client import Client
from tests.support.origin import Origin
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

TOKEN = "t0ken-of-the-tests"
DOOR = f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
TOLD = re.compile(r"admin listener on 127\.0\.0\.1:(\d+)[\n\"]")
SAMPLE = re.compile(r"^(cutthrough_\w+)(?:\{(.*)\})? (\S+)$", re.M)


class Operator:
    """Sends requests to the admin listener at `where`, a port of 127.0.0.1 or a path,
    from the address `source`."""

    def __init__(self, where: int | str, source: str = "127.0.0.1") -> None:
        self.where = where
        self.source = source
        self.seconds = 10.0             # of waiting for an answer

    def connection(self) -> http.client.HTTPConnection:
        port = self.where if isinstance(self.where, int) else 80
        connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=self.seconds, source_address=(self.source, 0))
        if isinstance(self.where, str):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(self.seconds)
            connection.sock.connect(self.where)
        return connection

    def ask(self, method: str, path: str, **fields: str) -> tuple[int, str]:
        connection = self.connection()
        try:
            connection.request(method, path, headers=fields)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> str:
        status, text = self.ask("GET", path)
        assert status == 200, (status, text)
        return text

    def connections(self, query: str = "") -> list[dict]:
        return json.loads(self.get(f"/connections?{query}"))["connections"]

    def cut(self, query: str) -> int:
        status, text = self.ask("DELETE", f"/connections?{query}", **AUTHORIZED)
        assert status == 200, (status, text)
        return json.loads(text)["cut"]

    def metrics(self) -> dict[str, float]:
        """Returns samples by `name` or `name{label="value"}`, without the prefix."""
        return {name.removeprefix("cutthrough_") + (f"{{{labels}}}" if labels else ""):
                float(value) for name, labels, value in SAMPLE.findall(
                    self.get("/metrics"))}

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/healthz")[0] == 200
        except OSError:
            return False


def operator_of(proxy: Proxy) -> Operator:
    """A client of the admin listener of `DOOR`."""
    ports = wait_until(lambda: TOLD.findall(proxy.stderr()), proxy.stderr)
    return Operator(int(ports[-1]))


def administered(opened: contextlib.ExitStack, directory: Path, loop: str,
                 text: str = "", token: str = TOKEN) -> tuple[Proxy, Operator]:
    """Starts a proxy with an admin listener on a free port, and a client of it."""
    proxy = opened.enter_context(Proxy(
        directory, loop=loop,
        config=f'{DOOR.replace(TOKEN, token)}{text}'))
    return proxy, operator_of(proxy)


def some_tunnels(proxy: Proxy, origin: Origin, dial, count: int) -> list[Client]:
    """Opens tunnels to an echoing origin, and sends five bytes through each."""
    tunnels = []
    for _ in range(count):
        tunnel = dial(proxy).tunnel(origin.authority)
        tunnel.send(b"hello")
        assert tunnel.read_exact(5) == b"hello"
        tunnels.append(tunnel)
    return tunnels
