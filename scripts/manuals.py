#!/usr/bin/env python3
"""Writes manual pages and completions of shells, from the parser and the options.

    scripts/manuals.py DIRECTORY

DIRECTORY gets what a package has in /usr/share: cutthrough(1), cutthrough.toml(5), and
completions for bash, zsh and fish, made by shtab, which only this script needs.
SOURCE_DATE_EPOCH is the date of the pages, in seconds.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import shtab

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import cutthrough
from cutthrough.cli.arguments import SOURCES
from cutthrough.cli.verbs import make_parser
from cutthrough.config.config import DEFAULTS, OPTIONS, TABLES
from cutthrough.config.option import Option, defaults_of
from cutthrough.config.settings import flag_name, variable_name
from cutthrough.tools.config_docs import OPENING, default, takes

COMPLETIONS = {
    "bash": "bash-completion/completions/cutthrough",
    "zsh": "zsh/vendor-completions/_cutthrough",
    "fish": "fish/vendor_completions.d/cutthrough.fish",
}
COMPLETED = {"FILE": "file", "PATH": "file", "ARCHIVE": "file", "DIR": "directory",
             "DIRECTORY": "directory"}
SIGNALS = {
    "TERM, QUIT": "Stop accepting, let requests and tunnels run until drain_timeout, "
    "exit with 0.",
    "INT, or a second TERM": "End immediately.",
    "HUP": "Read the files and the environment again; if there is any mistake, nothing "
    "changes.",
    "USR1": "Reopen the access log.",
    "USR2": "Start the program again, which takes over the listening sockets and the "
    "tunnels that can move; the old one drains.",
}
STATUS = {
    "0": "Done; of a server: it has ended as it was told to.",
    "1": "The work failed; of verbs that test something: the answer is no.",
    "2": "The command line or the configuration cannot be used; standard error has "
    "each mistake with its file, line and key.",
    "3": "Of run: requests had no recording.",
}
FILES = {
    "/etc/cutthrough/cutthrough.toml": "The configuration of the systemd unit.",
    "/etc/cutthrough/password": "The password of that configuration's user, for root "
    "alone.",
}


def header(name: str, section: int, text: str) -> Iterator[str]:
    date = datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.now().timestamp()), UTC)
    yield (f'.TH "{name.upper()}" {section} "{date:%Y-%m-%d}" '
           f'"cutthrough {cutthrough.__version__}"')
    yield from (".nh", ".ad l", ".SH NAME", f"{roff(name)} \\- {roff(text)}")


def roff(text: str) -> str:
    """A line of Markdown or plain text as troff's: code and stress get fonts."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"\[([^][]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"`([^`]+)`|\*\*(.+?)\*\*", r"\\fB\1\2\\fR", text)
    text = re.sub(r"\*(\w[^*]*)\*", r"\\fI\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text)


def prose(markdown: str) -> Iterator[str]:
    """Paragraphs, lists and code of Markdown."""
    for block in markdown.strip("\n").split("\n\n"):
        if block.startswith("    "):
            yield from (".PP", ".RS 4", ".nf", *map(roff, block.replace(
                "\n    ", "\n").removeprefix("    ").split("\n")), ".fi", ".RE")
        elif block.startswith("- "):
            for item in block.removeprefix("- ").split("\n- "):
                yield from (".IP \\(bu 2", roff(" ".join(item.split())))
        elif not block.startswith("# "):
            yield from (".PP", roff(" ".join(block.split())))


def listed(rows: dict[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield from (".TP", f"\\fB{roff(name)}\\fR", roff(text))


# cutthrough(1)

def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields the actions of this verb alone, without the options and without
    subordinate verbs."""
    for group in parser._action_groups[:2]:
        for action in group._group_actions:
            if not isinstance(action, (argparse._HelpAction,
                                       argparse._SubParsersAction)):
                yield action


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def describe_verb(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f'.SS "{roff(parser.prog)}"', roff(parser.description or ""))
    formatter = parser._get_formatter()
    for action in actions_of(parser):
        names = ", ".join(f"\\fB{roff(name)}\\fR" for name in action.option_strings)
        metavar = action.metavar or "|".join(action.choices or ())
        value = f"\\fI{roff(str(metavar))}\\fR" if action.nargs != 0 else ""
        text = formatter._expand_help(action) if action.help else ""
        yield from (".TP", f"{names} {value}".strip(), roff(text) or "\\&")
    if len(parser._action_groups) > 2:
        yield from (".TP", "\\fB\\-\\-OPTION\\fR \\fIVALUE\\fR",
                    "Any option of \\fBcutthrough.toml\\fR(5), as a flag.")
    for verb in verbs_of(parser):
        yield from describe_verb(verb)


def program_page(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from header("cutthrough", 1, "a forward proxy")
    yield from (".SH SYNOPSIS", "\\fBcutthrough\\fR \\fIVERB\\fR [\\fB\\-c\\fR "
                "\\fIFILE\\fR] [\\fB\\-\\-OPTION\\fR \\fIVALUE\\fR ...]")
    yield from (".SH DESCRIPTION", "A forward proxy for HTTP, CONNECT and SOCKS.",
                *prose(SOURCES), ".SH VERBS")
    for verb in verbs_of(parser):
        yield from describe_verb(verb)
    yield from (".SH SIGNALS", *listed(SIGNALS), ".SH EXIT STATUS", *listed(STATUS))
    yield from (".SH FILES", *listed(FILES), ".SH SEE ALSO",
                "\\fBcutthrough.toml\\fR(5)")


# cutthrough.toml(5)

def describe_option(name: str, option: Option, value: object) -> Iterator[str]:
    secret = "; secret" if option.file else ""
    reload = "swapped" if option.swapped else "new workers"
    yield from (".TP", f"\\fB{roff(name)}\\fR",
                roff(f"{takes(option.kind)}{secret}: {option.help}"), ".br",
                roff(f"Default: {default(option, value)}"), ".br",
                roff(f"Reload: {reload}"))


def file_page() -> Iterator[str]:
    yield from header("cutthrough.toml", 5, "configuration of the proxy cutthrough")
    yield from (".SH DESCRIPTION", "A file of \\fBcutthrough\\fR(1), in TOML.")
    yield from prose(OPENING.partition("change it there.")[2].replace(
        "last column", "last line of an option"))
    for name, option in OPTIONS.items():
        if option.section:
            yield f'.SH "{roff(option.section.upper())}"'
        yield from describe_option(name, option, DEFAULTS[name])
    for name, table in TABLES.items():
        yield from (f'.SH "{roff(table.header(name))}"', roff(table.help))
        for key, value in defaults_of(table.row).items():
            if key in table.options and not table.options[key].file:
                yield from describe_option(key, table.options[key], value)
    yield from (".SH ENVIRONMENT AND FLAGS", "Of \\fBhead_timeout\\fR the variable is "
                f"\\fB{variable_name('head_timeout')}\\fR and the flag "
                f"\\fB{roff(flag_name('head_timeout'))}\\fR, and so of every option.",
                ".SH SEE ALSO", "\\fBcutthrough\\fR(1)")


# Completion

def add_values(parser: argparse.ArgumentParser) -> None:
    """Notes for shtab which values are files, and which are the metavar's words."""
    for action in parser._actions:
        metavar = str(action.metavar)
        words = [word.rstrip("…") for word in metavar.split("|")
                 if re.fullmatch("[a-z_0-9]+…?", word)]
        if metavar in COMPLETED:
            action.__dict__["complete"] = COMPLETED[metavar]
        elif words and not action.choices:
            action.choices = words
    for verb in verbs_of(parser):
        add_values(verb)


def main() -> int:
    folder = Path(sys.argv[1])
    parser = make_parser()
    files = {"man/man1/cutthrough.1": program_page(parser),
             "man/man5/cutthrough.toml.5": file_page()}
    texts = {name: "\n".join(lines) + "\n" for name, lines in files.items()}
    add_values(parser)
    texts |= {name: shtab.complete(parser, shell) + "\n"
              for shell, name in COMPLETIONS.items()}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
