"""The arguments of `cutthrough flows`."""

import argparse
from collections.abc import Callable

from cutthrough.cli.held import add_held

VIEWS = ("auto", "text", "json", "form", "html", "xml", "hex", "grpc", "protobuf",
         "msgpack", "graphql")
FORMS = ("curl", "fetch", "httpx", "json")           # of a copy
OPEN = "list flows that have not ended, by the admin listener"

AddListener = Callable[[argparse.ArgumentParser, str], None]


def add_flows(verb: argparse.ArgumentParser, add_listener: AddListener) -> None:
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        parser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False)
        parser.set_defaults(own=parser)
        parser.add_argument("--file", metavar="FILE", help="database that capture_file "
                            "names [CUTTHROUGH_CAPTURE_FILE]")
        parser.add_argument("--url-file", metavar="FILE", help="file with the URL of "
                            "PostgreSQL [CUTTHROUGH_CAPTURE_URL_FILE, or the URL in "
                            "CUTTHROUGH_CAPTURE_URL]")
        add_admin(parser)
        return parser

    sub = add("list", "list captured flows, newest first")
    add_filter(sub, 100)
    add_json(sub)
    sub = add("follow", "list flows as they are captured, until it is interrupted")
    add_filter(sub)
    sub.add_argument("-n", "--lines", type=number, metavar="N", default=10,
                     help="begin with the newest N [10]")
    sub.add_argument("--open", action="store_true", help="also each one when it has "
                     "begun, with --admin")
    add_json(sub)
    sub = actions.add_parser("open", help=OPEN, description=OPEN, allow_abbrev=False)
    sub.set_defaults(own=sub)
    add_listener(sub, "admin")
    add_filter(sub)
    sub.add_argument("--id", metavar="ID", help="show this one, as far as it has come")
    sub.add_argument("-f", "--follow", action="store_true", help="print its messages "
                     "as they come, until it ends")
    add_json(sub)
    sub = add("show", "show all of one flow")
    add_number(sub)
    sub.add_argument("--view", choices=VIEWS, default="auto",
                     help="form of the bodies [auto: by their types]")
    sub.add_argument("--body", choices=("request", "response"),
                     help="print this body alone, as its bytes are kept")
    add_json(sub)
    sub = add("search", "list flows that have all these words")
    sub.add_argument("words", metavar="WORD", nargs="+", help="words of URLs, heads "
                     "and bodies; all must be there")
    sub.add_argument("--filter", metavar="FILTER", nargs=1, default=[],
                     help="and that pass, as '~program edge1 & ~c 404'")
    add_limit(sub, 100)
    add_json(sub)
    sub = add("hosts", "count the flows of each host, their bytes and failures")
    add_filter(sub)
    sub.add_argument("--limit", type=number, metavar="N", default=50,
                     help="the N with the most flows, 0: all [50]")
    add_json(sub)
    sub = add("slowest", "list the slowest flows, without tunnels")
    add_filter(sub)
    sub.add_argument("--limit", type=number, metavar="N", default=20,
                     help="so many [20]")
    add_json(sub)
    sub = add("export", "write flows as an HTTP Archive (HAR 1.2)")
    add_filter(sub, 0)
    sub.add_argument("-o", "--output", metavar="FILE", help="write to this file, "
                     "readable by its owner alone [standard output]")
    sub.add_argument("--id", metavar="ID", type=number, default=0,
                     help="this one alone")
    sub = add("copy", "print the request as a command of curl, a call, or JSON")
    add_number(sub)
    sub.add_argument("--as", dest="form", choices=FORMS, default="curl",
                     help="[curl]")
    sub = add("diff", "print the lines in which two flows differ; exit 1 if they do")
    add_number(sub)
    sub.add_argument("other", metavar="OTHER", type=number, help="the other's number")
    sub = add("import", "add exchanges of an HTTP Archive or a dump of mitmproxy")
    sub.add_argument("files", metavar="ARCHIVE", nargs="+", help="*.har of a browser, "
                     "of mitmproxy or of export, or a file of mitmdump -w; - is "
                     "standard input")
    sub.add_argument("--keep-credentials", action="store_true", help="do not redact "
                     "Authorization, Cookie and their kin")
    add_replay(add("replay", "send a captured request once more, through a proxy"))
    text = "send a new request through a proxy"
    sub = actions.add_parser("send", help=text, description=text, allow_abbrev=False)
    sub.set_defaults(own=sub)
    add_admin(sub)
    sub.add_argument("url", metavar="URL", nargs="?")
    sub.add_argument("--curl", metavar="FILE", help="in place of URL: a command of "
                     "curl, as browsers copy it; - is standard input")
    add_request(sub, "[GET, and POST with a body]", "")
    add_json(sub)
    sub = add("tag", "set the tag or the comment of a flow; \"\" removes it")
    add_number(sub)
    sub.add_argument("--tag", metavar="TEXT")
    sub.add_argument("--comment", metavar="TEXT")
    sub = add("delete", "delete flows for good")
    sub.add_argument("filter", metavar="FILTER", nargs="*", help="those that pass")
    sub.add_argument("--id", metavar="ID", type=number, action="append", default=[],
                     help="this one; may be repeated")
    sub.add_argument("--all", action="store_true", help="every flow")
    add("reads", "list who has read the database")
    add_held(actions, add_listener)


