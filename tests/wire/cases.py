"""Reads the literate cases: Markdown with examples that are the tests.

A case is a `##` heading, the sentence that is true, and fenced blocks below it; each
block is known by its info string. In a block that holds bytes every line ends in CRLF
unless its last character is a backslash, and \\r \\n \\t \\0 \\xHH \\\\ are escapes
as in C. Tables are read too: each row is a case, its cells the columns.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent / "cases"
ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([rnt0\\]))")
MEANING = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


class Case(NamedTuple):
    title: str
    blocks: dict[str, str]

    def octets(self, name: str) -> bytes:
        """The block as the bytes that it describes."""
        out = b""
        for line in self.blocks[name].splitlines():
            joined = re.search(r"(?<!\\)(\\\\)*\\$", line) is not None
            out += unescape(line[:-1] if joined else line)
            out += b"" if joined else b"\r\n"
        return out

    def words(self, name: str) -> list[str]:
        return self.blocks[name].splitlines()


def unescape(text: str) -> bytes:
    def meaning(match: re.Match[bytes]) -> bytes:
        return bytes.fromhex(match[1].decode()) if match[1] else MEANING[match[2]]

    return ESCAPE.sub(meaning, text.encode())


def read_cases(name: str) -> list[Case]:
    """Every heading of cases/<name>.md that has blocks."""
    cases = []
    for section in re.split(r"^## ", (HERE / f"{name}.md").read_text(), flags=re.M)[1:]:
        title = section.partition("\n")[0]
        blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", section, re.M | re.S))
        if blocks:
            cases.append(Case(title, blocks))
    return cases


def read_tables(name: str) -> list[tuple[str, list[str]]]:
    """Every table row of cases/<name>.md, with the heading that it stands under."""
    rows, title = [], ""
    for line in (HERE / f"{name}.md").read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| `"):
            cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            rows.append((title, cells))
    return rows


def as_params(*names: str) -> list:
    """read_cases() for pytest.mark.parametrize, named by their sentences."""
    return [pytest.param(case, id=case.title) for n in names for case in read_cases(n)]
