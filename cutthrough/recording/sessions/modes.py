"""The mode and the session that hold in place of the configured ones.

They are in a file of the directory of sessions, so that they outlive a reload and a
restart, and all workers find them: each looks every POLL_S.
"""

import logging
import time
from pathlib import Path
from typing import Literal, get_args

import msgspec

from cutthrough.exchange.whole_file import write_file
from cutthrough.recording.sessions.session import is_name

log = logging.getLogger("cutthrough")

Mode = Literal["rules", "off", "record", "replay", "cache", "spy"]
MODES: tuple[Mode, ...] = get_args(Mode)
POLL_S = 0.1
NAME = "mode"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """`rules`: the mode of each rule. "": the configured session. `run`: differs with
    each change; sequences begin anew with it. `answers`: the name of those that come
    before recordings (see answers.py); "": none."""

    mode: Mode = "rules"
    session: str = ""
    run: int = 0
    answers: str = ""


def read_state(directory: str | Path) -> State:
    """Raises OSError, and ValueError if the file is malformed."""
    path = Path(directory) / NAME
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name in (state.session, state.answers):
        if name and not is_name(name):
            raise ValueError(f"{path}: {name!r:.110} is no name of a session")
    return state


class InForce:
    """The session in force, for a writer. `name`: as it was read last; if the mode's
    file cannot be read, its former content counts."""

    def __init__(self, directory: str, configured: str) -> None:
        self._directory, self._configured = directory, configured
        self.name, self._unread = configured, ""

    def read(self) -> str:
        try:
            state = read_state(self._directory)
        except (OSError, ValueError) as error:
            if self._unread != str(error):
                self._unread = str(error)
                log.error("recordings go into session %s: the mode cannot be read: %s",
                          self.name, error)
        else:
            self._unread, self.name = "", state.session or self._configured
        return self.name


def write_state(directory: str | Path, state: State, is_new_run: bool = True) -> None:
    """Raises OSError."""
    folder = Path(directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(folder / NAME, msgspec.json.encode(msgspec.structs.replace(
        state, run=time.time_ns() if is_new_run else state.run)) + b"\n", over=True)


def mark_of(path: Path) -> tuple[int, ...]:
    """Differs if the file is another one; (): there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size