def add_admin(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--admin", metavar="HOST:PORT|unix:PATH",
                      help="by the admin listener there, not from a database")
    verb.add_argument("--token-file", metavar="FILE", help="file with its token "
                      "[CUTTHROUGH_ADMIN_TOKEN_FILE, or the token in "
                      "CUTTHROUGH_ADMIN_TOKEN]")


def add_filter(verb: argparse.ArgumentParser, limit: int | None = None) -> None:
    verb.add_argument("filter", metavar="FILTER", nargs="*",
                      help="as ~d host, ~c 404, !~m GET; docs/capture.md")
    if limit is not None:
        add_limit(verb, limit)


def add_limit(verb: argparse.ArgumentParser, limit: int) -> None:
    verb.add_argument("--limit", type=number, metavar="N", default=limit,
                      help=f"the newest N, 0: all [{limit or 'all'}]")


def add_number(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("id", metavar="ID", type=number, help="number of the flow")


def add_json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def add_replay(action: argparse.ArgumentParser) -> None:
    add_number(action)
    action.add_argument("--url", metavar="URL", help="instead of the flow's")
    add_request(action, "instead of the flow's", ", instead of the flow's")
    action.add_argument("--origin-ca", metavar="FILE", help="without --proxy and "
                        "--admin: as of `cutthrough inspect`, which has kept the flow")
    action.add_argument("--diff", action="store_true", help="print the differences "
                        "from the captured response; exit 1 if there are any")
    add_json(action)


def add_request(action: argparse.ArgumentParser, method: str, body: str) -> None:
    action.add_argument("--proxy", metavar="HOST:PORT", help="the proxy, a listener "
                        "for plain HTTP [with --admin: one of its program]")
    action.add_argument("--user", metavar="NAME", default="", help="user of the proxy "
                        "[none]")
    action.add_argument("--password-file", metavar="FILE", help="its password")
    add_cacert(action)
    action.add_argument("--method", metavar="METHOD", help=method)
    action.add_argument("-H", "--header", metavar="NAME: VALUE", action="append",
                        default=[], help="a field, instead of those of this name; "
                        "without a value: none of this name; may be repeated")
    action.add_argument("--data-file", metavar="FILE", help=f"the body{body}")


def add_cacert(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--cacert", metavar="FILE", help="authorities in PEM that https "
                      "requests trust beside the system's [CUTTHROUGH_INTERCEPT_CA, "
                      "CUTTHROUGH_ORIGIN_CA, and that of `cutthrough ca init`]")


def number(text: str) -> int:
    """A count, or the number of a row: stores have 64 bits with a sign."""
    value = int(text)
    if not 0 <= value < 1 << 63:
        raise ValueError
    return value


def add_inspect(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--listen", metavar="ADDRESS", help="where clients connect "
                      "[127.0.0.1:8888, or the next free port; any free port for a "
                      "COMMAND]")
    verb.add_argument("--admin", metavar="ADDRESS", help="of the page /traffic "
                      "[127.0.0.1:9090, or the next free port; none for a COMMAND]")
    verb.add_argument("--file", metavar="FILE", help="the database of what passes "
                      "[flows.db in DIR]")
    verb.add_argument("--directory", metavar="DIR", help="of what stays the same from "
                      "start to start, such as the password "
                      "[~/.local/state/cutthrough/inspect]")
    verb.add_argument("--ca", metavar="DIR", help="the authority; made if there is "
                      "none [~/.local/share/cutthrough/ca]")
    verb.add_argument("--origin-ca", metavar="FILE", help="authorities in PEM, or the "
                      "certificates of origins, that are trusted beside the system's")
    verb.add_argument("--credentials", action="store_true", help="keep the values of "
                      "Authorization, Cookie and their kin: who reads the database can "
                      "use them")
    verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                      help="options of the proxy, such as connect_timeout")
    verb.add_argument("--system", action="store_true", help="set the desktop's proxy "
                      "until it ends: of GNOME, of KDE, and the variables of sessions "
                      "that begin; desktops do not get its password, browsers ask")
    verb.add_argument("--undo-system", action="store_true", help="undo what an earlier "
                      "--system was killed too early to undo, and end; a start does it "
                      "too")
    verb.add_argument("--env", action="store_true", help="print the variables of a "
                      "shell whose programs go through it, and end")
    verb.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER,
                      help="a command and its arguments, after --; without one it "
                      "serves until it is stopped")
