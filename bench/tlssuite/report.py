"""What differs between a server of ours and nginx, and why."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.tlssuite.cases import Verdicts, differences

# By the name of the server and of the script
Results = dict[str, dict[str, Verdicts]]

HERE = Path(__file__).resolve().parent
LENGTH = re.compile(r"\(len=\d+\)")

@dataclass
class Known:
    """A line of known.toml."""

    reason: str
    server: str             # patterns, as of file names
    script: str
    conversation: str
    used: bool = False

    def fits(self, server: str, script: str, conversation: str) -> bool:
        return all(fnmatch.fnmatchcase(text, pattern) for text, pattern in (
            (server, self.server), (script, self.script),
            (conversation, self.conversation)))


def read_known() -> list[Known]:
    rows = tomllib.loads((HERE / "known.toml").read_text()).get("because", [])
    return [Known(row["reason"], server, script, conversation)
            for row in rows for server in row["servers"]
            for script, some in row["conversations"].items()
            for conversation in some]


def nginx_like(server: str) -> str:
    """Nginx with the same key and suites."""
    kind, key, *_ = server.split(", ")
    return "nginx, ecdsa, our suites" if kind == "interception" else f"nginx, {key}"


def plain(verdict: str) -> str:
    """Without the length of an answer: each server has its own page."""
    return LENGTH.sub("", verdict)


def report(results: Results, whole: bool, known: list[Known] | None = None) -> int:
    """Print what differs; return the exit status. `whole`: all scripts were run."""
    known = read_known() if known is None else known
    wrong = 0
    rows = []
    for server, ours in results.items():
        passed = sum(not one for some in ours.values() for one in some.values())
        row = Counter(passes=passed, fails=sum(map(len, ours.values())) - passed)
        if not server.startswith("nginx"):
            theirs = results[nginx_like(server)]
            print(f"\n{server}")
            for script, some in sorted(ours.items()):
                nginx = theirs.get(script, {})
                row["compared"] += len(some.keys() & nginx.keys())
                row["other"] += sum(
                    bool(one and nginx.get(name)) and plain(one) != plain(nginx[name])
                    for name, one in some.items())
                for name in differences(some, nginx):
                    row["worse" if some[name] else "better"] += 1
                    why = next((one for one in known
                                if one.fits(server, script, name)), None)
                    if why is not None:
                        why.used = True
                    wrong += why is None
                    print(f"  {script}: {name}\n"
                          f"    ours: {some[name] or 'as demanded'}\n"
                          f"    nginx: {nginx[name] or 'as demanded'}\n"
                          f"    {why.reason if why else 'NOT EXPLAINED'}")
        rows.append((server, len(ours), row))
    for one in known:
        if whole and not one.used:
            print(f"\n{one.server}: {one.script}: {one.conversation}: no such "
                  "difference: take it out of known.toml")
            wrong += 1
    columns = ("passes", "fails", "compared", "worse", "better", "other")
    print(f"\n{'':28}scripts" + "".join(f"{name:>9}" for name in columns))
    for server, n, row in rows:
        print(f"{server:28}{n:>7}" + "".join(f"{row[name]:>9}" for name in columns))
    print("worse, better: another verdict than nginx's; other: fails, as with nginx, "
          "but by another message")
    return 1 if wrong else 0
