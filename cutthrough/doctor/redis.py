"""The Redis of a fleet: whether it answers, accepts the password, and proves itself.

It is checked only if `fleet_url` is set. Its absence is no failure, because the limits
then count in this program alone.
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

# The most time that a step of the fleet waits; there are five steps a second
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
                      "until then limits count in this program alone: check fleet_url, "
                      "the firewall" + (", and ssl_ca_certs in the URL" if tls else ""))
        return
    slow = seconds > SLOW_S
    yield Finding("fleet", "note" if slow else "ok",
                  f"Redis answers in {seconds * 1000:.0f} ms" + (
                      ", its certificate is good" if tls else ""),
                  f"{SLOW_S * 1000:g} ms", "use a nearer Redis, or a longer "
                  "fleet_interval" if slow else "")
    if not tls and not is_near(case.config.fleet_url):
        yield Finding("fleet transport", "note", "plain text", "rediss://",
                      "others on the network can read its password and users' counts")


async def ping(client: "Redis") -> float:
    """The seconds that an answer takes over an open connection."""
    async with client:
        await client.ping()
        began = time.monotonic()
        await client.ping()
        return time.monotonic() - began


def is_near(url: str) -> bool:
    """Whether the URL's host is this host."""
    host = urlsplit(url).hostname
    if url.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
