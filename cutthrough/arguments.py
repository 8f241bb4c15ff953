"""The command line's words: the verbs, and what each of them takes.

Nothing is read and nothing is loaded here but the definition of the options.
"""

import argparse
import sys
from collections.abc import Sequence

import cutthrough
from cutthrough.config.config import OPTIONS
from cutthrough.config.settings import add_flags, flag_name, no_such_option

VERBS = {
    "serve": "run the proxy until it is told to stop",
    "check": "validate the configuration and exit: 0, or 2 with the reason",
    "config": "print the configuration in force as TOML, without secrets",
    "passwd": "make a line of users_file; asks for the password, or reads it",
    "explain": "say what would become of a request, and which rule decides",
    "suggest": "propose rules for what an access log in JSON says was refused",
    "doctor": "look whether the host is fit; doctor ssrf: try the address floor",
    "top": "show what a running proxy does, by its admin listener",
    "conns": "list its connections",
    "kill": "end those that are meant",
    "version": "print the version",
}
# Verbs about a configuration for which somebody asks: there --user says who.
ASKING = ("explain", "doctor")
WITHOUT = ("user", "password", "password_file")
CONSOLE = ("top", "conns", "kill")
# Those of connections; the states as session.state has them, which is not loaded here.
STATES = ("head", "idle", "auth", "decide", "resolve", "dial", "request", "response",
          "relay", "tunnel", "half_closed", "deliver", "linger")
