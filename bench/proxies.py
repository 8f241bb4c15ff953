"""The proxies that are measured: yardsticks, cutthrough and its variants, the peers.

`PROXIES` is the table. A proxy that is not installed is skipped and reported as such.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

from bench.children import HERE, BenchError
from bench.origin import build_tool
from bench.peers import as_proxies
from bench.running import PASSWORD, USER, Proxy, Running, Target

TREE = HERE.parent


def start_direct(target: Target) -> Running:
    running = Running([], target, port=int(target.authority.rpartition(":")[2]))
    running.blind, running.ip = True, target.site.origin_ip
    return running


def start_tool(target: Target, *command: str, blind: bool = True) -> Running:
    """Start a program that prints "listening PORT" on its standard output."""
    running = Running(list(command), target, blind=blind)
    with running.closed_on_error():
        running.start(piped=True)
        assert running.process is not None and running.process.stdout is not None
        said = running.process.stdout.readline().split()
        if len(said) < 2:
            raise BenchError(f"{command[0]} did not start")
        running.port = int(said[1])
    return running


def _relay(
    mode: str, tool: str = "relay", blind: bool = True
) -> Callable[[Target], Running]:
    def start(target: Target) -> Running:
        listen = f"{target.site.proxy_ip}:0"
        return start_tool(
            target, build_tool(tool), listen, target.authority, mode, blind=blind
        )  # fmt: skip

    return start


def start_cutthrough(*flags: str) -> Callable[[Target], Running]:
    def start(target: Target) -> Running:
        running = Running([], target)
        directory = running.make_directory()
        command = [sys.executable, "-m", "cutthrough", "serve"]
        command += ["--listen", f"{target.site.proxy_ip}:0", "--workers", "1"]
        if "--users-file" not in flags:
            command += ["--user", USER, "--password", PASSWORD]
        command += ["--origin", f"http://{target.authority}"]
        if target.site.name != "loopback":  # where the floor is open by itself
            command += ["--address-floor", "off", "--connect-ports", "any"]
        places = {"@DIR@": str(directory), "@FEATURES@": str(HERE / "features")}
        for flag in flags:
            for name, place in places.items():
                flag = flag.replace(name, place)
            command.append(flag)
        running.command = command
        return listening(running)

    return start


def listening(running: Running) -> Running:
    """Start cutthrough; return it when it listens."""
    with running.closed_on_error():
        running.start(cwd=TREE)
        running.port = int(running.await_line(r"listening on [^ ,]*:(\d+)"))
    return running


def start_configured(workers: int, *lines: str) -> Callable[[Target], Running]:
    """Start it with DIR/proxy.toml as its only source: `lines` behind the usual ones.
    The file may be rewritten for a reload. `[[listeners]]` replaces `listen`, and
    @LISTEN@ stands for a free address."""

    def start(target: Target) -> Running:
        running = Running([], target)
        config = running.make_directory() / "proxy.toml"
        address = f"{target.site.proxy_ip}:0"
        usual = [
            f"workers = {workers}", f'user = "{USER}"', f'password = "{PASSWORD}"',
            'access_log = "off"',
        ]  # fmt: skip
        if LISTENER not in lines:
            usual.append(f'listen = ["{address}"]')
        if target.site.name != "loopback":  # where the floor is open by itself
            usual += ['address_floor = "off"', 'connect_ports = "any"']
        text = "".join(f"{line}\n" for line in (*usual, *lines))
        config.write_text(text.replace("@LISTEN@", address))
        running.command = [sys.executable, "-m", "cutthrough", "serve"]
        running.command += ["-c", str(config)]
        return listening(running)

    return start


def start_child_of(parent: Callable[[Target], Running]) -> Callable[[Target], Running]:
    """Start cutthrough with `parent` as its only way. The parent is not measured."""

    def start(target: Target) -> Running:
        behind = parent(target)
        with behind.closed_on_error():
            assert behind.directory is not None
            credentials = behind.directory / "credentials"
            credentials.write_text(f"{USER}:{PASSWORD}\n")
            credentials.chmod(0o600)
            running = start_configured(
                1, 'route = "behind"', "[parents.behind]",
                f'url = "http://{behind.ip}:{behind.port}"',
                f'credentials_file = "{credentials}"',
            )(target)  # fmt: skip
        running.behind = behind
        return running

    return start


def start_unused(target: Target) -> Running:
    """Start it with every feature of a rule, for hosts that no request names."""
    running = Running([], target)
    directory = running.make_directory()
    made = subprocess.run(
        [sys.executable, "-m", "cutthrough", "ca", "init", "--dir",
         str(directory / "ca")], cwd=TREE, capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode:
        raise BenchError(f"ca init: {made.stderr.strip()}")
    flags = {
        "listen": f"{target.site.proxy_ip}:0", "workers": 1, "user": USER,
        "password": PASSWORD, "origin": f"http://{target.authority}",
        "access-log": "off", "policy": HERE / "features" / "unused.toml",
        "address-floor": "off", "connect-ports": "any",
        "intercept-ca": directory / "ca", "capture-file": directory / "flows.db",
        "recording-directory": directory / "recordings",
    }  # fmt: skip
    running.command = [
        "env", f"PYTHONPATH={HERE / 'features'}:{TREE}", sys.executable, "-m",
        "cutthrough", "serve", *(f"--{name}={value}" for name, value in flags.items()),
    ]  # fmt: skip
    return listening(running)


def _compiler() -> str:
    lacks = [tool for tool in ("cc", "make") if shutil.which(tool) is None]
    return f"{' and '.join(lacks)} not installed" if lacks else ""


def _has_flags() -> Callable[[str], str]:
    """Return a function that says why a flag is missing in this build, or nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "serve", "--help"],
        cwd=TREE, capture_output=True, text=True,
    )  # fmt: skip

    def lacks(flag: str) -> str:
        if done.returncode:
            return "cutthrough is not built"
        return "" if f" {flag}" in done.stdout else f"this build has no {flag}"

    return lacks


