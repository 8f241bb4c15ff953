"""The writer of captures that also writes recordings: as `capture.writer`, with them.

    rings ──> exchanges that rules record ──> redacted ──> the session in force

If a session cannot be written, captures go on. Workers see it in their rings: rules may
refuse what cannot be recorded.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cutthrough.capture.ring import Ring
from cutthrough.capture.settings import Recordings
from cutthrough.capture.taped import Taped
from cutthrough.capture.writer import Writer, serve
from cutthrough.recording.recorder import Recorder
from cutthrough.recording.session import Turn

if TYPE_CHECKING:
    from cutthrough.recording.shared_recorder import SharedRecorder


def make_recorder(settings: Recordings) -> "Recorder | SharedRecorder":
    # Operators' verbs take a directory that is there. Why it cannot be made is told
    # when something is to be recorded
    with contextlib.suppress(OSError):
        Path(settings.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings.url:
        return Recorder(settings)
    # Imported here, because most sessions are files
    from cutthrough.recording.shared_recorder import SharedRecorder

    return SharedRecorder(settings)


# If CPUs are scarce, requests come first: they wait if the ring fills
NICE = 10


class RecordingWriter(Writer):
    # Few and large transactions take less time; bodies stay in the ring meanwhile
    turn_bytes = 4 << 20
    _recorder: "Recorder | SharedRecorder | None" = None

    def run(self) -> None:
        if not self.settings.database:       # captures are dropped if it is late
            with contextlib.suppress(OSError):       # a seccomp filter may refuse it
                os.nice(NICE)
        if self.settings.recordings is not None:
            self._recorder = make_recorder(self.settings.recordings)
        try:
            super().run()
        finally:
            if self._recorder is not None:
                self._recorder.close()

    def on_taped(self, taped: list[Taped], ring: Ring) -> None:
        if self._recorder is not None:
            lost = self._recorder.write(taped, Turn(
                ring.name, ring.turn, ring.is_again))
            if lost:
                ring.add_unwritten(lost)
            self.tell_workers()

    def use_pause(self) -> None:
        if isinstance(self._recorder, Recorder):
            self._recorder.move()

    def keep_house(self) -> None:
        super().keep_house()
        if self._recorder is not None:
            self._recorder.prune()
            if self._rings and (lost := self._recorder.take_lost()):
                self._rings[0].add_unwritten(lost)
        self.tell_workers()

    def tell_workers(self) -> None:
        fails = self._recorder is not None and self._recorder.fails
        for one in self._rings:
            one.set_failing(fails)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), RecordingWriter))
