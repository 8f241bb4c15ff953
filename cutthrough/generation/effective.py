"""A configuration's effect on this host: `auto` resolved, and actual socket options.

The lines are TOML comments, so that the output of `cutthrough config` stays readable as
a configuration file.
"""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.values import show_address, show_cpus
from cutthrough.generation.checks import check_folder
from cutthrough.net.listener import BACKLOG, bound_address, listen, path_of
from cutthrough.net.options import SocketOption, read_options
from cutthrough.net.unix_listener import find_owner, inode_of
from cutthrough.process.cpus import count_workers, pinned_cpus
from cutthrough.process.descriptors import most_connections
from cutthrough.process.loops import choose_loop

# The sockets that listen on one address, or the error if they could not be opened
Group = Sequence[socket.socket] | str


def show_effective(config: Config, groups: Iterable[tuple[str, Group]]) -> str:
    """Returns the comment lines; `groups` has each address and its sockets."""
    workers = count_workers(config)
    most = config.max_connections or most_connections()
    ports = config.allowed_ports
    facts = {
        "workers": str(workers),
        "pin": show_slots(config),
        "loop": choose_loop(config.loop),
        "max_connections": f"{most} per worker, {most * workers} in total",
        "address_floor": "on" if config.floor else "off",
        "connect_ports": "any" if ports is None else ",".join(map(str, ports)),
    }
    lines = ["", "# In effect on this host"]
    lines += [f"# {name:<18} {value}" for name, value in facts.items()]
    for address, group in groups:
        lines += ["", *show_group(address, group, backlog_of(config, address))]
    return "\n".join(lines) + "\n"


def show_slots(config: Config) -> str:
    """Returns the CPU of each worker slot."""
    try:
        cpus = pinned_cpus(config)
    except ConfigError as error:             # a CPU went offline since the start
        return error.reason
    slots = [cpus[slot % len(cpus)] for slot in range(count_workers(config)) if cpus]
    if len(set(slots)) < len(slots):
        return ",".join(map(str, slots))
    return show_cpus(slots) or "off"


def backlog_of(config: Config, address: str) -> int:
    """Returns the backlog of the listener at this address. If its port is 0, the
    address may have another port by now."""
    anywhere = f"{address.rpartition(':')[0]}:0"
    backlogs = {listener.shown: listener.backlog for listener in config.all_listeners}
    return backlogs.get(address, backlogs.get(anywhere, 0)) or BACKLOG


def show_group(address: str, group: Group, backlog: int) -> list[str]:
    if isinstance(group, str):
        return [f"# listen {address}: {group}"]
    count = len(group)
    return [f"# listen {address}: {count} socket{'s' if count > 1 else ''}",
            f"#   {'option':<18} {'requested':>9} {'in effect':>10}",
            *(f"#   {show_option(option)}" for option in read_options(group, backlog))]


def show_option(option: SocketOption) -> str:
    requested = "-" if option.asked is None else str(option.asked)
    mark = "" if option.granted else "  (!)"
    shown = "/".join(map(str, option.in_force))
    return f"{option.name:<18} {requested:>9} {shown:>10}{mark}"


@contextlib.contextmanager
def open_trial_sockets(config: Config) -> Iterator[list[tuple[str, Group]]]:
    """Opens sockets as `serve` would, on free ports because `serve` may be running."""
    with contextlib.ExitStack() as opened:
        groups: list[tuple[str, Group]] = []
        for listener in config.all_listeners:
            path = path_of(listener.address)
            try:
                if path:
                    check_path(path, listener.owner)
                    continue
                group = listen((listener.address[0], 0), count_workers(config),
                               backlog=listener.backlog or BACKLOG)
            except OSError as error:
                groups.append((listener.shown, error.strerror or str(error)))
                continue
            for sock in group:
                opened.enter_context(sock)
            groups.append((listener.shown, group))
        yield groups


def check_path(path: str, owner: str) -> None:
    """Raises OSError if no socket can be made at this path for this owner."""
    find_owner(owner)
    check_folder(os.path.dirname(path))
    if inode_of(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "is there, and is not a socket", path)


def group_by_address(sockets: Iterable[socket.socket]) -> list[tuple[str, Group]]:
    """Groups open sockets by their address."""
    groups: dict[str, list[socket.socket]] = {}
    for sock in sockets:
        if sock.family == socket.AF_UNIX:    # it has none of the options
            continue
        groups.setdefault(show_address(bound_address(sock)), []).append(sock)
    return list(groups.items())
