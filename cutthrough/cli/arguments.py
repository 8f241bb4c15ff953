"""The arguments of each verb; those of some are in modules of their own.

This module reads no file and imports nothing compiled: only the definitions of the
options and of a selector's terms.
"""

import argparse
from collections.abc import Sequence

from cutthrough.cli.fleet import add_fleet
from cutthrough.cli.flows import add_cacert, number
from cutthrough.config.settings import add_flags, flag_name
from cutthrough.process.selector import TERMS

# The options that explain, route and doctor have not: their --user is the request's
WITHOUT = ("user", "password", "password_file")
KINDS = ("host", "ssrf")                     # of doctor
SOURCES = ("Every option is also an environment variable (CUTTHROUGH_HEAD_TIMEOUT) and "
           "a key of the file (head_timeout). A flag overrides the variable, and the "
           "variable overrides the file.")


def usage_of(verb: str) -> str:
    """One line: argparse would print sixty options in forty lines with each error."""
    left = " (METHOD TARGET | --log FILE)" if verb == "explain" else ""
    return f"cutthrough {verb} [-c FILE] [--OPTION VALUE …]{left}"


def add_init(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("directory", metavar="DIRECTORY", nargs="?", default=".",
                      help="where the files are made [this one]")
    verb.add_argument("--for", dest="template", default="",
                      choices=("laptop", "team", "ci", "kubernetes", "recording"),
                      help="an annotated configuration for this use")
    verb.add_argument("--dry-run", action="store_true",
                      help="print the files, and write none")
    verb.add_argument("--force", action="store_true", help="give files that exist "
                      "another name, and write new ones")


def add_check(verb: argparse.ArgumentParser) -> None:
    add_options(verb)
    verb.add_argument("file", metavar="FILE", nargs="?", help="as -c FILE")
    verb.add_argument("--without-secrets", action="store_true", help="do not read "
                      "password_file and the other files of secrets, which this host "
                      "or this user may not have")
    verb.add_argument("--strict", action="store_true", help="exit with 1 if there are "
                      "notes, of rules that match less than they seem to")


def add_config(verb: argparse.ArgumentParser) -> None:
    add_options(verb)
    verb.add_argument("--effective", action="store_true",
                      help="print also its effect on this host: workers, CPUs, socket "
                      "options as requested and as in force")
    verb.add_argument("--markdown", action="store_true",
                      help="print docs/config.md, the description of every option")


def add_options(verb: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                      help="read options from this TOML file")
    add_flags(verb, without)


def add_who(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--user", metavar="NAME", dest="who", default="",
                      help="user of the request [the one user of the configuration]")


def add_log(verb: argparse.ArgumentParser, required: bool = False) -> None:
    verb.add_argument("--log", metavar="FILE", required=required,
                      help="access log in JSON lines; - is standard input")


def add_request(verb: argparse.ArgumentParser, nargs: str | None = None) -> None:
    verb.add_argument("method", metavar="METHOD", nargs=nargs, help="CONNECT, GET …")
    verb.add_argument("target", metavar="TARGET", nargs=nargs,
                      help="host:port of CONNECT, a URL of other methods, or a path, "
                      "with --host")
    verb.add_argument("--host", metavar="HOST", default="", help="the field Host of a "
                      "request whose target is a path [none]")
    add_who(verb)
    verb.add_argument("--client", metavar="IP", default="127.0.0.1",
                      help="client address of the request [127.0.0.1]")
    verb.add_argument("--json", action="store_true", help="print JSON")


def add_explain(verb: argparse.ArgumentParser) -> None:
    add_request(verb, "?")
    text = "of a tunnel's first bytes, for rules that depend on them"
    verb.add_argument("--protocol", metavar="WORD", help=f"protocol {text} [tls, if "
                      "--sni or --ja4 is given]")
    verb.add_argument("--sni", metavar="NAME", help=f"server name {text} [none]")
    verb.add_argument("--ja4", metavar="JA4", help=f"fingerprint {text} [none]")
    text = "of the client's own connection, for rules that compare it"
    verb.add_argument("--client-ja4", metavar="JA4", help=f"fingerprint {text} [none]")
    verb.add_argument("--http2-fingerprint", metavar="TEXT",
                      help=f"the same of its HTTP/2, {text[3:]} [none]")
    verb.add_argument("--tlv", metavar="NAME=VALUE", action="append", default=[],
                      help="TLV of the client's PROXY header; may be repeated [none]")
    add_log(verb)
    add_options(verb, WITHOUT)


def add_route(verb: argparse.ArgumentParser) -> None:
    add_request(verb)
    verb.add_argument("--try", action="store_true", dest="attempt",
                      help="make a tunnel of CONNECT through the chosen parents, print "
                      "each step with its time, and close it")
    add_options(verb, WITHOUT)


def add_doctor(verb: argparse.ArgumentParser) -> None:
    kinds = verb.add_subparsers(dest="kind", metavar="KIND", required=True)
    text = "check this host for this configuration; exit 1 if something will not work"
    host = kinds.add_parser(KINDS[0], help=f"{text}; the default KIND",
                            description=text, allow_abbrev=False, epilog=SOURCES,
                            usage=usage_of("doctor"))
    host.add_argument("--json", action="store_true", help="print JSON")
    host.set_defaults(own=host)
    add_options(host)
    text = "request forbidden addresses in 200 disguises; exit 1 if any passes"
    ssrf = kinds.add_parser(KINDS[1], help=text, description=text, allow_abbrev=False,
                            epilog=SOURCES, usage=usage_of("doctor ssrf"))
    ssrf.set_defaults(own=ssrf)
    add_who(ssrf)
    ssrf.add_argument("--host-network", action="store_true", help="test in this host's "
                      "own network: packets leave the host [loopback alone]")
    add_options(ssrf, WITHOUT)


def add_mcp(verb: argparse.ArgumentParser) -> None:
    add_listener(verb, "where")
    verb.add_argument("--db", metavar="FILE", help="read this database, and not the "
                      "admin listener's")
    verb.add_argument("--db-url-file", metavar="FILE", help="read the PostgreSQL "
                      "whose URL is in this file")
    verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                      help="offer `explain` for this configuration; with a database, "
                      "also the answers to replays, without its secrets")
    verb.add_argument("--log", metavar="FILE", help="offer `suggest` for this access "
                      "log in JSON lines")
    verb.add_argument("--allow-writes", action="store_true", help="offer also tools "
                      "that tag, delete and replay requests, and close connections")
    verb.add_argument("--import-from", metavar="DIRECTORY", help="offer a tool that "
                      "imports files of this directory; needs --allow-writes")
    verb.add_argument("--user", metavar="NAME", dest="proxy_user", default="",
                      help="user of the proxy for replays [none]")
    verb.add_argument("--password-file", metavar="FILE", dest="proxy_password_file",
                      help="its password")
    verb.add_argument("--proxy", metavar="HOST:PORT",
                      help="the proxy for replays, with a database")
    add_cacert(verb)


