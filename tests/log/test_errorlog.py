"""The error log: one line each in every form, and never a flood of one message."""

import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cutthrough.log.errorlog import (
    FORMS,
    MOST_KEY,
    MOST_REPEATS,
    ErrorLog,
    make_line,
)


class Said:
    """A logger; its error log goes to a pipe."""

    def __init__(self, form: str) -> None:
        self.read, self.write = self.open()
        os.set_blocking(self.read, False)
        self.handler = self.begin(form)
        self.log = logging.Logger("test", logging.INFO)
        self.log.addHandler(self.handler)

    def open(self) -> tuple[int, int]:
        return os.pipe()

    def begin(self, form: str) -> ErrorLog:
        return ErrorLog(form, "worker 3", self.write)

    def lines(self) -> list[str]:
        try:
            return os.read(self.read, 1 << 20).decode().splitlines()
        except BlockingIOError:
            return []

    def close(self) -> None:
        self.handler.close()
        os.close(self.read)
        os.close(self.write)


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Iterator[Said]:
    made = Said(getattr(request, "param", "text"))
    yield made
    made.close()


class SaidToSocket(Said):
    """… to a stream socket, as systemd has it. No name opens that anew."""

    def open(self) -> tuple[int, int]:
        read, write = socket.socketpair()
        return read.detach(), write.detach()


