"""A router with a proxy whose listeners take redirected connections."""

import contextlib
import json

import pytest

from tests.support.intercepting import NETWORKS, OTHERS, SERVERS, routed
from tests.support.origin import Origin, okay
from tests.support.parents import http
from tests.support.proxy import Proxy
from tests.support.stream import Stream

WAYS = ("redirect", "tproxy")
NAMES = [f"{name}={address}" for name, addresses in (
    ("here.test", [*SERVERS.values()]), ("other.test", [*OTHERS.values()]),
    ("both.test", [*OTHERS.values(), *SERVERS.values()]),
    ("bad.test", [*SERVERS.values()])) for address in addresses]

ANY = """default = "allow"
[[rules]]
action = "deny"
hosts = ["bad.test"]
"""


class Scene:
    """A router with a proxy; its listener takes connections to ports `port` of any
    server."""

    def __init__(self, router, proxy: Proxy, opened: contextlib.ExitStack) -> None:
        self.router, self.proxy, self._opened = router, proxy, opened

    def origin(self, script=okay, family: int = 4, port: int = 80) -> Origin:
        return self._opened.enter_context(
            Origin(script, SERVERS[family], port=port))

    def parent(self) -> Origin:
        """That of PARENT."""
        return self._opened.enter_context(Origin(http, port=3128))

    def ask(self, host: str, named: str | None = None, port: int = 80,
            method: str = "GET", target: str = "/", version: str = "HTTP/1.1"):
        """The response to a request for this name, on a connection to this address."""
        with Stream(self.router.dial(host, port)) as client:
            client.send(request(named, method, target, version))
            return client.read_response(method)


def request(named: str | None, method: str = "GET", target: str = "/",
            version: str = "HTTP/1.1") -> bytes:
    host = "" if named is None else f"Host: {named}\r\n"
    return f"{method} {target} {version}\r\n{host}\r\n".encode()


@pytest.fixture
def scene(tmp_path, opened):
    """Builds one: `how` is of WAYS."""
    def build(how: str, rules: str = ANY, ports: str = "80,443",
              config: str = "", hook: str = "") -> Scene:
        router = opened.enter_context(routed())
        (tmp_path / "policy.toml").write_text(rules)
        (tmp_path / "decisions.py").write_text(hook)
        if hook:
            config += '\npolicy_hook = "decisions:decide"'
        tables = "".join(f"""[[listeners]]
address = "{host}:3129"
transparent = "{how}"
auth = "none"
auth_none_from = {json.dumps(NETWORKS)}
""" for host in ("0.0.0.0", "[::]"))
        proxy = opened.enter_context(Proxy(tmp_path, config=f"""
listen = ["127.0.0.1:0"]
policy = "{tmp_path}/policy.toml"
address_floor = "off"
dns_overrides = {json.dumps(NAMES)}
{config}
{tables}""", env={"PYTHONPATH": str(tmp_path)}))
        router.intercept(how, "3129", "--in", "near", "--ports", ports)
        return Scene(router, proxy, opened)
    return build
