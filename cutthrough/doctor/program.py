"""The program itself: its build, event loop, files, log and listeners."""

import ipaddress
import os
import platform
import socket
import stat
import sys
from collections.abc import Iterator
from shlex import quote

from cutthrough.config.config import SECRETS, Config, ConfigError
from cutthrough.config.log_target import read_target
from cutthrough.config.settings import flag_name, variable_name
from cutthrough.config.values import split_address
from cutthrough.doctor import built
from cutthrough.doctor.finding import Case, Finding
from cutthrough.generation.effective import backlog_of, open_trial_sockets
from cutthrough.generation.policy_files import load_users
from cutthrough.net.options import SocketOption, read_options
from cutthrough.process.loops import choose_loop, make_loop

# A lost segment is sent again within this time (haproxy's proxy-protocol.txt; R50)
RESENT_S = 3
SLOW_BUILDS = {
    "debug": "unoptimised, with assertions", "trace": "counts every line, for coverage",
    "asan": "with sanitizers", "fuzz": "counts every edge, for a fuzzer"}


# Fast paths

def check_speed(case: Case) -> Iterator[Finding]:
    yield judge_build(built.mode, built.flags, built.compiler, built.optimised)
    try:
        name, _ = make_loop(choose_loop(case.config.loop))
        slow = name == "asyncio" and case.config.loop == "auto"
        yield Finding("event loop", "note" if slow else "ok", name, "uvloop",
                      "pip install uvloop" if slow else "")
    except ConfigError as error:
        yield Finding("event loop", "fail", error.reason, "", "pip install uvloop, or "
                      "loop = \"auto\"")
    yield check_interpreter()
    yield from check_libssl(case)


def judge_build(mode: str, flags: str, compiler: str, optimised: bool) -> Finding:
    state = f"{mode}, {flags or 'default flags'}, {compiler}"
    fast = "release or native"
    if mode in SLOW_BUILDS:
        return Finding("build", "warn", f"{mode}: {SLOW_BUILDS[mode]}", fast,
                       "make build, or install the wheel")
    if not optimised:
        return Finding("build", "warn", f"{state}, not optimised", fast,
                       "build without -O0 in CFLAGS")
    return Finding("build", "ok", state, fast)


def check_interpreter() -> Finding:
    switches = [text for text, is_so in (
        ("-X dev", sys.flags.dev_mode),
        ("PYTHONASYNCIODEBUG", bool(os.environ.get("PYTHONASYNCIODEBUG"))),
        ("PYTHONMALLOC", "debug" in os.environ.get("PYTHONMALLOC", "")),
        ("a debug build", hasattr(sys, "gettotalrefcount")),
        ("tracing", sys.gettrace() is not None),
    ) if is_so]
    state = f"Python {platform.python_version()}"
    if switches:
        return Finding("interpreter", "warn", f"{state}, {', '.join(switches)}",
                       "plain", "unset the variables for debugging")
    return Finding("interpreter", "ok", state)


def check_libssl(case: Case) -> Iterator[Finding]:
    try:
        from cutthrough.net.tls.certificates import version
    except ImportError as error:
        yield Finding("TLS", "note", f"not available: {error}", "OpenSSL 3 or AWS-LC",
                      "make build, with libssl-dev installed")
        return
    yield judge_libssl(version())
    yield check_records(case.config)


def check_records(config: Config) -> Finding:
    from cutthrough.net.tls.trial import why_no_own_records

    if config.tls_records == "libssl":
        return Finding("TLS records", "ok", "libssl's, as configured")
    reason = why_no_own_records()
    return Finding(
        "TLS records", "note" if reason else "ok",
        f"libssl's: {reason}" if reason else "own, tried with this libssl", "own",
        "a connection at rest takes 14 to 22 KiB more" if reason else "")


def judge_libssl(version: str) -> Finding:
    """`version`: as libcrypto tells it."""
    slow = version.startswith(("OpenSSL 3.0.", "OpenSSL 3.1."))
    return Finding(
        "TLS", "note" if slow else "ok", version,
        "OpenSSL 3.2 or later, or AWS-LC" if slow else "",
        "make aws-lc, in the source: handshakes then take half of the CPU time"
        if slow else "")


# Listeners

