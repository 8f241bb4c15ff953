"""`cutthrough init`: writes a first configuration, with the proxies of this host's
environment as parents.

    http_proxy, https_proxy, all_proxy ─> [parents.…], route ─┐
    .netrc, or the URL ─> a file of credentials, mode 0600    ├─> cutthrough.toml
    no_proxy ─> policy.toml: rules with route = "direct" ─────┘

The lower-case variable comes before the upper-case one, as for curl. The parent is used
as other programs use it: it resolves names, and gets plain requests in absolute form.
Credentials go into files of their own, and into no message (R37).

With `--for` it is a template, without the environment's proxies.

No file is replaced, unless --force says so; then what was there gets another name. If
the result is not valid, nothing is left of it.
"""

import argparse
import ipaddress
import json
import netrc
import os
import secrets
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple
from unicodedata import category
from urllib.parse import SplitResult, unquote, urlsplit

from cutthrough.config.config import DEFAULTS
from cutthrough.config.files import home_of
from cutthrough.config.mistake import Mistake, show_all
from cutthrough.config.settings import build, gather
from cutthrough.config.values import parse_host, show_address, split_address
from cutthrough.policy.users import make_hash
from cutthrough.tools.templates import TEMPLATES

USER = "me"
# As in curl's manual, "Proxy environment variables"; a program may know fewer
VARIABLES = ("http_proxy", "https_proxy")
FALLBACK = "all_proxy"
# By the variable's scheme: the parent's, where names are resolved, and the port if the
# URL has none (as in Go's net/http; curl has 1080 for all)
SCHEMES = {
    "http": ("http", "parent", 80), "https": ("https", "parent", 443),
    "socks5": ("socks5", "here", 1080), "socks5h": ("socks5", "parent", 1080),
    "socks4": ("socks4a", "here", 1080), "socks4a": ("socks4a", "parent", 1080)}


class InitError(Exception):
    """A variable or a file cannot be used; the text contains no secret."""


class Way(NamedTuple):
    """A parent to be."""

    url: str                                 # without credentials
    resolve: str
    credentials: str                         # name:password; "": none
    source: str                              # of the credentials, in words


class Bypass(NamedTuple):
    """The destinations of no_proxy."""

    hosts: dict[int, list[str]]              # by port; 0: every port
    networks: list[str]
    unread: list[str]
    everything: bool


def run(args: argparse.Namespace) -> int:
    """Writes the files, or prints them; returns the exit status."""
    folder, template, force = os.path.abspath(args.directory), args.template, args.force
    try:
        if any(category(sign) in ("Cc", "Cs") for sign in folder):   # octets: Cs
            raise InitError(f"{folder}: a path with control characters, or one that is "
                            "not UTF-8, cannot be written into a configuration")
        files, report = (fill(folder, template) if template
                         else compose(folder, os.environ))
        if args.dry_run:
            report = list(show(files, report, force))
        else:
            report += [f"{path}: what was there before is now {aside}"
                       for path, aside in write(folder, files, force)]
            if template:
                relocate(files[-1], folder, TEMPLATES[template].places)
    except (InitError, Mistake) as error:
        text = show_all(error) if isinstance(error, Mistake) else [str(error)]
        print(*(f"cutthrough: {line}" for line in text), sep="\n", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"cutthrough: {error.filename or folder}: {error.strerror or error}",
              file=sys.stderr)
        return 2 if isinstance(error, FileExistsError) else 1
    print(*report, sep="\n")
    return 0


# --- the environment ---------------------------------------------------------------

