"""docs/standards.md tells the truth: every file and every test that it names exists.

And some requirements that no other test shows, played through the whole proxy.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.session import Stage

TREE = Path(__file__).resolve().parent.parent
TEXT = (TREE / "docs" / "standards.md").read_text()
HEADING = re.compile(r"\| (§|requirement|rule) \|")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not HEADING.match(line)]
# Rules that the proxy does not meet yet stand under "Not done".
RULES = {f"R{n}" for n in (*range(1, 41), *range(43, 54), 55, 56, 62, 58, 59,
                            *range(63, 95))}


def names_of_tests() -> set[str]:
    found: set[str] = set()
    for file in (TREE / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M))
    return found


def test_every_file_named_exists() -> None:
    named = re.findall(r"`((?:cutthrough|tests)/[\w/.]+)`", TEXT)
    assert len(named) > 50
    missing = [name for name in set(named) if not (TREE / name).exists()]
    assert not missing


def test_every_test_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 60
    assert not named - names_of_tests()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:2])[:60])
def test_every_requirement_has_a_place_and_a_test(row: list[str]) -> None:
    assert re.fullmatch(r"(`test_\w+` ?)+", row[-1]), row
    if not re.fullmatch(r"R[0-9]+", row[0]):
        assert re.fullmatch(r"(`[\w/.]+` ?)+", row[-2]), row


def test_every_rule_of_the_wire_has_a_row_or_says_why_not() -> None:
    told = {row[0] for row in ROWS if re.fullmatch(r"R[0-9]+", row[0])}
    not_done = set(re.findall(r"\*\*(R[0-9]+):\*\*", TEXT))
    assert told | not_done == RULES
    assert not told & not_done


@pytest.fixture
def stage() -> Iterator[Stage]:
    with contextlib.closing(Stage(asyncio.new_event_loop)) as made:
        yield made


GET = b"\xffcGET http://{h}/ HTTP/1.1\r\nHost: a\r\n{a}\r\n"


def test_a_response_without_a_date_gets_one(stage: Stage) -> None:
    # RFC 9110 section 6.6.1.
    date = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    stage.play(GET + b"\xffoHTTP/1.1 204 No\r\n\r\n"
               + GET + b"\xffoHTTP/1.1 204 No\r\n" + date + b"\r\n")
    first, second = stage.clients[0].heard.split(b"HTTP/1.1 204 No\r\n")[1:]
    assert re.search(rb"^Date: \w{3}, [0-9]{2} \w{3} 20[0-9 :]+ GMT\r$", first, re.M)
    assert second.count(b"Date: ") == 1
    assert date in second


def test_interim_responses_go_on_in_order(stage: Stage) -> None:
    # RFC 9110 section 15.2.
    stage.play(GET + b"\xffoHTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Go"
               b"\xffo\r\n\r\nHTTP/1.1 102 X\r\n\r\nHTTP/1.1 204 No\r\n\r\n")
    heard = stage.clients[0].heard
    assert re.findall(rb"HTTP/1.1 ([0-9]+)", heard) == [b"103", b"100", b"102", b"204"]
    assert b"Link: a\r\n" in heard