SELECTORS = {
    "user": ("NAME", "of this user"), "client": ("ADDRESS", "from this address"),
    "id": ("ID", "the one of this id"),
    "host": ("NAME", "to this destination; *.SUFFIX: to what ends so"),
    "state": ("STATE", f"in this state: {', '.join(STATES)}"),
    "kind": ("KIND", "tunnel, request or idle"),
    "older": ("TIME", "open for so long, or longer: 90, in seconds, or 10m"),
    "bytes": ("SIZE", "that have moved so much, both directions together, or more"),
}
KINDS = ("host", "ssrf")                     # of doctor
SOURCES = ("Every option is also a variable, CUTTHROUGH_HEAD_TIMEOUT, and a key of the "
           "file, head_timeout. A flag goes before the variable, that before the file.")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cutthrough", allow_abbrev=False, description="A forward proxy.")
    parser.add_argument("--version", action="version", version=version())
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, text in VERBS.items():
        # No abbreviations: a new option must not make an old command line ambiguous.
        takes_options = name not in ("version", "passwd", "suggest", "doctor", *CONSOLE)
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False,
                                usage=usage_of(name) if takes_options else None,
                                epilog=SOURCES if takes_options else None)
        verb.set_defaults(own=verb)
        if name == "passwd":
            add_passwd(verb)
        elif name == "suggest":
            add_log(verb, required=True)
        elif name == "explain":
            add_explain(verb)
        elif name == "doctor":
            add_doctor(verb)
        elif name in CONSOLE:
            add_console(verb, name)
        elif takes_options:
            add_options(verb)
        if name == "config":
            add_config(verb)
        if name == "check":
            verb.add_argument("--without-secrets", action="store_true", help="do not "
                              "read password_file and its like: they are elsewhere, or "
                              "another's to read")
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it cannot be understood."""
    parser = make_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:                # as git, apt and go have it
        words = [*(word for word in words[1:] if word in VERBS), "--help"]
    first = words[0].partition("=")[0] if words else ""
    if first in ("-c", "--config", *map(flag_name, OPTIONS)):
        parser.error(f"{first} stands behind a verb: cutthrough serve {first} …")
    if words[:1] == ["doctor"] and not {*words[1:2]} & {*KINDS, "-h", "--help"}:
        words.insert(1, KINDS[0])
    given, left = parser.parse_known_args(words)
    if left:
        flag = left[0].partition("=")[0]
        parser.error(f"command line: {flag}: " + refuse(
            flag, given.verb, given.own if given.verb else parser))
    if given.verb == "kill" and not any(
            getattr(given, name) for name in (*SELECTORS, "all")):
        parser.error("kill: which ones? Name " + ", ".join(
            map(flag_name, SELECTORS)) + "; --all means every one")
    if given.verb == "explain" and (bool(given.log) == bool(given.target)
                                    or (given.log and given.method)):
        parser.error("explain takes METHOD and TARGET, or --log FILE")
    if given.verb is None:
        parser.print_help(sys.stderr)
    return given


def refuse(flag: str, verb: str | None, own: argparse.ArgumentParser) -> str:
    """Why this verb, whose flags `own` has, cannot take it."""
    if verb and not flag.startswith("-"):
        if "-c" in own._option_string_actions:
            return f"{verb} takes its file behind -c: cutthrough {verb} -c {flag}"
        return f"{verb} takes no such argument"
    if verb and flag in map(flag_name, OPTIONS):
        return f"is no option of {verb}"
    return no_such_option(flag, own._option_string_actions.keys() - {flag})


def usage_of(verb: str) -> str:
    """In one line: of sixty options argparse makes forty, in front of every mistake."""
    left = " (METHOD TARGET | --log FILE)" if verb == "explain" else ""
    return f"cutthrough {verb} [-c FILE] [--OPTION VALUE …]{left}"


def add_config(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--effective", action="store_true",
                      help="say also what comes of it on this host: workers, CPUs, "
                      "socket options asked for and in force")
    verb.add_argument("--markdown", action="store_true",
                      help="print docs/config.md, which explains every option")


def add_options(verb: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                      help="read the options in this TOML file")
    add_flags(verb, without)


def add_who(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--user", metavar="NAME", dest="who", default="",
                      help="who asks [the one user of the configuration]")


def add_log(verb: argparse.ArgumentParser, required: bool = False) -> None:
    verb.add_argument("--log", metavar="FILE", required=required,
                      help="an access log in JSON lines; - is standard input")


def add_explain(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("method", metavar="METHOD", nargs="?", help="CONNECT, GET …")
    verb.add_argument("target", metavar="TARGET", nargs="?",
                      help="host:port of CONNECT, http://… of other methods")
    add_who(verb)
    verb.add_argument("--client", metavar="IP", default="127.0.0.1",
                      help="from where [127.0.0.1]")
    add_log(verb)
    verb.add_argument("--json", action="store_true", help="print JSON")
    add_options(verb, WITHOUT)


def add_doctor(verb: argparse.ArgumentParser) -> None:
    kinds = verb.add_subparsers(dest="kind", metavar="KIND", required=True)
    text = "is this host fit for this configuration? 1 if something will not work"
    host = kinds.add_parser(KINDS[0], help=f"{text}; without a KIND it is this one",
                            description=text, allow_abbrev=False, epilog=SOURCES,
                            usage=usage_of("doctor"))
    host.add_argument("--json", action="store_true", help="print JSON")
    host.set_defaults(own=host)
    add_options(host)
    text = "ask for forbidden addresses in 200 disguises; 1 if any passes"
    ssrf = kinds.add_parser(KINDS[1], help=text, description=text, allow_abbrev=False,
                            epilog=SOURCES, usage=usage_of("doctor ssrf"))
    ssrf.set_defaults(own=ssrf)
    add_who(ssrf)
    ssrf.add_argument("--host-network", action="store_true", help="try it in the "
                      "network of this host: packets leave it [loopback alone]")
    add_options(ssrf, WITHOUT)


def add_passwd(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("user", metavar="USER")
    verb.add_argument("--file", metavar="FILE",
                      help="put the line into this file, made if need be")
    verb.add_argument("--algorithm", default="bcrypt", help="[bcrypt]",
                      choices=("bcrypt", "argon2", "sha512"))


def add_console(verb: argparse.ArgumentParser, name: str) -> None:
    verb.add_argument("--admin", metavar="HOST:PORT|unix:PATH",
                      help="where the proxy's admin listener is [CUTTHROUGH_ADMIN]")
    verb.add_argument("--token-file", metavar="FILE",
                      help="its token [CUTTHROUGH_ADMIN_TOKEN or …_TOKEN_FILE]")
    if name == "top":
        verb.add_argument("--interval", type=seconds, default=1.0, metavar="SECONDS",
                          help="time between two looks [1]")
        verb.add_argument("--count", type=looks, default=0, metavar="N",
                          help="looks, 0 for no end [0]; not on a terminal: 1")
        return
    for field, (metavar, text) in SELECTORS.items():
        verb.add_argument(f"--{field}", metavar=metavar, help=text)
    verb.add_argument("--all", action="store_const", const="true", help="every one")
    if name == "conns":
        verb.add_argument("--json", action="store_true", help="as JSON, one a line")
        verb.add_argument("--trace", metavar="ID", help="what this one did last")


def seconds(text: str) -> float:
    """A time between two looks."""
    number = float(text)
    if not 0.01 <= number <= 86400:          # nor NaN
        raise ValueError
    return number


def looks(text: str) -> int:
    number = int(text)
    if number < 0:                           # it would never come to nothing
        raise ValueError
    return number


def version() -> str:
    return f"cutthrough {cutthrough.__version__}"
