"""The arguments of those actions of `cutthrough flows` that are about breakpoints."""

import argparse
from collections.abc import Callable
from typing import Any

from cutthrough.cli.fleet import add_fleet

# Of the admin listener, and not of a database
HELD = ("held", "arm", "disarm", "resume", "edit", "abort")


def add_held(actions: Any,
             add_listener: Callable[[argparse.ArgumentParser, str], None]) -> None:
    def add(name: str, text: str, *, has_id: bool = False) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False)
        parser.set_defaults(own=parser)
        add_listener(parser, "admin")
        if has_id:
            parser.add_argument("id", metavar="ID", help="as `held` prints it")
        return parser

    sub = add("held", "list what breakpoints hold, or show one with its body")
    sub.add_argument("id", metavar="ID", nargs="?", help="this one, with its body")
    sub.add_argument("--json", action="store_true", help="print JSON")
    add_fleet(sub)
    sub = add("arm", "have breakpoints of rules hold requests and responses")
    sub.add_argument("seconds", metavar="SECONDS", nargs="?", type=float,
                     default=600.0, help="for so long, 3600 at most [600]")
    for name, text in (("host", "of this host, or *.HOST for those below"),
                       ("method", "with this method"),
                       ("path", "with this path, as /api/**")):
        sub.add_argument(f"--{name}", metavar=name.upper(), action="append", default=[],
                         help=f"hold only requests {text}; may be repeated")
    add_fleet(sub)
    add_fleet(add("disarm", "let go what is held, and hold nothing more"))
    add("resume", "let one go on unchanged", has_id=True)
    add("abort", "refuse one", has_id=True)
    sub = add("edit", "let one go on, changed", has_id=True)
    sub.add_argument("--method", metavar="METHOD", help="of a request")
    sub.add_argument("--path", metavar="PATH", help="of a request, with its query")
    sub.add_argument("--status", metavar="N", type=int, help="of a response")
    sub.add_argument("-H", "--header", metavar="NAME: VALUE", action="append",
                     default=[], help="a field, instead of those of this name; "
                     "without a value: none of this name; may be repeated")
    sub.add_argument("--data-file", metavar="FILE", help="the body, instead of its "
                     "own")
    sub.add_argument("--hold-body", action="store_true", help="hold it again when its "
                     "body is there")