def value_of(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def read_ways(environ: Mapping[str, str]) -> tuple[dict[str, Way], list[str]]:
    """Returns the parents by variable, and notes. Raises InitError."""
    ways: dict[str, Way] = {}
    notes = []
    own = {show_address(address) for address in DEFAULTS["listen"]}
    for name in VARIABLES:
        used = name if value_of(environ, name) else FALLBACK
        text = value_of(environ, used)
        if not text:
            continue
        way = read_way(used, text, environ)
        if way.url.partition("://")[2] in own:
            notes.append(f"{used}: {way.url} is this proxy's own address, no parent")
        else:
            ways[name] = way
    return ways, notes


def read_way(name: str, text: str, environ: Mapping[str, str]) -> Way:
    url = read_url(name, text)
    try:
        scheme, resolve, port = SCHEMES[url.scheme]
        host, port = split_address(f"{show_host(url)}:{url.port or port}")
        address = show_address((host if ":" in host else parse_host(host), port))
    except (KeyError, ValueError) as error:
        reason = f"the scheme {url.scheme} is unknown" if isinstance(
            error, KeyError) else f"{url.hostname!r} is not a host"
        raise InitError(f"{name}: {reason}") from None
    credentials, source = "", ""
    if url.username:
        credentials = join(name, unquote(url.username), unquote(url.password or ""))
        source = name
    elif login := find_in_netrc(url.hostname or "", environ):
        credentials = join(login[2], login[0], login[1])
        source = login[2]
    return Way(f"{scheme}://{address}", resolve, credentials, source)


def read_url(name: str, text: str) -> SplitResult:
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        if not url.hostname or url.port == 0 or url.path not in ("", "/") or (
                url.query or url.fragment):
            raise ValueError
    except ValueError:
        # The text may have a password
        raise InitError(f"{name}: is not a proxy's URL, such as http://host:port; in "
                        "a password, signs are written as %40") from None
    return url


def show_host(url: SplitResult) -> str:
    host = url.hostname or ""
    return f"[{host}]" if ":" in host else host


def join(source: str, user: str, password: str) -> str:
    """The line of the file of credentials."""
    if not user or ":" in user or not f"{user}{password}".isprintable():
        raise InitError(f"{source}: its credentials have a character that the file of "
                        "credentials has no room for")
    return f"{user}:{password}"


def find_in_netrc(host: str, environ: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Name, password and file, if the file names this very host. `default` is not for
    parents, because each of them would get it."""
    path = os.path.expanduser(environ.get("NETRC")
                              or os.path.join(home_of(environ), ".netrc"))
    try:
        login = netrc.netrc(path).hosts.get(host)
    except FileNotFoundError:
        return None
    except (netrc.NetrcParseError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None)
        raise InitError(f"{path}{f':{line}' if line else ''}: is not a file of "
                        "credentials that can be read") from None
    return (login[0], login[2] or "", path) if login else None


def read_bypass(environ: Mapping[str, str]) -> Bypass:
    """A name covers the hosts below it too, with and without a dot, as for curl."""
    bypass = Bypass({}, [], [], value_of(environ, "no_proxy") == "*")
    for text in value_of(environ, "no_proxy").replace(",", " ").split():
        host, port = text, 0
        try:
            if text == "*":
                bypass.unread.append(text)
                continue
            if not is_network(text) and ":" in text:
                host, port = split_address(text)
            if is_network(host):
                bypass.networks.append(host.strip("[]"))
                continue
            name = parse_host(host.removeprefix("*").removeprefix("."))
            listed = bypass.hosts.setdefault(port, [])
            if f".{name}" not in listed:
                listed.append(f".{name}")
        except ValueError:
            bypass.unread.append(text)
    return bypass


def is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text.removeprefix("[").removesuffix("]"), strict=False)
    except ValueError:
        return False
    return True


# --- the files ---------------------------------------------------------------------

class File(NamedTuple):
    path: str
    text: str
    is_secret: bool = False


def compose(folder: str, environ: Mapping[str, str]) -> tuple[list[File], list[str]]:
    """The files, the configuration last, and the lines to print."""
    ways, notes = read_ways(environ)
    bypass = read_bypass(environ)
    path = os.path.join(folder, "cutthrough.toml")
    password = File(os.path.join(folder, "password"), f"{secrets.token_urlsafe(18)}\n",
                    True)
    files = [password]
    report = [f"{path}: listens on {show_address(DEFAULTS['listen'][0])}; the user is "
              f"{USER}, the password is in {password.path}", *notes]
    head = [f"# cutthrough serve -c {shlex.quote(path)}", f"user = {quote(USER)}",
            f"password_file = {quote(password.path)}"]
    tables: list[str] = []
    parents = name_parents(ways)
    for name, (way, variables) in parents.items():
        tables += ["", f"[parents.{name}]", f"url = {quote(way.url)}"]
        report.append(f"{' and '.join(variables)}: parent {name}, {way.url}")
        if way.credentials:
            file = File(os.path.join(folder, f"{name}.credentials"),
                        f"{way.credentials}\n", True)
            files.append(file)
            tables.append(f"credentials_file = {quote(file.path)}")
            report[-1] += f"; its credentials, of {way.source}, are in {file.path}"
        if way.resolve == "parent":
            tables.append('resolve = "parent"          # as other programs use it; '
                          '"here": the rules see addresses')
        if way.url.startswith("http"):
            tables.append('plain = "absolute"')
    if parents:
        policy = os.path.join(folder, "policy.toml")
        files.append(File(policy, compose_policy(ways, parents, bypass)))
        head += [f"policy = {quote(policy)}",
                 'address_floor = "off"         # hosts of no_proxy may have private '
                 'addresses']
        if "http_proxy" in ways and not bypass.everything:
            head.append(f"route = {quote(name_of(parents, 'http_proxy'))}")
        report += report_bypass(bypass, policy)
    files.append(File(path, "\n".join([*head, *tables, ""])))
    return files, report


def fill(folder: str, template: str) -> tuple[list[File], list[str]]:
    """The files of a template, the configuration last, and the lines to print."""
    config, policy, after, _ = TEMPLATES[template]
    password = secrets.token_urlsafe(18)
    secret = {"password": f"{password}\n", "admin-token": f"{secrets.token_hex(32)}\n",
              "users": f"{USER}:{make_hash(password.encode(), 'bcrypt')}\n"}
    files = [File(os.path.join(folder, name), text, True)
             for name, text in secret.items() if f"{{folder}}/{name}\"" in config]
    login = (f"the password is {password}, shown only now" if "users_file" in config
             else f"the password is in {folder}/password")
    path = os.path.join(folder, "cutthrough.toml")
    word = shlex.quote(folder)
    files += [File(os.path.join(folder, "policy.toml"), policy),
              File(path, f"# cutthrough serve -c {word}/cutthrough.toml\n"
                   + config.replace("{folder}", quote(folder)[1:-1]).replace(
                       "{shell}", word))]
    return files, [f"{path}: made for {template}; the user is {USER}, {login}",
                   *(line.replace("{folder}", folder).replace("{shell}", word)
                     for line in after)]


def relocate(config: File, folder: str, places: Iterable[tuple[str, str]]) -> None:
    """Names the places of files on another host, after all was valid on this one."""
    text = config.text
    for name, place in places:
        text = text.replace(f'"{quote(folder)[1:-1]}/{name}"', f'"{place}/{name}"')
    if text != config.text:
        with open(config.path, "w", encoding="utf-8") as file:
            file.write(text)


Parents = dict[str, tuple[Way, list[str]]]


def name_parents(ways: Mapping[str, Way]) -> Parents:
    """Equal ones are one parent. By name: the parent and its variables."""
    parents: Parents = {}
    for variable, way in ways.items():
        for known, variables in parents.values():
            if known[:3] == way[:3]:
                variables.append(variable)
                break
        else:
            parents[variable] = (way, [variable])
    if len(parents) == 1 and len(ways) == 2:
        return {"environment": next(iter(parents.values()))}
    return parents


def name_of(parents: Parents, variable: str) -> str:
    return next(name for name, (_, used) in parents.items() if variable in used)


def compose_policy(ways: Mapping[str, Way], parents: Parents, bypass: Bypass) -> str:
    lines = ['default = "allow"']
    for port, hosts in () if bypass.everything else bypass.hosts.items():
        lines += ["", "[[rules]]", 'name = "no_proxy"', 'action = "allow"',
                  f"hosts = {json.dumps(hosts)}", *([f"ports = [{port}]"] * bool(port)),
                  'route = "direct"']
    if bypass.networks and not bypass.everything:
        lines += ["", "# The networks of no_proxy. With this rule, names are resolved",
                  "# by this host and not by the parent: use it if the name servers",
                  "# of this host know all of them.", "# [[rules]]",
                  '# name = "no_proxy"', '# action = "allow"',
                  f"# addresses = {json.dumps(bypass.networks)}", '# route = "direct"']
    if not bypass.everything and (len(ways) == 1 or len(parents) == 2):
        route = name_of(parents, "https_proxy") if "https_proxy" in ways else "direct"
        lines += ["", "[[rules]]", 'name = "https_proxy"', 'action = "allow"',
                  'methods = ["CONNECT"]', f"route = {quote(route)}"]
    return "\n".join([*lines, ""])


def report_bypass(bypass: Bypass, policy: str) -> Iterable[str]:
    if bypass.everything:
        yield "no_proxy: *: every request goes directly"
        return
    hosts = [host for listed in bypass.hosts.values() for host in listed]
    if hosts:
        yield f"no_proxy: {', '.join(hosts)}: rules of {policy}"
    if bypass.networks:
        yield (f"no_proxy: {', '.join(bypass.networks)}: networks, in a comment of "
               f"{policy}")
    if bypass.unread:
        yield f"no_proxy: {', '.join(bypass.unread)}: not understood, left out"


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def show(files: Iterable[File], report: Iterable[str], force: bool) -> Iterator[str]:
    """Yields what would be written, without secrets, and the report as comments."""
    for file in files:
        there = "" if not os.path.lexists(file.path) else (
            ", which exists: it would be put aside" if force
            else ", which exists: nothing would be written")
        yield f"# {file.path}{there}"
        yield "# a secret, for its owner alone\n" if file.is_secret else file.text
    for line in report:
        yield f"# {line}"


def write(folder: str, files: Iterable[File], force: bool) -> list[tuple[str, str]]:
    """Returns the paths of files that were there, with their new names. Raises
    ConfigError or OSError; then none of the files is left, and those are back."""
    paths: list[str] = []
    before: list[tuple[str, str]] = []
    os.makedirs(folder, exist_ok=True)
    try:
        for file in files:
            if force and os.path.lexists(file.path):
                aside = free_name(file.path)
                os.rename(file.path, aside)
                before.append((file.path, aside))
            fd = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                         0o600 if file.is_secret else 0o644)
            paths.append(file.path)
            with open(fd, "w", encoding="utf-8", newline="") as out:
                out.write(file.text)
        build(gather({}, {}, paths[-1]))
    except BaseException:
        for path in paths:
            os.unlink(path)
        for path, aside in before:
            os.rename(aside, path)
        raise
    return before


def free_name(path: str) -> str:
    return next(name for n in count(1)
                if not os.path.lexists(name := f"{path}.before-{n}"))
