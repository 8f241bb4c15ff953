"""The admin listener as its users see it: HTTP over TCP or over a unix socket."""

import http.client
import json
import re
import socket

TOKEN = "t0ken-of-the-tests"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
SAMPLE = re.compile(r"^(cutthrough_\w+)(?:\{(.*)\})? (\S+)$", re.M)


class Operator:
    """Asks the admin listener at `where`: a port of 127.0.0.1, or a path."""

    def __init__(self, where: int | str) -> None:
        self.where = where

    def connection(self) -> http.client.HTTPConnection:
        port = self.where if isinstance(self.where, int) else 80
        made = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        if isinstance(self.where, str):
            made.sock = socket.socket(socket.AF_UNIX)
            made.sock.settimeout(10)
            made.sock.connect(self.where)
        return made

    def ask(self, method: str, path: str, **fields: str) -> tuple[int, str]:
        made = self.connection()
        try:
            made.request(method, path, headers=fields)
            answer = made.getresponse()
            return answer.status, answer.read().decode()
        finally:
            made.close()

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
        """Each sample's value, by `name` or `name{label="value"}`, unprefixed."""
        return {name.removeprefix("cutthrough_") + (f"{{{labels}}}" if labels else ""):
                float(value) for name, labels, value in SAMPLE.findall(
                    self.get("/metrics"))}
