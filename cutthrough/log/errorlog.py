"""The error log: what the program says of itself, on standard error.

`text` for people, `logfmt` (key=value) and `json` for machines; one line each, written
at once, so that lines of several processes do not mix, and never waited for: a reader
that has stopped must not stop the loop. What may be said of every connection is limited
by message: of each so many in a while, and then how many more there were, with those
that found no room.
"""

import codecs
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cutthrough.log.nonblocking import Nonblocking

FORMS = ("text", "logfmt", "json")
# Lines of one message that are said in so many seconds; journald's limit is a unit's
MOST_SAID = 10
EVERY_S = 10.0
MOST_KEYS = 256                              # messages that are told apart

# The first use reads its file, for which there may be no descriptor by then
codecs.lookup("unicode_escape")

_BARE = re.compile(r"[!#-<>-\[\]-~]+")       # needs no quotes: no space, ", = or \
_levels = {"WARNING": "warning", "ERROR": "error", "CRITICAL": "error",
           "INFO": "info", "DEBUG": "debug"}


def show_fields(fields: Mapping[str, Any]) -> str:
    """key=value, values quoted as JSON strings are where they need it."""
    return " ".join(f"{key}={_show(value)}" for key, value in fields.items()
                    if value is not None)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = show_events(value)
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)


def show_events(events: list[dict[str, Any]]) -> str:
    """What the flight recorder has of a connection, in one line."""
    return "; ".join(
        " ".join([f"{event['ms']:.3f}", event["event"], *(
            str(value) if key in ("state", "reason", "error") else f"{key}={value}"
            for key, value in event.items() if key not in ("ms", "event"))])
        for event in events)


def escape(text: str) -> str:
    """No control passes: a message may name what came from the wire (R37)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in text)


def make_line(form: str, source: str, level: str, message: str,
              fields: Mapping[str, Any], trouble: str = "") -> str:
    """One line, or with `trouble`, a traceback, several in text."""
    if form == "text":
        said = " ".join(filter(None, (message, show_fields(fields))))
        prefix = f"cutthrough: {source}: " if source else "cutthrough: "
        return prefix + escape(said) + (f"\n{trouble}" if trouble else "")
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"time": at, "level": level, "source": source or "supervisor",
            "pid": os.getpid(), "message": message}
    more = {"traceback": trouble} if trouble else {}
    if form == "json":
        return json.dumps({**head, **fields, **more})
    return show_fields({**head, **fields, **more})


class ErrorLog(logging.Handler):
    """Writes records of `source` to descriptor `fd`, which stays open, in `form`."""

    def __init__(self, form: str, source: str, fd: int = 2) -> None:
        super().__init__()
        self.form = form
        self._source = source
        self._out = Nonblocking(fd)
        self._said: dict[tuple[int, str], list[float]] = {}    # since, said, left out

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.tell_suppressed()
            if self._may_say(record):
                trouble = ""
                if record.exc_info:
                    trouble = logging.Formatter().formatException(record.exc_info)
                if not self._write(
                        _levels.get(record.levelname, "info"), record.getMessage(),
                        getattr(record, "fields", {}), trouble):
                    self._said[_key(record)][2] += 1
        except Exception:                    # as logging asks for: never the caller's
            self.handleError(record)

    def _may_say(self, record: logging.LogRecord) -> bool:
        key = _key(record)
        state = self._said.get(key)
        if state is None:
            if len(self._said) >= MOST_KEYS:
                self._said.clear()
            state = self._said[key] = [time.monotonic(), 0, 0]
        state[1] += 1
        if state[1] > MOST_SAID:
            state[2] += 1
            return False
        return True

    def tell_suppressed(self, everything: bool = False) -> None:
        """Says how many of a message were left out, where its time is over; later,
        where there is no room to say it."""
        now = time.monotonic()
        over = [key for key, (since, _, _) in self._said.items()
                if everything or now - since >= EVERY_S]
        for key in over:
            left_out = self._said[key][2]
            level = _levels.get(logging.getLevelName(key[0]), "info")
            if left_out and not self._write(level, "more of the same", {
                    "suppressed": int(left_out), "like": key[1]}):
                break
            del self._said[key]

    def _write(self, level: str, message: str, fields: Mapping[str, Any],
               trouble: str = "") -> bool:
        return self._out.write(
            make_line(self.form, self._source, level, message, fields, trouble))

    def close(self) -> None:
        self._out.close()
        super().close()


def _key(record: logging.LogRecord) -> tuple[int, str]:
    return record.levelno, str(record.msg)
