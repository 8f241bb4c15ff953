"""Sources of direct connections: numbers for rules and idle pool, and checks."""

import errno
import os
import socket
from collections.abc import Iterator, Sequence

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.sources import SourceRow
from cutthrough.net.source_address import Source
from cutthrough.policy.source import Policy

MOST_NUMBERS = 65535                         # Hop.source


class SourceNumbers:
    """The numbers of a worker's sources. A number stands for the same addresses in
    every generation, because idle connections are pooled by it (R46)."""

    def __init__(self) -> None:
        self.by_number: dict[int, Source] = {}
        self._numbers: dict[SourceRow, int] = {}

    def copy(self) -> "SourceNumbers":
        """With the same numbers, for a generation that may be refused."""
        numbers = SourceNumbers()
        numbers.by_number, numbers._numbers = dict(self.by_number), dict(self._numbers)
        return numbers

    def number(self, rows: Sequence[SourceRow]) -> dict[str, int]:
        """Returns the number of each name. Raises ConfigError if there are no more."""
        return {row.name: self._number(
            msgspec.structs.replace(row, users=(), groups=())) for row in rows}

    def _number(self, row: SourceRow) -> int:
        if row not in self._numbers:
            if len(self._numbers) == MOST_NUMBERS:
                raise ConfigError("", "sources", f"more than {MOST_NUMBERS} in the "
                                  "life of a worker: restart it")
            self._numbers[row] = number = len(self._numbers) + 1
            self.by_number[number] = make_source(row)
        return self._numbers[row]


def make_source(row: SourceRow) -> Source:
    return Source(row.name, addresses=row.addresses, prefix=row.prefix,
                  choose=row.choose, device=row.device, mark=row.mark, dscp=row.dscp)


def names_of_users(config: Config, policy: Policy) -> dict[str, str]:
    """Returns the name of the source of each user that has one: its own, else that of
    its first group with one."""
    of_users = {who: row.name for row in config.sources for who in row.users}
    of_groups = {who: row.name for row in config.sources for who in row.groups}
    names = {}
    for user in (*policy.users, *([config.user] if config.user else [])):
        name = of_users.get(user) or next(
            (of_groups[group] for group in policy.groups_of(user)
             if group in of_groups), "")
        if name:
            names[user] = name
    return names


def refused_options(row: SourceRow) -> Iterator[tuple[str, str]]:
    """The keys that this process may not set, and why."""
    for key, needs, source in (
            ("mark", "CAP_NET_ADMIN (or, since Linux 5.17, CAP_NET_RAW)",
             Source(mark=row.mark)),
            ("device", "CAP_NET_RAW before Linux 5.7", Source(device=row.device))):
        failed = _try(source, 4)
        if failed in (errno.EPERM, errno.EACCES):
            yield key, f"this process may not set it: that needs {needs}"


def missing_parts(row: SourceRow) -> Iterator[tuple[str, str]]:
    """The missing part of a source on this host, and the reason."""
    tried = [(address, Source(addresses=(address,))) for address in row.addresses]
    if row.prefix:
        tried.append((row.prefix, Source(prefix=row.prefix)))
    if row.device:
        tried.append((row.device, Source(device=row.device)))
    for shown, source in tried:
        failed = _try(source, 6 if ":" in shown else 4)
        if failed and failed not in (errno.EPERM, errno.EACCES):
            yield shown, os.strerror(failed)


def _try(source: Source, family: int) -> int:
    """Prepares a socket; returns an errno, or 0."""
    try:
        with socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET) as sock:
            source.apply(sock.fileno(), family, 0)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