LISTENER = "[[listeners]]"
UNUSED = "cutthrough-unused"
POLICY = ("--policy", "@FEATURES@/policy.toml", "--address-floor", "off")
FULL = (
    "--users-file", "@FEATURES@/users", *POLICY,
    "--access-log", "@DIR@/access.log", "--access-log-format", "json",
)  # fmt: skip
LOG_OFF = ("--access-log", "off")
_lacks = _has_flags()


def _variant(about: str, *flags: str) -> Proxy:
    missing = [_lacks(flag) for flag in flags if flag.startswith("--")]
    return Proxy(about, start_cutthrough(*flags), next(filter(None, missing), ""))


PROXIES = {
    "direct": Proxy("no proxy: what the machine can do", start_direct, blind=True),
    "direct-again": Proxy(
        "direct again: the difference between equals", start_direct, blind=True
    ),
    "relay": Proxy(
        "blind C relay, 64 KiB copies", _relay("copy"), _compiler(), blind=True
    ),
    "relay-splice": Proxy(
        "blind C relay, splice", _relay("splice"), _compiler(), blind=True
    ),
    "lean": Proxy(
        "lean C relay, one read and one write an event", _relay("copy", "lean"),
        _compiler(), blind=True,
    ),
    "relay-socks": Proxy(
        "the first relay, which answers SOCKS5 before",
        _relay("copy", "relay-socks", blind=False), _compiler(), socks=True,
    ),
    "cutthrough": _variant("one worker, access log off", *LOG_OFF),
    # Other ways in and out.
    "cutthrough-socks": Proxy(
        "called by SOCKS5 without credentials",
        start_configured(
            1, LISTENER, 'address = "@LISTEN@"', 'protocols = ["socks5"]',
            'auth = "none"',
        ),
        socks=True,
    ),
    "cutthrough-parent": Proxy(
        "through a parent, a second cutthrough",
        start_child_of(start_cutthrough(*LOG_OFF)),
    ),
    # What each feature costs: one thing changed.
    "cutthrough-log": _variant(
        "access log to a file", "--access-log", "@DIR@/access.log"
    ),
    "cutthrough-json": _variant(
        "access log to a file, JSON",
        *("--access-log", "@DIR@/access.log", "--access-log-format", "json"),
    ),
    "cutthrough-copy": _variant("without splice", *LOG_OFF, "--splice", "false"),
    "cutthrough-asyncio": _variant("on plain asyncio", *LOG_OFF, "--loop", "asyncio"),
    "cutthrough-users": _variant(
        "a users file with bcrypt, cached",
        *LOG_OFF, "--users-file", "@FEATURES@/users",
    ),
    "cutthrough-policy": _variant(
        "200 hosts and 2 networks are forbidden", *LOG_OFF, *POLICY
    ),
    UNUSED: Proxy("every feature of a rule, for other hosts", start_unused),
    # All at once: hashed users, a policy, a log in JSON, one worker.
    "cutthrough-full": _variant("users, policy and access log in JSON", *FULL),
    "cutthrough-full-2": _variant("the same, two workers", *FULL, "--workers", "2"),
    "cutthrough-full-crowd": _variant(
        "the same, more connections than half of nofile",
        *FULL, "--max-connections", "10500",
    ),
    "cutthrough-2": _variant("two workers", *LOG_OFF, "--workers", "2"),
    "cutthrough-auto": _variant(
        "a worker for each usable CPU", *LOG_OFF, "--workers", "auto"
    ),
    **as_proxies(),
}  # fmt: skip

#: Relays with one deliberate fault, for the test of `compare`; never part of a run
#: unless they are named.
FAULTS = {
    f"relay-{fault}": Proxy(
        f"the relay with a deliberate fault: {fault}", _relay("copy", f"relay-{fault}"),
        _compiler(), blind=True,
    )
    for fault in ("sleep", "leak", "copy", "status")
}  # fmt: skip
