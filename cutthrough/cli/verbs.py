"""The verbs of the command line: one table, and the parser that it makes.

This module reads no file and imports nothing compiled, as `arguments` does.
"""

import argparse
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cutthrough
from cutthrough.cli.arguments import (
    KINDS,
    SOURCES,
    add_ca,
    add_check,
    add_config,
    add_console,
    add_doctor,
    add_explain,
    add_init,
    add_listener,
    add_log,
    add_mcp,
    add_options,
    add_passwd,
    add_route,
    usage_of,
)
from cutthrough.cli.bundle import add_bundle
from cutthrough.cli.fleet import add_fleet_verb
from cutthrough.cli.flows import add_flows, add_inspect
from cutthrough.cli.recordings import add_mode, add_recordings, add_run
from cutthrough.config.config import OPTIONS
from cutthrough.config.mistake import nearest
from cutthrough.config.settings import flag_name, no_such_option
from cutthrough.process.selector import TERMS


class Verb(NamedTuple):
    """`add` adds the verb's arguments. `module`, below the package, has its `run`; "":
    `main` carries it out, for it needs the configuration. `takes_options`: those of the
    configuration are flags of the verb."""

    help: str
    add: Callable[[argparse.ArgumentParser], None]
    module: str = ""
    takes_options: bool = False


VERBS = {
    "serve": Verb("run the proxy until it is stopped", add_options,
                  takes_options=True),
    "check": Verb("validate the configuration and exit: 0, or 2 with the reasons",
                  add_check, takes_options=True),
    "config": Verb("print the configuration in force as TOML, without secrets",
                   add_config, takes_options=True),
    "init": Verb("write a first configuration; http_proxy and its kin become parents",
                 add_init, "tools.init"),
    "passwd": Verb(
        "make a line of users_file; prompts for the password, or reads stdin",
        add_passwd, "tools.passwd"),
    "explain": Verb("show how a request would be decided, and by which rule",
                    add_explain, takes_options=True),
    "route": Verb("show the way of a request, and with --try make the connection",
                  add_route, takes_options=True),
    "suggest": Verb("propose rules for the refused requests of an access log in JSON",
                    partial(add_log, required=True), "tools.suggest"),
    "doctor": Verb(
        "check this host for this configuration; doctor ssrf: test the floor",
        add_doctor),
    "top": Verb("show the activity of a running proxy, by its admin listener",
                partial(add_console, name="top"), "tools.top"),
    "conns": Verb("list the open connections of a running proxy",
                  partial(add_console, name="conns"), "tools.console"),
    "kill": Verb("close the selected connections of a running proxy",
                 partial(add_console, name="kill"), "tools.console"),
    "status": Verb("say if a running proxy serves, with its workers and connections",
                   partial(add_console, name="status"), "tools.console"),
    "reload": Verb("have a running proxy read its files again; as SIGHUP",
                   partial(add_console, name="reload"), "tools.console"),
    "drain": Verb("end a running proxy when its connections have ended; as SIGTERM",
                  partial(add_console, name="drain"), "tools.console"),
    "fleet": Verb(
        "list the proxies that are registered in Redis, and ask each how it is",
        add_fleet_verb, "tools.fleet"),
    "ca": Verb("make a certificate authority, pass its certificate on, issue others",
               add_ca, "ca.verb"),
    "bundle": Verb(
        "sign configuration and policy as one file for many hosts, verify it",
        add_bundle, "tools.bundle"),
    "flows": Verb("list, show, search, export, import or replay captured requests",
                  partial(add_flows, add_listener=add_listener), "tools.flows"),
    "mode": Verb("show or change the mode of recordings, of a running proxy too",
                 add_mode, "tools.recordings"),
    "recordings": Verb("list, show, delete, export or import recorded answers",
                       add_recordings, "tools.recordings"),
    "run": Verb(
        "run a command behind a proxy that records its requests and replays them",
        add_run, "tools.run"),
    "inspect": Verb("open, keep and show what a command, a shell or a browser sends",
                    add_inspect, "tools.inspection"),
    "mcp": Verb("serve tools for a model over MCP, by standard input and output",
                add_mcp),
    "version": Verb("print the version", lambda verb: None),
}


class Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """With the folder of the pages that it names."""
        text, folder = super().format_help(), pages()
        if "docs/" not in text or not folder.is_dir():
            return text
        return f"{text}\ndocs/ is {folder}\n"


def pages() -> Path:
    """The folder of the pages: inside an installed package, or beside it in a tree."""
    package = Path(cutthrough.__file__).parent
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def make_parser(words: Collection[str] = tuple(VERBS)) -> argparse.ArgumentParser:
    """Verbs that are not among `words` have no flags: adding all takes 45 ms."""
    parser = Parser(
        prog="cutthrough", allow_abbrev=False, description="A forward proxy.")
    parser.add_argument("--version", action="version", version=version())
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, verb in VERBS.items():
        # No abbreviations: a new option must not make an old command line ambiguous.
        sub = verbs.add_parser(
            name, help=verb.help, description=verb.help, allow_abbrev=False,
            usage=usage_of(name) if verb.takes_options else None,
            epilog=SOURCES if verb.takes_options else None)
        sub.set_defaults(own=sub)
        if name in words:
            verb.add(sub)
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; exits with status 2 if it is not valid."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:                # as git, apt and go have it
        words = [*(word for word in words[1:] if word in VERBS), "--help"]
    if words[:1] == ["--fleet"]:             # it may come before the verb, too
        words = [*words[1:2], "--fleet", *words[2:]]
    parser = make_parser(words)
    first = words[0].partition("=")[0] if words else ""
    if first in ("-c", "--config", *map(flag_name, OPTIONS)):
        parser.error(f"{first} goes after a verb: cutthrough serve {first} …")
    if first and not first.startswith("-") and first not in VERBS:
        parser.error(f"{first}: no such verb" + near(first, VERBS))
    if words in (["flows"], ["ca"], ["bundle"], ["recordings"]):     # what can they do?
        words.append("--help")
    if words[:1] == ["doctor"] and not {*words[1:2]} & {*KINDS, "-h", "--help"}:
        words.insert(1, KINDS[0])
    args, left = parser.parse_known_args(words)
    if left:
        flag = left[0].partition("=")[0]
        parser.error(f"command line: {flag}: " + refuse(
            flag, args.verb, args.own if args.verb else parser))
    if (word := find_broken(args)) is not None:
        parser.error(f"command line: {word}: is not UTF-8")
    if args.verb == "check" and args.file:
        if args.config_file:
            parser.error(f"check: {args.file}: -c {args.config_file} is its file")
        args.config_file = args.file
    if args.verb == "kill" and not any(
            getattr(args, name) for name in (*TERMS, "all")):
        parser.error("kill: needs a selector: " + ", ".join(
            map(flag_name, TERMS)) + ", or --all for every connection")
    if args.verb == "explain" and (bool(args.log) == bool(args.target)
                                   or (args.log and args.method)):
        parser.error("explain takes METHOD and TARGET, or --log FILE")
    if args.verb == "flows" and args.action == "delete" and sum(
            map(bool, (args.filter, args.id, args.all))) != 1:
        parser.error("flows delete: takes a FILTER, or --id, or --all for every flow")
    if args.verb is None:
        parser.print_help(sys.stderr)
    return args


def find_broken(args: argparse.Namespace) -> str | None:
    """The first argument that is not UTF-8. The command that `run` and `inspect` start
    may have any."""
    for name, value in vars(args).items():
        for word in value if isinstance(value, list) else [value]:
            # Python's surrogateescape
            if name != "command" and isinstance(word, str) and re.search(
                    "[\ud800-\udfff]", word):
                return word
    return None


def refuse(flag: str, verb: str | None, own: argparse.ArgumentParser) -> str:
    """The reason why this verb does not take `flag`; `own` has the verb's flags."""
    if verb and not flag.startswith("-"):
        if "-c" in own._option_string_actions:
            return f"{verb} takes its file with -c: cutthrough {verb} -c {flag}"
        return f"{verb} takes no such argument"
    if verb and flag in map(flag_name, OPTIONS):
        return f"is not an option of {verb}"
    return no_such_option(flag, own._option_string_actions.keys() - {flag})


def near(word: str, known: Collection[str]) -> str:
    similar = nearest(word, known)
    return (f"; did you mean {similar}?" if similar else
            f"; the verbs are {', '.join(known)}")


def version() -> str:
    return f"cutthrough {cutthrough.__version__}"
