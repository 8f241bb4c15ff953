"""`cutthrough inspect [-- COMMAND …]`: a proxy that opens every tunnel, and keeps all
that passes.

    COMMAND, or a shell's programs ──> cutthrough serve ──> origins
                                              └──> FILE ──> the page /traffic, `flows`

Its directory has the secrets of both listeners, because a shell's variables and a
browser's settings must stay valid when it starts again.
"""

import argparse
import errno
import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlencode

from cutthrough.ca.names import AuthorityError
from cutthrough.ca.store import CERTIFICATE, default_directory, write_file
from cutthrough.config.config import ConfigError
from cutthrough.config.settings import variable_name
from cutthrough.config.values import parse_listen, show_address
from cutthrough.storage.store import StoreError
from cutthrough.storage.stores import open_reader
from cutthrough.tools.behind import (
    NOT_FOUND,
    NotReady,
    Serving,
    check_config,
    environment,
    follow,
    make_bundle,
    outside,
)
from cutthrough.tools.database import FLOWS, default_flows

USER = "inspect"
LISTEN, ADMIN = "127.0.0.1:8888", "127.0.0.1:9090"
MOST_PORTS = 20                              # of either, from its first one on
# Options that `flags` gives, and `listeners`, which would be there beside them
OWN = ("policy", "user", "password", "listen", "listeners",
       "capture_file", "capture_url", "intercept_ca", "ca_certificate",
       "connect_ports", "address_floor", "admin", "admin_token")
# A breakpoint holds nothing until it is armed
_POLICY = """[[rules]]
name = "inspect"
action = "allow"
tls = "intercept"
pinned = "pass"
capture = "full"
breakpoint = "both"
"""


class Place:
    """The files of `cutthrough inspect`. Raises OSError and AuthorityError."""

    def __init__(self, directory: str, file: str | None, authority: str | None) -> None:
        folder = Path(directory).absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.authority = os.path.abspath(authority or default_directory())
        self.flows = os.path.abspath(file or folder / FLOWS)
        self.policy, self.bundle = folder / "policy.toml", folder / "bundle.pem"
        self.password_file, self.token_file = folder / "password", folder / "token"
        make_bundle(folder, self.authority, self.bundle)
        write_file(str(self.policy), _POLICY.encode(), 0o600, True)
        self.password = read_or_make(self.password_file)
        self.token = read_or_make(self.token_file)

    def flags(self, listen: str, admin: str | None, config: str | None) -> list[str]:
        """Of `cutthrough serve`."""
        options = {
            "listen": listen, "policy": self.policy, "user": USER,
            "password-file": self.password_file, "capture-file": self.flows,
            "intercept-ca": self.authority, "connect-ports": "any",
            "ca-certificate": os.path.join(self.authority, CERTIFICATE),
            "address-floor": "off",
            **({"admin": admin, "admin-token-file": self.token_file} if admin else {})}
        return [*(["-c", config] if config else []),
                *(f"--{name}={value}" for name, value in options.items())]

    def url(self, address: str) -> str:
        return f"http://{USER}:{self.password}@{address}"

    def exports(self, address: str) -> dict[str, str]:
        """The variables of a shell whose programs go through this proxy."""
        return environment({}, self.url(address), self.bundle)


