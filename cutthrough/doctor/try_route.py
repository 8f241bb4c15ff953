"""`cutthrough route CONNECT HOST:PORT --try`: the way of a request, tried for real.

A proxy with the operator's configuration runs on a free loopback port and gets one
CONNECT. Its flight recorder has each step: the look-up, the parents, the dials, what
was sent and answered. The tunnel is closed without a byte in it. A worker that runs has
circuits and measurements of its own, which this proxy has not.

Exit status 0: connected; 1: refused, or it failed.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.doctor.trial import as_caller, read_reply
from cutthrough.embed import Embedded
from cutthrough.policy.source import Policy
from cutthrough.session.describe import clients, trace
from cutthrough.tools.dry_run import NOBODY, OK, printable
from cutthrough.tools.explain_target import read_target, remark

# Seconds behind the configuration's own deadlines
GRACE = 5.0
EVENTS = 1024

TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "resolved": lambda event: f"resolved: {event['addresses']} found",
    "parent": lambda event: f"through {event['name']}",
    "secured": lambda event: "TLS handshake done",
    "dialled": lambda event: "connected",
    "not dialled": lambda event: f"not connected: {event.get('error', 'no address')}",
    "up": lambda event: f"sent {event['bytes']} bytes",
    "answer": lambda event: f"answered: {event['bytes']} bytes",
    "deadline": lambda event: f"deadline: {event['state']}",
    "parent lost": lambda event: (
        f"failed: {event['reason']} {event['status'] or ''}".rstrip()),
}


class Step(msgspec.Struct, frozen=True):
    """One event; `ms` since the request."""

    ms: float
    text: str


class Trial(msgspec.Struct, kw_only=True):
    """The output of `--json`."""

    target: str
    user: str
    client: str
    steps: list[Step] = []
    parent: str = ""            # that the tunnel went through, or failed last; "": none
    peer: str = ""              # the destination's address; "": not known here
    status: int = 0
    outcome: str = OK


def run(config: Config, policy: Policy, request: tuple[str, str], user: str,
        client: str, as_json: bool) -> int:
    """Prints the steps; returns the exit status. Raises ConfigError, PolicyError."""
    method, target = request
    if method != "CONNECT":
        raise ConfigError("", "--try", "makes a tunnel: give CONNECT and host:port")
    if isinstance(read_target(method, target), str):
        raise ConfigError("", "TARGET", remark(method, target) or (
            f"{printable(target)!r} is not host:port"))
    result = asyncio.run(attempt(config, policy, target, user, client))
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        print("\n".join(map(printable, show(result))))
    return 0 if result.outcome == OK else 1


async def attempt(config: Config, policy: Policy, target: str, user: str = "",
                  client: str = "127.0.0.1") -> Trial:
    """Makes one tunnel and closes it. Raises ConfigError."""
    if client.startswith("unix:"):
        raise ConfigError("", "--client", "--try needs an address")
    # A PROXY header names the client, for rules and parents. Each step is to show
    config, policy, caller = as_caller(config, policy, user, client, named=True)
    config = msgspec.structs.replace(
        config, flight_recorder=EVENTS,
        parents=tuple(msgspec.structs.replace(parent, standby=0)
                      for parent in config.parents))
    result = Trial(target=target, user=caller.user, client=caller.client)
    async with Embedded(config, policy, discards=True) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            writer.write(proxy_header(caller.client)
                         + connect(target))
            result.status, reason = await asyncio.wait_for(
                read_reply(reader), GRACE + sum(
                    getattr(config, name) * (1 + len(config.parents))
                    for name in ("connect_timeout", "parent_timeout", "dns_timeout")))
            (session,) = clients(proxy.worker.context)
            take_events(result, trace(session, 0) or {})
        finally:
            writer.close()
    if result.status != 200:
        result.outcome = reason or "unknown"
    return result


def proxy_header(client: str) -> bytes:
    version = ipaddress.ip_address(client).version
    here = "127.0.0.1" if version == 4 else "::1"
    return f"PROXY TCP{version} {client} {here} 1 1\r\n".encode()


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


def take_events(result: Trial, about: dict[str, Any]) -> None:
    events = about.get("events", [])
    since = next((event["ms"] for event in events if event["event"] == "read"), 0.0)
    for event in events:
        if event["event"] in TEXTS and event["ms"] >= since:
            result.steps.append(Step(
                round(event["ms"] - since, 3), TEXTS[event["event"]](event)))
    through = [event["name"] for event in events if event["event"] == "parent"]
    result.parent = through[-1] if through else ""
    result.peer = about.get("peer") or ""


def show(result: Trial) -> list[str]:
    lines = [f"request  CONNECT {result.target}", f"user     {result.user or NOBODY}",
             f"client   {result.client}"]
    lines += [f"{step.ms:10.1f} ms  {step.text}" for step in result.steps]
    way = f"through {result.parent}" if result.parent else "direct"
    verdict = (f"connected  {way}" if result.outcome == OK
               else f"refused {result.status}  {result.outcome}")
    return [*lines, f"verdict  {verdict}"]
