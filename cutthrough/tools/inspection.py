"""`cutthrough inspect [-- COMMAND …]`: a proxy that opens every tunnel, and keeps all
that passes.

    COMMAND, or a shell's programs ──> cutthrough serve ──> origins
                                              └──> FILE ──> the page /traffic, `flows`

Its directory has the secrets of both listeners, because a shell's variables and a
browser's settings must stay valid when it starts again.
"""

import argparse
import contextlib
import errno
import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import urlencode

from cutthrough.ca.names import AuthorityError
from cutthrough.ca.roots import find_sources, merge, parse_certificates
from cutthrough.ca.store import CERTIFICATE, default_directory, write_file
from cutthrough.ca.verb import print_exports
from cutthrough.capture.query import QueryError
from cutthrough.config.config import ConfigError
from cutthrough.config.database import is_url
from cutthrough.config.files import FileError, read_file
from cutthrough.config.settings import ANNOUNCED
from cutthrough.config.values import parse_listen, show_address
from cutthrough.exchange.flow import Flow
from cutthrough.storage.store import StoreError
from cutthrough.storage.stores import open_reader
from cutthrough.tools.behind import (
    NOT_FOUND,
    NotReady,
    Serving,
    environment,
    follow,
    make_bundle,
    outside,
)
from cutthrough.tools.database import FLOWS, default_flows, find_database
from cutthrough.tools.desktop import Desktop, DesktopError, desktop_values
from cutthrough.tools.variables import applicable, check_file, usable_file

VERB = USER = "inspect"
LISTEN, ADMIN = "127.0.0.1:8888", "127.0.0.1:9090"
PASSWORD, TOKEN, POLICY = "password", "token", "policy.toml"
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
        self.policy, self.bundle = folder / POLICY, folder / "bundle.pem"
        self.password_file, self.token_file = folder / PASSWORD, folder / TOKEN
        make_bundle(folder, self.authority, self.bundle)
        write_file(str(self.policy), _POLICY.encode(), 0o600, True)
        self.password = read_or_make(self.password_file)
        self.token = read_or_make(self.token_file)

    def flags(self, listen: str, admin: str | None, origin_ca: str | None,
              credentials: bool) -> list[str]:
        """Returns the flags of `cutthrough serve`. `origin_ca`: a file in PEM, trusted
        beside the system's. Raises OSError, FileError and AuthorityError."""
        options = {
            "listen": listen, "policy": self.policy, "user": USER,
            "password-file": self.password_file, "capture-file": self.flows,
            "intercept-ca": self.authority, "connect-ports": "any",
            "ca-certificate": os.path.join(self.authority, CERTIFICATE),
            "address-floor": "off",
            **({"admin": admin, "admin-token-file": self.token_file} if admin else {}),
            **({"origin-ca": self.trusted(origin_ca)} if origin_ca else {}),
            **({"capture-credentials": "true"} if credentials else {})}
        return [f"--{name}={value}" for name, value in options.items()]

    def trusted(self, origin_ca: str) -> Path:
        """A file of the system's authorities and these: the option `origin_ca` replaces
        the system's, and a command asks other origins too. Raises AuthorityError."""
        certificates = parse_certificates(read_file(origin_ca))
        if not certificates:
            raise AuthorityError(f"--origin-ca: {origin_ca}: has no certificate in PEM")
        path = self.bundle.with_name("origins.pem")
        data, _ = merge(certificates[0], [
            origin_ca, *find_sources("", outside(os.environ))])
        write_file(str(path), data, 0o644, True)
        return path

    def url(self, address: str) -> str:
        return f"http://{USER}:{self.password}@{address}"

    def exports(self, address: str) -> dict[str, str]:
        """The variables of a shell whose programs go through this proxy."""
        return environment({}, self.url(address), self.bundle)


