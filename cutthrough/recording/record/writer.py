"""The writer of captures that also writes recordings: as `storage.writer`, with them.

    rings ──> exchanges that rules record ──> redacted ──> the session in force

If a session cannot be written, captures go on; and if captures cannot, recordings do: a
thread of its own brings captures to their store. Workers see in their rings whether
recordings can be written: rules may refuse what cannot be recorded.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cutthrough.exchange.failures import Failures
from cutthrough.recording.record.recorder import Recorder
from cutthrough.recording.sessions.offsets import Offset
from cutthrough.storage.outlet import Queue
from cutthrough.storage.settings import Recordings
from cutthrough.storage.writer import Writer, serve
from cutthrough.tape.ring import Ring
from cutthrough.tape.ring_exchange import RingExchange

if TYPE_CHECKING:
    from cutthrough.recording.record.shared_recorder import SharedRecorder


def make_recorder(settings: Recordings, failures: Failures
                  ) -> "Recorder | SharedRecorder":
    # Operators' verbs take a directory that is there. Why it cannot be made is told
    # when something is to be recorded
    with contextlib.suppress(OSError):
        Path(settings.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings.url:
        return Recorder(settings, failures)
    # Imported here, because most sessions are files
    from cutthrough.recording.record.shared_recorder import SharedRecorder

    return SharedRecorder(settings, failures)


# If CPUs are scarce, requests come first: they wait if the ring fills
NICE = 10


class RecordingWriter(Writer):
    # Few and large transactions take less time; bodies stay in the ring meanwhile
    turn_bytes = 4 << 20
    _recorder: "Recorder | SharedRecorder | None" = None
    _handing = 0                             # recordings, perhaps counted twice

    def run(self) -> None:
        if not self.settings.database:       # captures are dropped if it is late
            with contextlib.suppress(OSError):       # a seccomp filter may refuse it
                os.nice(NICE)
        if self.settings.recordings is not None:
            self._recorder = make_recorder(self.settings.recordings, self._failures)
            if self._outlet is not None:
                self._queue = Queue(self._outlet, self.note_pending)
        super().run()

    def end(self) -> None:
        if self._recorder is not None and (lost := self._recorder.close()) and (
                self._rings):
            self._rings[0].lose(unwritten=lost)
        super().end()

    def on_recorded(self, exchanges: list[RingExchange], ring: Ring) -> None:
        if self._recorder is None:
            return
        try:
            if lost := self.record(self._recorder, exchanges, ring):
                ring.lose(unwritten=lost)
        except Exception as error:           # of no exchange: those are counted
            self._failures.add(error, len(exchanges))
        self.tell_workers()

    def record(self, recorder: "Recorder | SharedRecorder",
               exchanges: list[RingExchange], ring: Ring) -> int:
        """Returns how many are lost."""
        if isinstance(recorder, Recorder):
            return recorder.write(
                exchanges, Offset(ring.name, ring.turn, ring.is_again))
        lost = recorder.write(exchanges, lambda count: self.hand(count, ring))
        self._handing = 0
        return lost

    def hand(self, count: int, ring: Ring) -> bool:
        """False: a writer that was killed had them, and has perhaps sent them. They
        count as lost: only a file knows how far it has a ring."""
        self._handing = count                # the other thread counts, too
        self.note_pending()
        return ring.hand()

    @property
    def pending(self) -> int:
        waiting = 0 if self._recorder is None else self._recorder.waiting
        return super().pending + waiting + self._handing

    def use_pause(self) -> None:
        if isinstance(self._recorder, Recorder):
            self._recorder.checkpoint()

    def keep_house(self) -> None:
        super().keep_house()
        if self._recorder is not None:
            self._recorder.on_idle()
            if self._rings and (lost := self._recorder.take_lost()):
                self._rings[0].lose(unwritten=lost)
        self.note_pending()
        self.tell_workers()

    def tell_workers(self) -> None:
        fails = self._recorder is not None and self._recorder.fails
        for ring in self._rings:
            ring.set_failing(fails)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), RecordingWriter))
