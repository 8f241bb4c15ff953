"""Messages of the supervisor and its helpers, on standard error."""

import functools
import logging

from cutthrough.log.errorlog import ErrorLog, make_line
from cutthrough.log.nonblocking import Nonblocking

_form = "text"
_left_out = 0                                # lines that could not be written


def use_form(form: str) -> None:
    """Sets the form (error_log_format) of `say` and of the libraries' log records.
    Their default handler would block if standard error is not read."""
    global _form
    _form = _log().form = form


@functools.cache
def _log() -> ErrorLog:
    log = ErrorLog(_form, "")
    logging.basicConfig(handlers=[log])
    logging.getLogger("cutthrough").setLevel(logging.INFO)   # not of libraries
    return log


@functools.cache
def _stderr() -> Nonblocking:
    return Nonblocking(2)


def say(line: str) -> None:
    """Writes one line to standard error without waiting, even if no one reads it."""
    _write(make_line(_form, "", "info", line, {}))


def announce(line: str) -> None:
    """Writes one line as `say` does, but without a prefix in text, for the banner."""
    _write(line if _form == "text" else make_line(_form, "", "info", line, {}))


def _write(text: str) -> None:
    global _left_out
    out = _stderr()
    if _left_out and out.write(make_line(_form, "", "info", "lines were dropped",
                                         {"suppressed": _left_out})):
        _left_out = 0
    _left_out += not out.write(text)
