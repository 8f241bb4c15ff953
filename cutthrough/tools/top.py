"""`cutthrough top`: the activity of a running proxy, on a terminal as its own screen.

    rates, and the last looks as bars
    reasons of ends            users
    the busiest connections

All comes from the admin listener. What a screen says is made by `Screen`, which knows
no terminal; without a terminal, and with --count, its first lines are printed.
"""

import argparse
import contextlib
import curses
import locale
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cutthrough.config.values import show_count
from cutthrough.tools.console import (
    UNSAFE,
    Listener,
    Sample,
    Unanswered,
    at_listener,
    show,
    summary,
)

BARS = " ▁▂▃▄▅▆▇█"
MOST_LOOKS = 60                              # that the bars show
SHOWN = 15                                   # connections of a look that is printed
REASONS, USERS = 8, 8                        # lines of each table
LEAST_S, MOST_S = 0.25, 60.0                 # between two looks, by + and -
SORTS = ("bytes", "age", "user")
HELP = "q quit   space pause   s sort: {sort}   + - every {every:g} s"
STALE = "the proxy does not answer: {reason}"

Rows = list[dict[str, Any]]


class Line(NamedTuple):
    """`style`: "", "title", "head", "bad" or "dim"."""

    text: str
    style: str = ""


class Screen:
    """The figures that were seen so far, and their order."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.sort = 0
        self.error = ""
        self._rates: deque[float] = deque(maxlen=MOST_LOOKS)
        self._before: Sample = {}
        self._now: Sample = {}
        self._at = self._seconds = 0.0
        self._rows: Rows = []
        self._moved: dict[str, int] = {}     # bytes by connection, at the look before
        self._users: dict[str, tuple[int, float]] = {}

    def look(self, sample: Sample, rows: Rows, at: float) -> None:
        """Takes the metrics and the connections of the second `at`."""
        self._before, self._now = self._now or sample, sample
        self._seconds, self._at = max(at - self._at, 1e-3) if self._at else 1.0, at
        self._rates.append(self.rate("requests_total"))
        moved = {row["id"]: row["bytes_up"] + row["bytes_down"] for row in rows}
        users: dict[str, tuple[int, float]] = {}
        for row in rows:
            count, rate = users.get(row["user"] or "-", (0, 0.0))
            grown = moved[row["id"]] - self._moved.get(row["id"], moved[row["id"]])
            users[row["user"] or "-"] = count + 1, rate + grown / self._seconds
        self._rows, self._moved, self._users, self.error = rows, moved, users, ""

    def rate(self, prefix: str) -> float:
        """The growth of these samples in a second; a new program counts from 0."""
        return max(0.0, sum(value - self._before.get(name, 0) for name, value in
                            self._now.items() if name.startswith(prefix))
                   ) / self._seconds

    def words(self) -> list[str]:
        """Rates, states and refusals."""
        return summary(self._before, self._now, self._seconds)

    def busiest(self, most: int) -> Rows:
        return sorted(self._rows, key=self._key)[:most]

    def lines(self, width: int, height: int, help_line: str = "") -> list[Line]:
        """The screen, at most so wide and high."""
        lines = [*self._head(width)]
        lines += [Line(""), *side_by_side(
            [*self._reasons()], [*self._by_user()], width)]
        left = height - len(lines) - 2 - bool(help_line)
        lines.append(Line(""))
        lines += [Line(text, "" if number else "head") for number, text in
                  enumerate(show(self.busiest(max(0, left - 1))))]
        lines = [Line(safe(line.text)[:width], line.style)
                 for line in lines[:height - bool(help_line)]]
        if help_line:
            lines += [Line("")] * (height - 1 - len(lines))
            lines.append(Line(help_line[:width], "dim"))
        return lines

    def help(self, every: float) -> str:
        return HELP.format(sort=SORTS[self.sort], every=every)

    def _head(self, width: int) -> Iterator[Line]:
        yield Line(f"cutthrough top  {self.where}", "title")
        if self.error:
            yield Line(STALE.format(reason=self.error), "bad")
        if not self._now:
            return
        yield from map(Line, self.words()[:3])
        yield Line(bars(self._rates, width), "dim")

    def _reasons(self) -> Iterator[Line]:
        """Yields the reasons of ends, the most frequent first; "ok" is none."""
        yield Line(f"{'ENDED BY':<24}{'TOTAL':>9}{'/s':>9}", "head")
        prefix = 'ended_total{reason="'
        totals = sorted(((value, name) for name, value in self._now.items()
                         if name.startswith(prefix) and value), reverse=True)
        for value, name in totals[:REASONS]:
            reason = name[len(prefix):-2]
            yield Line(f"{reason:<24}{value:>9.0f}{self.rate(name):>9.1f}",
                       "" if reason == "ok" else "bad")

    def _by_user(self) -> Iterator[Line]:
        yield Line(f"{'USER':<20}{'OPEN':>6}{'kB/s':>10}", "head")
        ranked = sorted(self._users.items(), key=lambda pair: (
            -pair[1][1], -pair[1][0], pair[0]))
        for user, (count, rate) in ranked[:USERS]:
            yield Line(f"{user[:19]:<20}{count:>6}{rate / 1000:>10.1f}")
        if len(ranked) > USERS:
            yield Line(show_count(len(ranked) - USERS, "more user"), "dim")

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        size = -(row["bytes_up"] + row["bytes_down"])
        by = SORTS[self.sort]
        return (size,) if by == "bytes" else (
            (-row["age"],) if by == "age" else (row["user"] or "", size))


def safe(text: str) -> str:
    """A line for a terminal."""
    return "".join(char if char in BARS else UNSAFE.sub("?", char) for char in text)


def bars(values: Iterable[float], width: int) -> str:
    """The last values, the newest on the right, and the highest of them."""
    known = [*values][-max(10, width - 30):]
    most = max(known, default=0.0)
    drawn = "".join(BARS[round(value / most * (len(BARS) - 1))] if most else BARS[0]
                    for value in known)
    return f"{drawn}| {most:.1f} requests/s at most"


def side_by_side(left: list[Line], right: list[Line], width: int) -> Iterator[Line]:
    """Two tables, or if the terminal is narrow one below the other."""
    if width < 84:
        yield from (*left, Line(""), *right)
        return
    for number in range(max(len(left), len(right))):
        line = left[number] if number < len(left) else Line("")
        other = right[number].text if number < len(right) else ""
        yield Line(f"{line.text:<44}  {other}", line.style)


def run(args: argparse.Namespace) -> int:
    """Returns the exit status. Raises ConfigError."""
    return at_listener(args, lambda listener: top(listener, args.interval, args.count))


def top(listener: Listener, every: float, count: int) -> None:
    """Shows the activity until `q` or Ctrl-C is pressed, or prints `count` looks;
    without a terminal 1. Raises Unanswered if the first look fails."""
    screen = Screen(listener.where)
    look(screen, listener)
    if count or not has_screen():
        for _ in range(count or 1):
            time.sleep(every)                # rates are over this time
            look(screen, listener)
            print("\n".join(fitting(plain(screen))), flush=True)
        return
    locale.setlocale(locale.LC_ALL, "")      # curses writes the bars by it
    with contextlib.suppress(KeyboardInterrupt):
        curses.wrapper(lambda window: drive(window, screen, listener, every))


def has_screen() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and (
        os.environ.get("TERM", "dumb") != "dumb")


def look(screen: Screen, listener: Listener) -> None:
    sample = listener.metrics()
    screen.look(sample, listener.connections(), time.monotonic())


def one_look(listener: Listener, every: float) -> list[str]:
    """A look as text, with the rates over `every` seconds. Raises Unanswered."""
    screen = Screen(listener.where)
    look(screen, listener)
    time.sleep(every)                    # rates are over this time
    look(screen, listener)
    return [*plain(screen)]


def plain(screen: Screen) -> Iterator[str]:
    """The rates and the busiest connections, as text."""
    yield from screen.words()
    yield ""
    yield from show(screen.busiest(SHOWN))


def fitting(lines: Iterable[str]) -> list[str]:
    """As many, and as long, as a terminal has room for: a wrapped line would scroll."""
    if not sys.stdout.isatty():
        return [*lines]
    width, height = shutil.get_terminal_size()
    return [line[:width] for line in lines][:height - 1]


def drive(window: "curses.window", screen: Screen, listener: Listener, every: float
          ) -> None:
    """Looks and draws until `q` is pressed."""
    styles = prepare()
    is_paused, due = False, time.monotonic() + every
    while True:
        if not is_paused and time.monotonic() >= due:
            try:
                look(screen, listener)
            except Unanswered as error:      # it may start again
                screen.error = str(error)
            due = time.monotonic() + every
        draw(window, screen, styles, ("PAUSED   " if is_paused else "")
             + screen.help(every))
        wait_s = MOST_S if is_paused else max(0.02, due - time.monotonic())
        window.timeout(int(wait_s * 1000))
        key = window.getch()
        if key in map(ord, "qQ"):
            return
        if key == ord(" "):
            is_paused, due = not is_paused, 0.0
        elif key == ord("s"):
            screen.sort = (screen.sort + 1) % len(SORTS)
        elif key in map(ord, "+-"):
            every = min(MOST_S, max(LEAST_S, every * (2 if key == ord("+") else 0.5)))
            due = min(due, time.monotonic() + every)


def prepare() -> dict[str, int]:
    """The attributes of the styles; on a terminal without colours bold and dim."""
    styles = {"title": curses.A_BOLD, "head": curses.A_REVERSE, "bad": curses.A_BOLD,
              "dim": curses.A_DIM}
    with contextlib.suppress(curses.error):
        curses.curs_set(0)
    if curses.has_colors() and not os.environ.get("NO_COLOR"):
        with contextlib.suppress(curses.error):
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_RED, -1)
            styles["bad"] = curses.color_pair(1)
    return styles


def draw(window: "curses.window", screen: Screen, styles: dict[str, int],
         help_line: str) -> None:
    height, width = window.getmaxyx()
    window.erase()
    for number, line in enumerate(screen.lines(width - 1, height, help_line)):
        with contextlib.suppress(curses.error):      # it was made smaller meanwhile
            window.addstr(number, 0, line.text, styles.get(line.style, 0))
    window.refresh()