def check_listeners(case: Case) -> Iterator[Finding]:
    config = case.config
    for listener in config.all_listeners:
        shown = listener.shown
        if config.demonstration:
            yield Finding(f"listen {shown}", "note", "demonstration credentials",
                          "a user of your own", "--user NAME --password-file FILE; now "
                          "everybody on this machine may use the proxy")
        elif listener.is_path:
            yield Finding(f"listen {shown}", "ok", f"mode {listener.mode:03o}"
                          + (f", owner {listener.owner}" if listener.owner else ""))
        elif listener.is_local:
            yield Finding(f"listen {shown}", "ok", "loopback")
        elif listener.needs_tls:
            yield Finding(f"listen {shown}", "ok", "from outside, by TLS")
        else:
            also, wanted = (" or by TLS", "protocols without tls"
                            ) if listener.certificates else ("", "certificates")
            yield Finding(f"listen {shown}", "note",
                          f"from outside, in plain text{also}",
                          f"{wanted}, or a private network", "others can read Basic "
                          "credentials on the network: docs/tls.md")
    yield from check_proxy_protocol(config)
    yield from check_ports(case)
    with open_trial_sockets(config) as groups:
        for address, group in groups:
            if isinstance(group, str):
                yield Finding(f"socket {address}", "fail", group, "can be opened",
                              "an address of this host: `ip address` lists them")
            else:
                yield judge_options(
                    address, read_options(group, backlog_of(config, address)))


def check_proxy_protocol(config: Config) -> Iterator[Finding]:
    if not any(listener.proxy_protocol for listener in config.all_listeners):
        return
    senders = [*config.proxy_protocol_from, *(
        text for listener in config.listeners for text in listener.proxy_protocol_from)]
    wide = [text for text in senders
            if (network := ipaddress.ip_network(text)).prefixlen
            < (8 if network.version == 4 else 16)]
    name = "PROXY protocol"
    if wide:
        yield Finding(name, "warn", f"from {', '.join(wide)}", "the load balancers",
                      "every host in proxy_protocol_from can name any client")
    else:
        yield Finding(name, "ok", f"from {', '.join(dict.fromkeys(senders))}")
    if config.head_timeout < RESENT_S:
        yield Finding("PROXY header", "warn", f"head_timeout {config.head_timeout:g} s",
                      f"{RESENT_S} s", "a header whose segment was lost comes later: "
                      f'head_timeout = "{RESENT_S}s"')


def check_ports(case: Case) -> Iterator[Finding]:
    path = "proc/sys/net/ipv4/ip_unprivileged_port_start"
    low = sorted({listener.address[1] for listener in case.config.all_listeners
                  if is_forbidden(*listener.address)})
    if low:
        yield Finding("privileged ports", "warn", ", ".join(map(str, low)),
                      f"{case.host.number(path) or 1024} and above", "this user may "
                      "not listen there: the socket unit of deploy/systemd opens them "
                      "as root")


def is_forbidden(host: str, port: int) -> bool:
    """Whether this user may not listen there. A capability says little: it may be of
    another user namespace than the network's."""
    if not port:
        return False
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        try:
            sock.bind((host, port))
        except PermissionError:
            return True
        except OSError:                      # in use, or not this host's
            return False
    return False


def judge_options(address: str, options: list[SocketOption]) -> Finding:
    wanting = [option for option in options if not option.granted]
    requested = [option for option in options if option.asked is not None]
    shown = ", ".join(f"{option.name} {'/'.join(map(str, option.in_force))}"
                      for option in (wanting or requested))
    wanted = ", ".join(f"{option.name} {option.asked}" for option in wanting)
    if not wanting:
        return Finding(f"socket {address}", "ok", shown)
    return Finding(f"socket {address}", "note", shown, wanted,
                   "sysctl -w net.core.somaxconn=4096" if wanting[0].name == "backlog"
                   else "cutthrough config --effective shows all of them")


def check_admin(case: Case) -> Iterator[Finding]:
    config = case.config
    if config.admin == "off":
        return
    token = "with" if config.admin_token else "without"
    state = f"{config.admin}, {token} token"
    name = "admin listener"
    if config.admin.startswith("unix:"):
        folder = os.path.dirname(config.admin.removeprefix("unix:"))
        if not os.path.isdir(folder):
            yield Finding(name, "fail", f"no directory {folder}", "", f"mkdir "
                          f"{quote(folder)}, or RuntimeDirectory= in the unit")
        else:
            yield Finding(name, "ok", state, "mode 660 of its owner and group")
    elif config.admin_exposed:
        yield Finding(name, "warn", state, "loopback or a unix socket",
                      "every host that reaches it sees users and destinations: let the "
                      f"firewall close port {split_address(config.admin)[1]} to all but"
                      " Prometheus")
    else:
        yield Finding(name, "ok", state)