class SaidToForeignPipe(Said):
    """… to a pipe that cannot be opened anew, of another user perhaps."""

    def begin(self, form: str) -> ErrorLog:
        def refuse(path: str, flags: int) -> int:
            raise PermissionError(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", refuse)
            return super().begin(form)


WICKED = 'a "b"\\\n\x1b[31m = ü'


@pytest.mark.parametrize("said", ["text", "logfmt", "json"], indirect=True)
def test_a_message_is_one_line(said: Said) -> None:
    """R37: with any text in it."""
    said.log.warning("met %s", WICKED, extra={"fields": {"host": WICKED, "n": 3}})
    (line,) = said.lines()
    assert line.isprintable()


@pytest.mark.parametrize("said", ["json"], indirect=True)
def test_json_has_the_message_and_its_fields(said: Said) -> None:
    said.log.warning("met %s", WICKED, extra={"fields": {"host": WICKED, "n": 3}})
    record = json.loads(said.lines()[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", record.pop("time"))
    assert record == {"level": "warning", "source": "worker 3", "pid": os.getpid(),
                      "message": f"met {WICKED}", "host": WICKED, "n": 3}


@pytest.mark.parametrize("said", ["logfmt"], indirect=True)
def test_logfmt_quotes_what_needs_it(said: Said) -> None:
    said.log.error("it failed", extra={"fields": {"host": "a.test", "why": WICKED}})
    line = said.lines()[0]
    assert 'level=error source="worker 3"' in line and " host=a.test " in line
    assert line.endswith(f"why={json.dumps(WICKED)}")


def test_text_is_for_people(said: Said) -> None:
    said.log.info("it began", extra={"fields": {"n": 3, "none": None}})
    assert said.lines() == ["cutthrough: worker 3: it began n=3"]
    assert make_line("text", "", "info", "hello", {}) == "cutthrough: hello"


@pytest.mark.parametrize("said", ["text", "json"], indirect=True)
def test_a_fault_comes_with_its_traceback(said: Said) -> None:
    try:
        raise ValueError("the reason")
    except ValueError:
        said.log.error("a fault", exc_info=sys.exc_info())
    lines = said.lines()
    assert "the reason" in lines[-1] and ("Traceback" in lines[0]) == (len(lines) == 1)


@pytest.mark.parametrize("text", ["the reason", "the reason" + "x" * 100_000])
@pytest.mark.parametrize("said", FORMS, indirect=True)
def test_a_long_traceback_ends_with_what_was_raised(said: Said, text: str) -> None:
    """Of a deep stack the log had the outermost calls alone."""
    def raise_behind(error: BaseException, calls: int) -> None:
        if calls % 2:                   # two lines: repeats of one are left out anyway
            raise_behind(error, calls - 1)
        elif calls:
            raise_behind(error, calls - 1)
        else:
            raise error
    try:
        try:
            raise_behind(KeyError("before"), 200)
        except KeyError:
            raise_behind(ValueError(text), 200)
    except ValueError as error:
        said.log.error("a fault", exc_info=error)
    shown = "\n".join(said.lines())
    assert "Traceback" in shown and "ValueError: the reason" in shown
    assert len(shown) < 20_000


@pytest.mark.parametrize("said", ["json"], indirect=True)
def test_an_endless_recursion_is_soon_logged(said: Said) -> None:
    """Where code had raised the limit of calls, the loop stood still for a second."""
    def call_itself() -> None:
        call_itself()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        call_itself()
    except RecursionError as error:
        began = time.thread_time()
        said.log.error("a fault", exc_info=error)
        assert time.thread_time() - began < 0.4
    finally:
        sys.setrecursionlimit(before)
    assert "RecursionError: maximum" in said.lines()[-1]


@pytest.mark.parametrize("said", FORMS, indirect=True)
def test_of_a_long_text_the_beginning_is_logged(said: Said) -> None:
    """The body that an exception of a filter quoted was escaped for seconds, in the
    loop, and was in the log."""
    try:
        raise ValueError("\x1b" + "x" * 3_000_000)
    except ValueError as error:
        said.log.error("a fault: %s", error, exc_info=error)
    text = "\n".join(said.lines())
    assert "a fault: " in text and "Traceback" in text
    assert text.count("more characters)") == 2 and len(text) < 20_000
    said.log.error("x" * 3_000_000)
    assert all(len(key) <= MOST_KEY for _, key in said.handler._counts)


@pytest.mark.parametrize("said", FORMS, indirect=True)
def test_no_exception_s_text_looks_like_another_line(said: Said) -> None:
    """It may quote wire data: what a hook, a filter or a local origin was given."""
    wire = "x\ncutthrough: generation 7: no changes\r\x1b[2J\x85\u2028\x7f\udc80\u202e"
    try:
        try:
            raise ValueError(wire)
        except ValueError as error:
            raise RuntimeError(wire) from error
    except RuntimeError:
        said.log.error("a fault", exc_info=sys.exc_info())
    text = os.read(said.read, 1 << 20).decode()
    assert "generation 7" in text
    first, *rest = text.removesuffix("\n").split("\n")
    assert "a fault" in first and all(line.startswith("  ") for line in rest)
    assert all(c.isprintable() for c in first + "".join(rest))


def test_of_one_message_so_many_are_said_and_then_how_many_more(
        said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its text before the values: the values differ in every line of a flood."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for n in range(MOST_REPEATS + 25):
        said.log.warning("dial %d failed", n)
    said.log.warning("something else")
    lines = said.lines()
    assert len(lines) == MOST_REPEATS + 1
    assert lines[0].endswith("dial 0 failed") and lines[-1].endswith("something else")
    now[0] += 11
    said.handler.report_suppressed()
    assert said.lines() == [
        'cutthrough: worker 3: more of the same suppressed=25 like="dial %d failed"']
    said.log.warning("dial %d failed", 99)
    assert said.lines() == ["cutthrough: worker 3: dial 99 failed"]
    said.handler.report_suppressed(everything=True)
    assert said.lines() == []


def test_without_a_descriptor_it_is_said_all_the_same() -> None:
    """Of a message with a line's end was left a traceback of its own."""
    code = ("import logging, os, resource\n"
            "from cutthrough.log.errorlog import ErrorLog\n"
            "log = logging.Logger('test'); log.addHandler(ErrorLog('text', ''))\n"
            "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))\n"
            "log.error('out of\\nroom')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "cutthrough: out of\\nroom\n")


def test_a_reader_that_has_gone_is_no_trouble(said: Said) -> None:
    said.handler.close()
    broken = ErrorLog("text", "", fd=1 << 20)
    broken.emit(logging.LogRecord("x", logging.INFO, "", 0, "lost", (), None))


def fill(fd: int) -> None:
    """As a reader leaves it that has stopped."""
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"x" * 4095 + b"\n")
    os.set_blocking(fd, True)


def in_time(call: Callable[[], None]) -> bool:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


@pytest.mark.parametrize("kind", [Said, SaidToSocket, SaidToForeignPipe])
def test_a_reader_that_has_stopped_stops_nobody(kind: type[Said]) -> None:
    """A write to a full pipe stood still, and with it the worker's loop."""
    said = kind("text")
    fill(said.write)

    def say_three() -> None:
        for n in range(3):
            said.log.warning("dial %d failed", n)
        said.handler.report_suppressed(everything=True)

    done = in_time(say_three)
    before = said.lines()
    assert done and not any("dial" in line for line in before)
    assert os.get_blocking(said.write), "shared with whoever started us"
    while said.lines():
        pass
    said.handler.report_suppressed(everything=True)
    (line,) = said.lines()
    assert line.endswith('more of the same suppressed=3 like="dial %d failed"')
    said.close()


def test_what_had_room_for_a_half_is_not_mixed_with_the_next(said: Said) -> None:
    fill(said.write)
    os.read(said.read, 4096)
    said.log.warning("first %s", "x" * 5000)
    assert said.lines()[-1].startswith("cutthrough: worker 3: first xx")
    said.log.warning("second")
    assert said.lines() == ["", "cutthrough: worker 3: second"]
