"""The sources of direct connections: whether this host and this process have them."""

import ipaddress
import socket
from collections.abc import Iterator

from cutthrough.config.sources import SourceRow
from cutthrough.doctor.finding import Case, Finding, Host
from cutthrough.generation.sources import missing_parts, refused_options

RTF_LOCAL = 0x80000000                       # <linux/ipv6_route.h>
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_sources(case: Case) -> Iterator[Finding]:
    for row in case.config.sources:
        findings = list(check_source(row, case))
        yield from findings or [
            Finding(f"source {row.name}", "ok", "can be used by this process")]


def check_source(row: SourceRow, case: Case) -> Iterator[Finding]:
    name = f"source {row.name}"
    for key, reason in refused_options(row):
        yield Finding(name, "fail", f"{key}: {reason}", "the capability",
                      "AmbientCapabilities= and PrivateUsers=no of the unit, or "
                      "leave the key out")
    for part, reason in missing_parts(row):
        yield Finding(name, "fail", f"{part}: {reason}", "exists on this host",
                      "`ip address` and `ip link` list what there is; requests from "
                      "this source end as source_unavailable")
    if row.prefix and not is_local(ipaddress.ip_network(row.prefix), case.host):
        yield Finding(name, "warn", f"{row.prefix} is not local", "answers arrive",
                      f"`ip route add local {row.prefix} dev lo`, and a route to it "
                      "on the router")


def is_local(network: Network, host: Host) -> bool:
    """Whether a local route has the network: else answers to it are not for us."""
    if network.version == 4:
        try:
            with socket.socket() as sock:
                sock.bind((str(network.network_address + 1), 0))
            return True
        except OSError:
            return False
    routes = (line.split() for line in host.lines("proc/net/ipv6_route"))
    return any(
        network.subnet_of(ipaddress.IPv6Network((int(row[0], 16), int(row[1], 16))))
        for row in routes if int(row[8], 16) & RTF_LOCAL and int(row[1], 16))
