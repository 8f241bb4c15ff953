"""Every committed input again, and a while of new ones made from them.

Runs on the build in place: under `make asan` the corpus meets the sanitizers.
Without libFuzzer there is no feedback from the C here; the corpus has its edges.
CUTTHROUGH_FUZZ_SECONDS is for all targets together.
"""

import asyncio
import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import MOST_BYTES
from tests.fuzz.corpus import escape, read_corpus
from tests.fuzz.session import Stage
from tests.fuzz.targets import TARGETS
from tests.wire.cases import unescape

SECONDS = float(os.environ.get("CUTTHROUGH_FUZZ_SECONDS", "10"))
NAMES = [*TARGETS, "session"]
WORDS = [
    unescape(word) for word in re.findall(
        '^"(.*)"$', (Path(__file__).parent / "http.dict").read_text(), re.M)]

Target = Callable[[bytes], None]


@contextlib.contextmanager
def opened(name: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
           ) -> Iterator[Target]:
    if name in TARGETS:
        yield TARGETS[name]
        return
    with contextlib.closing(Stage(new_loop)) as stage:
        yield stage.play


def uvloop_loop() -> asyncio.AbstractEventLoop:
    return pytest.importorskip("uvloop").new_event_loop()


def give(target: Target, data: bytes) -> None:
    try:
        target(data)
    except Exception as error:
        error.add_note(f"the input, for the corpus: {escape(data)}")
        raise


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_finds_nothing(name: str) -> None:
    inputs = read_corpus(name)
    assert inputs
    with opened(name, asyncio.new_event_loop) as target:
        for data in inputs:
            give(target, data)


def test_the_corpus_finds_nothing_under_uvloop() -> None:
    with opened("session", uvloop_loop) as target:
        for data in read_corpus("session"):
            give(target, data)


@pytest.mark.parametrize("name", NAMES)
def test_a_while_of_fuzzing_finds_nothing(name: str) -> None:
    inputs = read_corpus(name)
    # The same inputs in the same order each time: a failure can be seen again.
    chance = random.Random(name)
    deadline = time.monotonic() + SECONDS / len(NAMES)
    with opened(name, asyncio.new_event_loop) as target:
        while time.monotonic() < deadline:
            give(target, mutate(chance, inputs))


def mutate(chance: random.Random, inputs: list[bytes]) -> bytes:
    data = chance.choice(inputs)
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((0, 0, 1, 1, 4, 30)))
        other = chance.choice(inputs)
        data = data[:start] + chance.choice((
            b"", bytes([chance.randrange(256)]), chance.choice(WORDS),
            data[start:end] * 2,
            other[chance.randint(0, len(other)):])) + data[end:]
    return data


def test_each_target_has_a_longest_input() -> None:
    """`make fuzz` left out the targets of HTTP/2: it runs those of MOST_BYTES."""
    assert set(MOST_BYTES) == set(NAMES)


def test_an_input_is_written_as_it_is_read() -> None:
    every = bytes(range(256)) + b"\\x41\\\\"
    assert unescape(escape(every)) == every
    assert "\n" not in escape(every)