def run(args: argparse.Namespace) -> int:
    """Runs the command, or serves until it is stopped; returns the exit status. Raises
    ConfigError."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    directory = args.directory or os.path.dirname(default_flows(os.environ))
    args.config_file = args.config_file or os.environ.get(variable_name("config"))
    check_config("inspect", args.config_file, OWN)
    try:
        place = Place(directory, args.file, args.ca)
        if command:
            if args.listen or args.env:
                raise ConfigError("command line", "inspect", "takes no --listen and no "
                                  "--env with a COMMAND: it gets a free port")
            return run_behind(place, command, args)
        if not args.env:
            args.listen = args.listen or find_port(LISTEN)
            args.admin = args.admin or find_port(ADMIN)
    except (OSError, AuthorityError, StoreError, NotReady) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    address = written(args.listen or LISTEN)
    if args.env:
        for name, value in place.exports(address).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    return serve(place, address, written(args.admin or ADMIN), args)


def serve(place: Place, address: str, admin: str, args: argparse.Namespace
          ) -> NoReturn:
    """Becomes `cutthrough serve`. Raises OSError."""
    own = {"--listen": address if address != LISTEN else None,
           "--directory": args.directory, "--ca": args.ca}
    words = ["cutthrough", "inspect", "--env", *(
        word for flag, value in own.items() if value for word in (flag, value))]
    print(describe(place, address, admin, shlex.join(words)), file=sys.stderr,
          flush=True)
    os.execve(sys.executable, [sys.executable, "-m", "cutthrough", "serve",
                               *place.flags(address, admin, args.config_file)],
              outside(os.environ))


def run_behind(place: Place, command: list[str], args: argparse.Namespace) -> int:
    path = shutil.which(command[0])
    if path is None:
        print(f"cutthrough: {command[0]}: not found", file=sys.stderr)
        return NOT_FOUND
    before = newest(place.flows)
    with tempfile.TemporaryDirectory(prefix="cutthrough-inspect-") as folder:
        serving = Serving(
            ["--access-log=off", *place.flags(
                "127.0.0.1:0", args.admin, args.config_file)],
            {}, Path(folder) / "errors")
        address = f"127.0.0.1:{serving.port}"
        try:
            status = follow(path, command, environment(
                os.environ, place.url(address), place.bundle))
        finally:
            died = serving.text.strip() if serving.has_ended else ""
            serving.stop()
    if died:
        print(f"cutthrough: the proxy has ended before the command: {died}",
              file=sys.stderr)
    verb = "cutthrough flows list"
    if place.flows != default_flows(os.environ):
        verb += f" --file {shlex.quote(place.flows)}"
    print(f"cutthrough: {newest(place.flows) - before} more in {place.flows}: {verb}",
          file=sys.stderr)
    return status or bool(died)


def describe(place: Place, address: str, admin: str, exports: str) -> str:
    """`exports`: the command that prints the variables of a shell."""
    return f"""\
Everything that goes through {place.url(address)}
is opened, and kept in {place.flows}

  see it    http://{admin}/traffic#{secrets_of(place)}
  a shell   eval "$({exports})"
  others    trust {os.path.join(place.authority, CERTIFICATE)}
            http://{admin}/ca has it, and how
"""


def secrets_of(place: Place) -> str:
    """The part of its address that the page reads, and removes."""
    return urlencode({"token": place.token, "user": USER, "password": place.password})


def find_port(address: str) -> str:
    """This address, or if a program listens there the one with the next free port,
    which is printed. Raises OSError."""
    host, first = parse_listen(address)
    for port in range(first, first + MOST_PORTS):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
        if port != first:
            print(f"cutthrough: {address} is in use: {host}:{port} takes its place",
                  file=sys.stderr)
        return show_address((host, port))
    return address                           # the start says that it is in use


def written(address: str) -> str:
    """As it is written. Raises ConfigError."""
    try:
        return show_address(parse_listen(address))
    except ValueError as error:
        raise ConfigError("command line", "inspect", f"{address}: {error}") from None


def newest(path: str) -> int:
    """The number of the newest flow. Raises StoreError."""
    if not os.path.exists(path):
        return 0
    reader = open_reader(path)
    try:
        return reader.newest()
    finally:
        reader.close()


def read_or_make(path: Path) -> str:
    """The secret in this file, which is made if it does not exist. Raises OSError."""
    if not path.exists():
        write_file(str(path), f"{secrets.token_urlsafe(18)}\n".encode(), 0o600, False)
    return path.read_text().strip()