def run(args: argparse.Namespace) -> int:
    """Runs the command, or serves until it is stopped; returns the exit status. Raises
    ConfigError."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if args.undo_system:
        return undo_system()
    directory = args.directory or os.path.dirname(default_flows(os.environ))
    if args.config_file:
        check_file(VERB, args.config_file, OWN)
    else:
        args.config_file = usable_file(VERB, OWN, os.environ)
    try:
        place = Place(directory, args.file, args.ca)
        if command:
            if args.listen or args.env or args.system:
                raise ConfigError("command line", "inspect", "takes no --listen, --env "
                                  "or --system with a COMMAND: it gets a free port")
            undo_what_was_left()
            return run_behind(place, command, args)
        if not args.env:
            undo_what_was_left()
            args.listen = args.listen or find_port(LISTEN)
            args.admin = args.admin or find_port(ADMIN)
            serve(place, numbered(args.listen), numbered(args.admin), args)
    except OSError as error:
        print(f"cutthrough: {error.filename or VERB}: {error.strerror or error}",
              file=sys.stderr)
        return 1
    except (FileError, AuthorityError, StoreError, NotReady, DesktopError) as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 1
    print_exports(place.exports(written(args.listen or LISTEN)))
    return 0


def serve(place: Place, address: str, admin: str, args: argparse.Namespace
          ) -> NoReturn:
    """Becomes `cutthrough serve`, which prints its addresses as soon as it serves.
    Raises OSError, FileError, AuthorityError and DesktopError."""
    own = {"--listen": address if address != LISTEN else None,
           "--directory": args.directory, "--ca": args.ca}
    words = ["cutthrough", "inspect", "--env", *(
        word for flag, value in own.items() if value for word in (flag, value))]
    flags = place.flags(address, admin, args.origin_ca, args.credentials)
    environ = applicable(VERB, OWN, flags, outside(os.environ), args.config_file)
    text = describe(place, address, admin, shlex.join(words))
    if args.system:
        text += set_system(place, address)
    with tempfile.TemporaryFile() as file:   # it has secrets, and flags are seen by ps
        file.write(text.encode())
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        os.execve(sys.executable, [
            sys.executable, "-m", "cutthrough", "serve",
            *(["-c", args.config_file] if args.config_file else []), *flags],
            {**environ, ANNOUNCED: str(file.fileno())})


def set_system(place: Place, address: str) -> str:
    """Sets the desktop's proxy until this process ends; returns the line that says
    which. Raises OSError and DesktopError."""
    names, faults = own_desktop().set(
        desktop_values(*parse_listen(address), place.exports(address)))
    for fault in faults:
        print(f"cutthrough: the desktop's proxy is not set: {fault}", file=sys.stderr)
    return f"  desktop   {', '.join(names)}: until it ends\n" if names else ""


def own_desktop() -> Desktop:
    """Returns this user's desktop, whatever --directory is."""
    return Desktop(os.path.dirname(default_flows(os.environ)))


def undo_what_was_left() -> None:
    """Raises OSError."""
    show_undone(*own_desktop().undo_what_was_left())


def undo_system() -> int:
    """Returns the exit status: 1 if a setting could not be restored."""
    try:
        names, faults = own_desktop().undo()
    except OSError as error:
        names, faults = [], [str(error)]
    if not names and not faults:
        print("nothing is left to undo")
    show_undone(names, faults)
    return 1 if faults else 0


def show_undone(names: list[str], faults: list[str]) -> None:
    if names:
        print(f"cutthrough: the desktop's proxy is undone: {', '.join(names)}",
              file=sys.stderr)
    for fault in faults:
        print(f"cutthrough: the desktop's proxy is not undone: {fault}",
              file=sys.stderr)


def run_behind(place: Place, command: list[str], args: argparse.Namespace) -> int:
    path = shutil.which(command[0])
    if path is None:
        print(f"cutthrough: {command[0]}: not found", file=sys.stderr)
        return NOT_FOUND
    before = newest(place.flows)
    with tempfile.TemporaryDirectory(prefix="cutthrough-inspect-") as folder:
        serving = start(place, args, Path(folder))
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
    for line in untrusted(place.flows, before):
        print(f"cutthrough: {line}", file=sys.stderr)
    return status or bool(died)