def add_passwd(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("user", metavar="USER", help="name of the user")
    verb.add_argument("--file", metavar="FILE",
                      help="write the line to this file, created if it does not exist")
    verb.add_argument("--algorithm", default="bcrypt", help="password hash [bcrypt]",
                      choices=("bcrypt", "argon2", "sha512"))


def add_ca(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        parser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False)
        parser.set_defaults(own=parser)
        parser.add_argument(
            "--dir", metavar="DIRECTORY", dest="directory",
            help="where the authority is [~/.local/share/cutthrough/ca]")
        return parser

    sub = add("init", "make an authority: an ECDSA key and its certificate")
    sub.add_argument("--name", metavar="TEXT", help="its common name [cutthrough CA, "
                     "part of the key's digest, and this host's name]")
    sub.add_argument("--days", type=lifetime, default=730, metavar="N",
                     help="how long it is valid [730]")
    sub.add_argument("--permit", action="append", default=[], metavar="DOMAIN|NETWORK",
                     help="what it may sign for: a domain with all names below it, an "
                     "address or a network; repeatable [every name]")
    sub.add_argument("--key", metavar="URI", help="its key in a PKCS#11 token: "
                     "pkcs11:token=…;object=…?module-path=…&pin-source=… [an ECDSA key "
                     "is made]")
    add_force(sub)
    add("show", "print subject, validity, fingerprint, constraints and the key's path")
    sub = add("export", "write the certificate, and never the key")
    sub.add_argument("--format", default="pem",
                     choices=("pem", "der", "p12", "bundle"), help="p12: a truststore; "
                     "bundle: together with the system's roots, and print lines for a "
                     "shell [pem]")
    sub.add_argument("--output", metavar="FILE", help="[standard output; of a bundle: "
                     "bundle.pem in the authority's directory]")
    add_force(sub)
    sub = add("trust", "print who trusts the certificate, and the command that adds "
              "it; exit 1 if a store does not")
    way = sub.add_mutually_exclusive_group(required=True)
    way.add_argument("--check", action="store_true", help="nothing is changed")
    way.add_argument("--install", action="store_true", help="run these commands for "
                     "the system, NSS and Java, and print the ones that undo them")
    sub = add("issue", "make the key and the certificate of a server")
    sub.add_argument("names", nargs="*", metavar="NAME",
                     help="host name, *.NAME or address")
    sub.add_argument("--like", metavar="FILE", help="a certificate in PEM whose names "
                     "are taken too")
    sub.add_argument("--days", type=lifetime, default=197, metavar="N",
                     help="how long it is valid, 197 at most [197]")
    sub.add_argument("--output", metavar="PATH", help="path of both files without .pem "
                     "and .key [the first name]")
    add_force(sub)


def add_force(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--force", action="store_true", help="replace what exists")


def lifetime(text: str) -> int:
    """The days of a certificate: up to ten years, as mkcert has them."""
    days = int(text)
    if not 1 <= days <= 3650:
        raise ValueError
    return days


def add_console(verb: argparse.ArgumentParser, name: str) -> None:
    add_listener(verb, "admin")
    add_fleet(verb)
    if name == "top":
        verb.add_argument("--interval", type=seconds, default=1.0, metavar="SECONDS",
                          help="time between two updates [1]")
        verb.add_argument("--count", type=number, default=0, metavar="N",
                          help="number of updates, 0: until stopped [0; without a "
                          "terminal 1]")
        return
    if name not in ("conns", "kill"):
        return
    for field, term in TERMS.items():
        verb.add_argument(flag_name(field), metavar=term.metavar, help=term.help)
    verb.add_argument("--all", action="store_const", const="true",
                      help="every connection")
    if name == "conns":
        verb.add_argument("--json", action="store_true", help="print JSON, one "
                          "connection a line")
        verb.add_argument("--trace", metavar="ID", help="print the last events of the "
                          "connection with this id")


def add_listener(verb: argparse.ArgumentParser, name: str) -> None:
    verb.add_argument("--admin", metavar="HOST:PORT|unix:PATH", dest=name,
                      help="address of the admin listener [CUTTHROUGH_ADMIN]")
    verb.add_argument("--token-file", metavar="FILE",
                      help="file with its token [CUTTHROUGH_ADMIN_TOKEN_FILE, or the "
                      "token in CUTTHROUGH_ADMIN_TOKEN]")


def seconds(text: str) -> float:
    """The time between two updates of `top`."""
    value = float(text)
    if not 0.01 <= value <= 86400:           # nor NaN
        raise ValueError
    return value
