"""The one voice of the supervisor and what stands beside it: standard error."""

import functools
import logging

from cutthrough.log.errorlog import ErrorLog, make_line
from cutthrough.log.nonblocking import Nonblocking

_form = "text"
_left_out = 0                                # lines that found no room


def use_form(form: str) -> None:
    """What `say` says from now on is in this form: error_log_format. So is what the
    libraries log, which without it would wait for who reads standard error."""
    global _form
    _form = _log().form = form


@functools.cache
def _log() -> ErrorLog:
    log = ErrorLog(_form, "")
    logging.basicConfig(handlers=[log])
    return log


@functools.cache
def _stderr() -> Nonblocking:
    return Nonblocking(2)


def say(line: str) -> None:
    """Writes one line to standard error; who read it may be gone or have stopped."""
    _write(make_line(_form, "", "info", line, {}))


def announce(line: str) -> None:
    """The same, and bare in the form for people: the banner has no time before it."""
    _write(line if _form == "text" else make_line(_form, "", "info", line, {}))


def _write(text: str) -> None:
    global _left_out
    out = _stderr()
    if _left_out and out.write(make_line(_form, "", "info", "lines were dropped",
                                         {"suppressed": _left_out})):
        _left_out = 0
    _left_out += not out.write(text)
