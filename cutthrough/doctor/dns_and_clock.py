"""Name servers that answer, and the right time."""

import ctypes
import ipaddress
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from cutthrough.doctor.finding import Case, Finding, Host, Verdict

# The name that dnsdist queries for its health checks; it reveals nothing
ASKED = "a.root-servers.net"
RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP",
          5: "REFUSED"}
GOOD_RCODES = ("NOERROR", "NXDOMAIN")
SLOW_S = 0.5

STA_UNSYNC, TIME_ERROR = 0x40, 5


# Names

class Resolv(NamedTuple):
    """The content of resolv.conf."""

    servers: list[str]
    search: list[str]
    ndots: int


def read_resolv(host: Host) -> Resolv:
    servers, search, ndots = [], [], 1
    for line in host.lines("etc/resolv.conf"):
        words = line.split()
        match words:
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search", *names]:
                search = names
            case ["domain", name, *_]:
                search = [name]
            case ["options", *options]:
                for option in options:
                    name, _, value = option.partition(":")
                    if name == "ndots" and value.isdigit():
                        ndots = int(value)
    return Resolv(servers, search, ndots)


def check_names(case: Case) -> Iterator[Finding]:
    resolv = read_resolv(case.host)
    servers = list(case.config.resolvers) or resolv.servers
    source = "resolvers" if case.config.resolvers else "/etc/resolv.conf"
    if not servers:
        yield Finding("name servers", "warn", f"none in {source}", "one at least",
                      "--resolvers ADDRESS; without any, 127.0.0.1 is queried")
        servers = ["127.0.0.1"]
    share = case.config.dns_timeout / max(3, len(servers))
    yield from judge_servers(
        [(server, ask(server, share)) for server in servers], source)
    if resolv.search and resolv.ndots > 1:
        yield Finding(
            "search list", "note", f"{' '.join(resolv.search)} (ndots:{resolv.ndots})",
            "", "the proxy does not use it: clients must give the full name, such as "
            f"service.{resolv.search[0]}, which saves {len(resolv.search)} queries")
    elif resolv.search:
        yield Finding("search list", "ok", " ".join(resolv.search), "not used: the "
                      "proxy looks up full names only")


class Reply(NamedTuple):
    """`problem`: why there was no answer, else the response code."""

    problem: str
    seconds: float


def judge_servers(replies: list[tuple[str, Reply]], source: str) -> Iterator[Finding]:
    answering = sum(reply.problem in GOOD_RCODES for _, reply in replies)
    for server, (problem, seconds) in replies:
        name = f"name server {server}"
        wanted = f"an answer within {SLOW_S * 1000:g} ms"
        state = f"{problem} in {seconds * 1000:.0f} ms"
        verdict: Verdict = "ok" if seconds < SLOW_S else "note"
        advice = "" if verdict == "ok" else "slow: each new name waits for it"
        if problem not in GOOD_RCODES:
            verdict = "warn" if answering else "fail"
            advice = (f"remove it from {source}: each name waits for it first"
                      if answering else "no name server answers, so no name resolves: "
                      f"try dig @{server} {ASKED}; check the firewall and {source}")
        yield Finding(name, verdict, state, wanted, advice)


def ask(server: str, seconds: float, port: int = 53) -> Reply:
    """Sends one query over UDP."""
    query = struct.pack("!HHHHHH", secrets.randbelow(65536), 0x100, 1, 0, 0, 0)
    query += b"".join(bytes([len(label)]) + label.encode() for label in
                      ASKED.split(".")) + b"\0" + struct.pack("!HH", 1, 1)
    began = time.monotonic()
    try:
        address = ipaddress.ip_address(server)
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(max(seconds, 0.1))
            # A socket receives a refusal by ICMP, and packets of this server only, if
            # it is connected
            sock.connect((server, port))
            sock.send(query)
            reply = sock.recv(4096)
    except TimeoutError:
        return Reply("no answer", time.monotonic() - began)
    except (OSError, ValueError) as error:
        return Reply(str(getattr(error, "strerror", None) or error),
                     time.monotonic() - began)
    if len(reply) < 12 or reply[:2] != query[:2]:
        return Reply("not DNS", time.monotonic() - began)
    code = reply[3] & 15
    return Reply(RCODES.get(code, f"code {code}"), time.monotonic() - began)


# Time

class Timex(ctypes.Structure):
    """struct timex of adjtimex(2) up to its status; the rest is padding."""

    _fields_ = [("modes", ctypes.c_uint), ("offset", ctypes.c_long),
                ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
                ("esterror", ctypes.c_long), ("status", ctypes.c_int),
                ("rest", ctypes.c_char * 256)]


def check_clock(case: Case) -> Finding:
    try:
        synchronised, error_us = read_clock()
    except OSError as error:
        return Finding("clock", "note", f"cannot be read: {error.strerror}",
                       "synchronised", "in a container: run timedatectl on the host")
    return judge_clock(case, synchronised, error_us)


def judge_clock(case: Case, synchronised: bool, error_us: int) -> Finding:
    if synchronised:
        return Finding("clock", "ok", f"synchronised, within {error_us / 1000:.0f} ms",
                       "synchronised")
    needs = [what for what, is_so in (
        ("users that expire", any(u.expires for u in case.policy.users.values())),
        ("bytes a day", any(
            limit.bytes_per_day for limit in case.policy.limits.values())),
    ) if is_so]
    return Finding(
        "clock", "warn" if needs else "note", "not synchronised", "synchronised",
        "timedatectl set-ntp true  # or chrony; " + (
            f"{' and '.join(needs)} depend on it" if needs else
            "the log's times depend on it"))


def read_clock() -> tuple[bool, int]:
    """Whether the clock is synchronised, and its largest error in microseconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = Timex()
    result = libc.adjtimex(ctypes.byref(state))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result != TIME_ERROR and not state.status & STA_UNSYNC, state.maxerror
