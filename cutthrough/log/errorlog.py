"""The error log: messages about the program itself, on standard error.

The form is `text` for people, `logfmt` (key=value) or `json` for machines. Each message
is one line in one write, so that lines of several processes do not mix. A write never
waits, because a reader that has stopped must not stop the loop. Repeats are limited for
each message: the first few in an interval are logged, then the number of those that
were suppressed or could not be written.
"""

import codecs
import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cutthrough.log.nonblocking import Nonblocking

FORMS = ("text", "logfmt", "json")
LEVELS = ("error", "warning", "info", "debug")
USUAL_LEVEL = "info"
# Lines logged of one message in each interval. journald's own limit is for a whole unit
MOST_REPEATS = 10
MOST_DEBUG_REPEATS = 200                     # an operator has asked for them
EVERY_S = 10.0
MOST_KEYS = 256                              # messages counted separately
# Characters of a message or a traceback, because an exception's text may quote a body.
# To escape them takes the loop 0.4 ms, and 5 if all are controls
MOST_TEXT = 8192
# Calls of a stack that are looked at, the outermost first: Python's own limit. If code
# of filters has raised it, an endless recursion took 10 µs for each call, in the loop
MOST_FRAMES = 1000
MOST_KEY = 200                               # … by which messages count as the same

# Loaded now: the first use reads a file, and there may be no descriptor left by then
codecs.lookup("unicode_escape")

_BARE = re.compile(r"[!#-<>-\[\]-~]+")       # needs no quotes: no space, ", = or \
_levels = {"WARNING": "warning", "ERROR": "error", "CRITICAL": "error",
           "INFO": "info", "DEBUG": "debug"}


def show_fields(fields: Mapping[str, Any]) -> str:
    """Returns key=value pairs; a value is quoted as a JSON string if necessary."""
    return " ".join(f"{key}={_show(value)}" for key, value in fields.items()
                    if value is not None)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = show_events(value)
    text = str(value)
    return text if _BARE.fullmatch(text) else _to_json(text)


def _to_json(value: Any) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")    # the rest is escaped


def show_events(events: list[dict[str, Any]]) -> str:
    """Returns the flight recorder's events of a connection in one line."""
    return "; ".join(
        " ".join([f"{event['ms']:.3f}", event["event"], *(
            str(value) if key in ("state", "reason", "error") else f"{key}={value}"
            for key, value in event.items() if key not in ("ms", "event"))])
        for event in events)


def escape(text: str) -> str:
    """Escapes control characters, because a message may quote wire data (R37)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in text)


def shorten(text: str, most: int = MOST_TEXT) -> str:
    """Leaves out the middle: what a text is about is at its beginning, and what a
    traceback of several exceptions is about at both of its ends."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}… ({len(text) - 2 * half} more characters) …{text[-half:]}"


def format_traceback(info: Any) -> str:
    """Shortened: the exception's own text does not count with its stack, or the one
    that is long would leave nothing of the other."""
    lines = traceback.format_exception(*info, limit=MOST_FRAMES)
    stack = "".join(lines).rstrip("\n")
    if len(stack) <= MOST_TEXT:
        return stack
    text = "".join(traceback.format_exception_only(info[1])).rstrip("\n")
    if not stack.endswith(text):                  # a group's is drawn in a frame
        return shorten(stack)
    return shorten(stack[:-len(text)], MOST_TEXT // 2) + shorten(text, MOST_TEXT // 2)


def show_traceback(text: str) -> str:
    """Indented, and escaped line by line: an exception's text may quote wire data, and
    with line ends it could look like other messages of the log (R37)."""
    return "".join(f"\n  {escape(line)}" for line in text.split("\n"))


def make_line(form: str, source: str, level: str, message: str,
              fields: Mapping[str, Any], raised: str = "") -> str:
    """Returns one line; in text several if there is a traceback in `raised`."""
    if form == "text":
        line = " ".join(filter(None, (message, show_fields(fields))))
        prefix = f"cutthrough: {source}: " if source else "cutthrough: "
        return prefix + escape(line) + (show_traceback(raised) if raised else "")
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"time": at, "level": level, "source": source or "supervisor",
            "pid": os.getpid(), "message": message}
    more = {"traceback": raised} if raised else {}
    if form == "json":
        return _to_json({**head, **fields, **more})
    return show_fields({**head, **fields, **more})


class ErrorLog(logging.Handler):
    """Writes records of `source` in `form` to descriptor `fd`, which stays open."""

    def __init__(self, form: str, source: str, fd: int = 2) -> None:
        super().__init__()
        self.form = form
        self._source = source
        self._out = Nonblocking(fd)
        # Start of the interval, lines logged, lines suppressed
        self._counts: dict[tuple[int, str], list[float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.report_suppressed()
            if self._is_allowed(record):
                if not self._write(
                        _levels.get(record.levelname, "info"),
                        shorten(record.getMessage()), getattr(record, "fields", {}),
                        format_traceback(record.exc_info) if record.exc_info else ""):
                    self._counts[_key(record)][2] += 1
        except Exception:                    # logging's rule: the caller never sees it
            self.handleError(record)

    def _is_allowed(self, record: logging.LogRecord) -> bool:
        key = _key(record)
        state = self._counts.get(key)
        if state is None:
            if len(self._counts) >= MOST_KEYS:
                self._counts.clear()
            state = self._counts[key] = [time.monotonic(), 0, 0]
        state[1] += 1
        most = MOST_DEBUG_REPEATS if record.levelno == logging.DEBUG else MOST_REPEATS
        if state[1] > most:
            state[2] += 1
            return False
        return True

    def report_suppressed(self, everything: bool = False) -> None:
        """Logs how many repeats of each message were suppressed, if its interval is
        over or `everything`. A line that cannot be written is tried again later."""
        now = time.monotonic()
        over = [key for key, (since, _, _) in self._counts.items()
                if everything or now - since >= EVERY_S]
        for key in over:
            suppressed = self._counts[key][2]
            level = _levels.get(logging.getLevelName(key[0]), "info")
            if suppressed and not self._write(level, "more of the same", {
                    "suppressed": int(suppressed), "like": key[1]}):
                break
            del self._counts[key]

    def _write(self, level: str, message: str, fields: Mapping[str, Any],
               raised: str = "") -> bool:
        return self._out.write(
            make_line(self.form, self._source, level, message, fields, raised))

    def close(self) -> None:
        self._out.close()
        super().close()


def log_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """As sys.unraisablehook: Python itself would write the text as it is (R37), and as
    often as it comes. Such an exception is mostly of the operator's code, in __del__ or
    in a coroutine that goes on although it is closed."""
    owner = getattr(unraisable.object, "__qualname__", type(unraisable.object).__name__)
    error = unraisable.exc_value
    logging.getLogger("cutthrough").error(
        "an exception that has no handler, in %s: %s", owner,
        unraisable.exc_type.__name__,
        exc_info=error and (type(error), error, unraisable.exc_traceback))


def _key(record: logging.LogRecord) -> tuple[int, str]:
    return record.levelno, str(record.msg)[:MOST_KEY]
