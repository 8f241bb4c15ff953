"""The arguments of those actions of `cutthrough flows` that are about breakpoints."""

import argparse
from collections.abc import Callable
from typing import Any

# Of the admin listener, and not of a database
HELD = ("held", "arm", "disarm", "resume", "edit", "abort")


def add_held(actions: Any,
             add_listener: Callable[[argparse.ArgumentParser, str], None]) -> None:
    def add(name: str, text: str, *, one: bool = False) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(own=made)
        add_listener(made, "admin")
        if one:
            made.add_argument("id", metavar="ID", help="as `held` prints it")
        return made

    made = add("held", "list what breakpoints hold, or show one with its body")
    made.add_argument("id", metavar="ID", nargs="?", help="this one, with its body")
    made.add_argument("--json", action="store_true", help="print JSON")
    made = add("arm", "have breakpoints of rules hold requests and responses")
    made.add_argument("seconds", metavar="SECONDS", nargs="?", type=float,
                      default=600.0, help="for so long, 3600 at most [600]")
    add("disarm", "let go what is held, and hold nothing more")
    add("resume", "let one go on unchanged", one=True)
    add("abort", "refuse one", one=True)
    made = add("edit", "let one go on, changed", one=True)
    made.add_argument("--method", metavar="METHOD", help="of a request")
    made.add_argument("--path", metavar="PATH", help="of a request, with its query")
    made.add_argument("--status", metavar="N", type=int, help="of a response")
    made.add_argument("-H", "--header", metavar="NAME: VALUE", action="append",
                      default=[], help="a field, instead of those of this name; "
                      "without a value: none of this name; may be repeated")
    made.add_argument("--data-file", metavar="FILE", help="the body, instead of its "
                      "own")
    made.add_argument("--hold-body", action="store_true", help="hold it again when its "
                      "body is there")