def start(place: Place, args: argparse.Namespace, folder: Path) -> Serving:
    """A proxy on a free port, which keeps requests in the place's database, and its
    messages in `folder`. Raises OSError, FileError, AuthorityError and NotReady."""
    flags = ["--access-log=off", *place.flags(
        "127.0.0.1:0", args.admin, args.origin_ca, args.credentials)]
    environ = applicable(VERB, OWN, flags, outside(os.environ), args.config_file)
    return Serving([*(["-c", args.config_file] if args.config_file else []), *flags],
                   environ, folder / "errors")


class Sender(NamedTuple):
    """A proxy for one request: its address, its user, and its authority in PEM."""

    address: tuple[str, int]
    user: str
    password: str
    authority: str


@contextlib.contextmanager
def own_proxy(args: argparse.Namespace) -> Iterator[Sender]:
    """A proxy as that of a COMMAND, for `flows replay`: its requests are kept, too.
    Raises ConfigError, and QueryError if there is no proxy."""
    flows = find_database(args.file, args.url_file, os.environ)
    folder = os.path.dirname(os.path.abspath(flows))
    if is_url(flows) or not is_place(folder):
        raise ConfigError("command line", "--proxy", "or --admin is required: only "
                          "what `cutthrough inspect` has kept goes through a proxy of "
                          "its own")
    own = argparse.Namespace(origin_ca=args.origin_ca, credentials=False, admin=None,
                             config_file=None, command=[args.verb])
    try:
        place = Place(folder, flows, None)
        with tempfile.TemporaryDirectory(prefix="cutthrough-replay-") as messages:
            before, serving = newest(place.flows), start(place, own, Path(messages))
            try:
                yield Sender(
                    ("127.0.0.1", serving.port), USER, place.password,
                    Path(place.authority, CERTIFICATE).read_text())
            except QueryError as error:
                serving.stop()               # then all is in the database
                reason = "; ".join(untrusted(place.flows, before))
                raise QueryError(reason or str(error)) from None
            finally:
                serving.stop()
    except (OSError, FileError, AuthorityError, StoreError, NotReady) as error:
        raise QueryError(str(error)) from None


def is_place(folder: str) -> bool:
    """Has `cutthrough inspect` kept its files here?"""
    return all(os.path.exists(os.path.join(folder, name))
               for name in (PASSWORD, TOKEN, POLICY))


def untrusted(path: str, before: int) -> list[str]:
    """A line for each origin whose certificate was refused since this flow, with its
    cause and the remedy. Raises StoreError."""
    causes: dict[str, str] = {}
    if os.path.exists(path):
        reader = open_reader(path)
        try:
            for flow in map(Flow, reader.flows()):
                if flow.id <= before:
                    break
                if flow.reason == "origin_certificate":
                    causes[f"{flow.host}:{flow.port}"] = flow.detail or flow.reason
        finally:
            reader.close()
    return [f"{where}: the origin's certificate is refused: {cause}; if it is yours, "
            "--origin-ca FILE trusts the authority, or the certificate, in FILE"
            for where, cause in causes.items()]


def describe(place: Place, address: str, admin: str, exports: str) -> str:
    """`exports`: the command that prints the variables of a shell."""
    return f"""\
Everything that goes through {place.url(address)}
is opened, and kept in {place.flows}

  see it    http://{admin}/traffic#{secrets_of(place)}
  a shell   eval "$({exports})"
  others    trust {os.path.join(place.authority, CERTIFICATE)}
            http://{admin}/ca has it, and how
  origins   with a certificate of their own: cutthrough inspect --origin-ca FILE
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


def numbered(address: str) -> str:
    """As it is written, with a free port for port 0: the addresses are printed before
    they are bound. Raises ConfigError and OSError."""
    address = written(address)
    host, port = parse_listen(address)
    if port:
        return address
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.bind((host, 0))
        return show_address((host, trial.getsockname()[1]))


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
