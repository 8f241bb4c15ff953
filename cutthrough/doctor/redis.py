"""The Redis of a fleet: whether it answers, as whom, and by which certificates.

Asked only where `fleet_url` is set. That it is away is no failure: limits are then this
program's own.
"""

import asyncio
import ipaddress
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cutthrough.config.config import ConfigError
from cutthrough.doctor.finding import Case, Finding

if TYPE_CHECKING:
    from redis.asyncio import Redis

# A step of the fleet waits so long at most, and there are five a second
SLOW_S = 0.1


def check_fleet(case: Case) -> Iterator[Finding]:
    if not case.config.fleet_url:
        return
    try:
        from cutthrough.generation.redis_client import explain, make_client

        client = make_client(case.config)
    except ImportError as error:
        yield Finding("fleet", "fail", f"the package {error.name} is not installed", "",
                      "pip install 'cutthrough[redis]'")
        return
    except ConfigError as error:
        yield Finding("fleet", "fail", error.reason, "", "correct fleet_url")
        return
    tls = case.config.fleet_url.startswith("rediss:")
    try:
        seconds = asyncio.run(ping(client))
    except Exception as error:
        yield Finding("fleet", "warn", f"Redis {explain(error)[1]}", "an answer",
                      "limits are this program's own meanwhile: look at fleet_url, the "
                      "firewall" + (", and ssl_ca_certs in it" if tls else ""))
        return
    slow = seconds > SLOW_S
    yield Finding("fleet", "note" if slow else "ok",
                  f"Redis answers in {seconds * 1000:.0f} ms" + (
                      ", its certificate is good" if tls else ""),
                  f"{SLOW_S * 1000:g} ms", "nearer, or fleet_interval longer"
                  if slow else "")
    if not tls and not is_near(case.config.fleet_url):
        yield Finding("fleet transport", "note", "plain text", "rediss://",
                      "its password and who uses what can be read on the way")


async def ping(client: "Redis") -> float:
    """Seconds that an answer takes once there is a connection."""
    async with client:
        await client.ping()
        began = time.monotonic()
        await client.ping()
        return time.monotonic() - began


def is_near(url: str) -> bool:
    """Whether it is this host."""
    host = urlsplit(url).hostname
    if url.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