# Files

def check_files(case: Case) -> Iterator[Finding]:
    config, settings = case.config, case.settings
    for secret, by_file in SECRETS.items():
        source, where = settings[secret].source, getattr(config, by_file)
        if where:
            yield from judge_file(where, by_file, True)
        elif secret.endswith("_url") and "@" not in getattr(config, secret):
            continue                         # an address without a password
        elif source == "command line":
            yield Finding(secret, "warn", "in a flag", "a file",
                          "ps shows it to all users of this host: "
                          f"{flag_name(secret)}-file FILE")
        elif source == "environment":
            yield Finding(secret, "note", "in the environment", "a file", "programs of "
                          f"the same user can read it: {variable_name(secret)}_FILE=…")
    if case.config_file:
        inside = any(settings[name].source == case.config_file
                     for name in SECRETS
                     if not name.endswith("_url") or "@" in getattr(config, name))
        yield from judge_file(case.config_file, "configuration", inside)
    if config.users_file:
        yield from judge_file(config.users_file, "users_file", True)
    if config.policy:
        # case.policy has the users of users_file too; no user is in both
        others = load_users(config.users_file) if config.users_file else {}
        own = case.policy.users.keys() - others.keys()
        yield from judge_file(config.policy, "policy", bool(own))
    yield from check_log(config.access_log)


def judge_file(path: str, name: str, secret: bool) -> Iterator[Finding]:
    try:
        mode = os.stat(path).st_mode
        above = os.stat(os.path.dirname(os.path.abspath(path))).st_mode
    except OSError as error:
        yield Finding(name, "fail", f"{path}: {error.strerror}")
        return
    if not stat.S_ISREG(mode):
        return                               # /dev/fd/3: a pipe of the parent process
    state = f"{path}, mode {stat.S_IMODE(mode):03o}"
    if mode & stat.S_IWOTH:
        yield Finding(name, "fail", state, "written by its owner only", f"chmod o-w "
                      f"{quote(path)}  # every user of this host can change it")
    elif above & stat.S_IWOTH and not above & stat.S_ISVTX:
        yield Finding(name, "fail", f"{os.path.dirname(os.path.abspath(path))}, mode "
                      f"{stat.S_IMODE(above):03o}", "written by its owner only",
                      "every user of this host can replace the file: chmod o-w")
    elif secret and mode & stat.S_IROTH:
        yield Finding(name, "warn", state, "not read by others", f"chmod o-r "
                      f"{quote(path)}  # it contains a secret")
    else:
        yield Finding(name, "ok", state)


def check_log(text: str) -> Iterator[Finding]:
    """Checks whether the log can be written; creates nothing, and sends nothing."""
    target = read_target(text)
    if target.kind == "file":
        yield from check_log_file(target.path)
        return
    said = "standard output" if text == "-" else text
    try:
        if target.path:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                probe.connect(target.path)
        yield Finding("access log", "ok", said)
    except OSError as error:
        yield Finding("access log", "fail", f"{target.path}: {error.strerror}", said,
                      "no program listens there: make sure that syslogd or journald "
                      "runs, and that the container has its socket")


def check_log_file(path: str) -> Iterator[Finding]:
    folder = os.path.dirname(os.path.abspath(path))
    place = path if os.path.exists(path) else folder
    if not os.path.isdir(folder):
        yield Finding("access log", "fail", f"no directory {folder}", "",
                      f"install -d -o USER {quote(folder)}, or LogsDirectory= in the "
                      "unit")
    elif os.path.isdir(path):
        yield Finding("access log", "fail", f"{path} is a directory", "a file")
    elif not os.access(place, os.W_OK | (os.X_OK if place == folder else 0)):
        yield Finding("access log", "fail", f"{place} cannot be written by this user",
                      "", f"chown USER {quote(place)}; check again as the proxy's user")
    else:
        room = os.statvfs(folder)
        free = room.f_bavail * 100 // max(room.f_blocks, 1)
        yield Finding("access log", "warn" if free < 5 else "ok",
                      f"{path}, {free} % of the disk free", "",
                      "rotate it (SIGUSR1 reopens): on a full disk lines are lost"
                      if free < 5 else "")
