"""How much of real files of other programs comes in?

Reads each file below a directory as `recordings import` and `flows import` do, into no
database, and prints for each program that wrote them: files, entries, how many came in
as recordings and as captures, and the rest by reasons, with their counts. Entries that
are none of HTTP or have no request, and files of no known form, are counted apart. Exit
status 1: less than a goal came in, or there was nothing.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cutthrough.exchange.formats.imported import (
    Altered,
    NotImported,
    OtherProtocol,
    make_redactor,
    make_row,
)
from cutthrough.exchange.formats.reader import read
from cutthrough.recording.formats.files import UNKNOWN, read_recordings

# Percent of the entries: of the kind of import that is usual for a program
GOALS = {"VCR.py": 99.0, "HAR": 97.0, "hoverfly": 95.0, "mitmproxy": 100.0}
AS_CAPTURES = ("HAR", "mitmproxy")
MOST_REASONS = 12
NO_PAIR = "has no `request`"
# In front of a reason: which entry it is
_PLACE = re.compile(r"(?:(?:interaction|pair|flow|exchange) \d+|log\.entries\[\d+\]|"
                    r"[\w-]{1,60}): ")
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d+\b")


@dataclass
class Tally:
    """The sums over the files of one program."""

    files: int = 0
    entries: int = 0
    recordings: int = 0
    captures: int = 0
    others: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)

    def name(self, kind: str, reason: object) -> None:
        text = _VALUE.sub("…", _PLACE.sub("", str(reason), count=1))
        self.reasons.setdefault(kind, Counter())[text[:150]] += 1


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.import_campaign", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--replay", type=int, default=0, metavar="N",
                        help="and asks a proxy for so many of the recordings")
    given = parser.parse_args(args)
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is no directory")
    tallies: dict[str, Tally] = {}
    strange, broken = 0, list[str]()
    for path in files_below(given.directory):
        try:
            take(path, tallies)
        except NotImported as error:
            if str(error) in (UNKNOWN, "is empty"):
                strange += 1
            else:
                broken.append(f"{path.relative_to(given.directory)}: {error}")
    for program, tally in sorted(tallies.items()):
        print("\n".join(lines_of(program, tally)))
    print(f"files of no known form: {strange}; that could not be read: {len(broken)}")
    print("\n".join(f"    {line:.200}" for line in broken))
    missed = not tallies or any(
        share(tally, program) < goal for program, goal in GOALS.items()
        if (tally := tallies.get(program)) and tally.entries)
    if given.replay:
        from bench.import_replay import run  # here: it needs httpx
        missed |= run(list(files_below(given.directory)), given.replay) != 0
    return int(missed)


def files_below(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*"))
            if path.is_file() and not path.is_symlink())


def take(path: Path, tallies: dict[str, Tally]) -> None:
    """Raises NotImported."""
    contents = read_recordings(path)
    program = contents.program
    tally = tallies.setdefault(program, Tally())
    tally.files += 1
    for item in contents.items:
        if isinstance(item, OtherProtocol):
            tally.others[item.kind] += 1
        elif isinstance(item, NotImported) and str(item).endswith(NO_PAIR):
            tally.others[NO_PAIR] += 1
        elif isinstance(item, Altered):
            tally.name("came in, but", item)
        else:
            tally.entries += 1
            if isinstance(item, NotImported):
                tally.name("no recording", item)
            else:
                tally.recordings += 1
    if program in AS_CAPTURES:
        take_captures(path, tally)


def take_captures(path: Path, tally: Tally) -> None:
    redactor = make_redactor(keep_credentials=False)
    with path.open("rb") as file:
        for item in read(file, redactor):
            try:
                if isinstance(item, NotImported):
                    raise item
                make_row(item, redactor)
                tally.captures += 1
            except OtherProtocol:
                continue
            except NotImported as error:
                tally.name("no capture", error)


def share(tally: Tally, program: str) -> float:
    """Percent that came in."""
    came = tally.captures if program in AS_CAPTURES else tally.recordings
    return 100 * came / tally.entries


def lines_of(program: str, tally: Tally) -> Iterator[str]:
    captures = f", {tally.captures} as captures" if program in AS_CAPTURES else ""
    goal = f", goal {GOALS[program]:.0f} %" if program in GOALS else ""
    came = f" ({share(tally, program):.2f} %{goal})" if tally.entries else ""
    yield (f"{program}: {tally.files} files, {tally.entries} entries: "
           f"{tally.recordings} as recordings{captures}{came}")
    for kind, count in tally.others.most_common():
        yield f"    {count:6} not counted: {kind}"
    for what, reasons in tally.reasons.items():
        for reason, count in reasons.most_common(MOST_REASONS):
            yield f"    {count:6} {what}: {reason}"


if __name__ == "__main__":
    sys.exit(main())
