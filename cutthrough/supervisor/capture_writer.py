"""The supervisor's side of capture: the workers' rings, and their reader, the writer.

The rings are made at the start, so that a reload can begin to capture; they take no
memory until a worker writes. A writer runs while a rule captures. It is replaced when
its settings change, and when it dies or hangs; a new one starts only after the old one
is reaped, because a ring has one consumer.

What is in the rings when nothing is captured any more, or at the end, is written first,
even if the writer has just died (R72). What cannot be written is counted and said.
"""

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from cutthrough.generation.generation import Generation
from cutthrough.log.stderr import say
from cutthrough.process import helper
from cutthrough.process.hang_watch import HangWatch, moved_by
from cutthrough.process.packets import receive_packet
from cutthrough.storage.settings import Settings, Start, settings_of
from cutthrough.supervisor.children import (
    BACKOFF_S,
    EARLY_S,
    describe_exit,
    report_failure,
)
from cutthrough.tape.open_parts import (
    PARTS,
    Parts,
    PartsQuery,
    decode,
    encode,
    from_memory,
)

if TYPE_CHECKING:
    from cutthrough.tape.ring import Ring

# The writer's program; its module and its channel's descriptor follow
COMMAND = (sys.executable, "-P", "-m")
# Without and with recordings
MODULES = ("cutthrough.storage.writer", "cutthrough.recording.record.writer")
STOP, SETTLE = b"stop", b"settle"
# For the writer's word that all is written
SETTLE_S = 2.0
# Before its end a writer empties the rings: 8 to 32 MiB for each worker
GRACE_S = 20.0
# Writers for the rest in the rings, if they are killed: an exchange that kills them
# is left out by the third or fourth
MOST_ENDS = 5
# Most seconds until a writer that cannot work, for want of a file perhaps, is replaced
MOST_DELAY_S = 60.0


class CaptureWriter:
    """The rings and the writer, from `open` to `close`."""

    def __init__(self) -> None:
        self._rings = -1
        self._pipe = (-1, -1)                # by which workers wake the writer
        self._wanted: Settings | None = None
        self._last: Settings | None = None   # of the last writer
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._settings: Settings | None = None       # of the process
        self._ending = False
        self._started_at = 0.0
        self._early_deaths = self._ends = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watch: HangWatch | None = None
        self._questions: dict[bytes, asyncio.Future[bytes | bool]] = {}
        self._gone = asyncio.Event()
        self._gone.set()

    @property
    def pid(self) -> int:
        """The writer's process id; 0 if none runs."""
        return self._process.pid if self._process is not None else 0

    def open(self) -> None:
        """Raises OSError."""
        self._rings = os.memfd_create("cutthrough-rings", os.MFD_CLOEXEC)
        self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def descriptors(self, page: int) -> dict[str, int]:
        """The descriptors for the worker with this counters page, by their names in
        Hello; its ring has the same number. Raises OSError."""
        # Imported here, so that importing the supervisor loads no compiled module
        from cutthrough.tape.ring import RING_BYTES

        if os.fstat(self._rings).st_size < (page + 1) * RING_BYTES:
            os.ftruncate(self._rings, (page + 1) * RING_BYTES)
        return {"rings": self._rings, "wake": self._pipe[1]}

    def commit(self, generation: Generation) -> None:
        """Has the captures of this generation written."""
        wanted = settings_of(generation.config, generation.policy)
        if wanted != self._wanted:
            self._early_deaths = self._ends = 0
        self._wanted = wanted
        self._update()

    def _update(self) -> None:
        if self._process is None:
            if self._timer is not None:
                return
            if self._wanted is not None:
                self._start(self._wanted)
            elif self._last is not None and self._left():
                self._start(self._last)      # for what is left
                self._end()
        elif self._settings != self._wanted:
            self._end()

    def _start(self, settings: Settings) -> None:
        self._timer = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wake = self._pipe[0]
        try:
            with theirs:
                self._process = helper.start_program(
                    (*COMMAND, MODULES[settings.recordings is not None]), theirs,
                    (self._rings, wake))
            ours.send(msgspec.json.encode(Start(
                settings=settings, rings=self._rings, wake=wake)))
        except OSError as error:             # no memory, no process: it may pass
            report_failure("the writer of captured exchanges", error)
            if self._process is None:
                ours.close()
                self._start_later(MOST_DELAY_S)
                return
        self._channel, self._settings, self._ending = ours, settings, False
        self._last = settings
        self._started_at = time.monotonic()
        pid = self._process.pid
        self._watch = HangWatch(
            lambda: (self._beats(), moved_by(pid)), self._on_hung)
        self._gone.clear()

    def _start_later(self, delay: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._update()

    @property
    def settings(self) -> Settings | None:
        """The settings in force; None if nothing is captured or recorded."""
        return self._wanted

    async def settle(self) -> bool:
        """Returns when the rings' content now is written, as far as it can be. False:
        the writer has not said so in time."""
        if self._channel is None:
            return self._wanted is None
        return bool(await self._ask(b"%s %d" % (SETTLE, time.monotonic_ns())))

    async def parts(self, wanted: PartsQuery) -> dict[str, Parts]:
        """The parts so far of exchanges in hand, by name; {}: nothing, or no answer."""
        if self._channel is None:
            return {}
        answer = await self._ask(b"%s %d" % (PARTS, time.monotonic_ns()),
                                 b":" + encode(wanted))
        return decode(answer, dict[str, Parts]) if isinstance(answer, bytes) else {}

    async def _ask(self, name: bytes, more: bytes = b"") -> bytes | bool:
        """The answer under this name: its content, or that it has come."""
        assert self._channel is not None
        loop = asyncio.get_running_loop()
        said = self._questions.setdefault(name, loop.create_future())
        if len(self._questions) == 1:
            loop.add_reader(self._channel.fileno(), self._on_word, self._channel)
        try:
            self._channel.send(name + more, socket.MSG_DONTWAIT)
            return await asyncio.wait_for(asyncio.shield(said), SETTLE_S)
        except (OSError, TimeoutError):      # it has ended, or is busy
            return False
        finally:
            self._forget(name)

    def _on_word(self, channel: socket.socket) -> None:
        word, fds = b"", list[int]()
        with contextlib.suppress(ConnectionError):
            word, fds = receive_packet(channel, 64, 1)
        content = [from_memory(fd) for fd in fds]
        for name, said in list(self._questions.items()):
            if word in (b"", name) and not said.done():
                said.set_result(content[0] if content else word != b"")

    def _forget(self, name: bytes) -> None:
        self._questions.pop(name, None)
        if not self._questions and self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())

    def _end(self) -> None:
        """Has the process empty the rings, and end. Idempotent."""
        if self._ending or self._channel is None:
            return
        self._ending = True
        self._end_watch()                    # its end has a time of its own
        try:
            self._channel.send(STOP)
        except OSError:
            pass                             # it has ended
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._kill)

    def _kill(self) -> None:
        self._timer = None
        if self._process is not None:
            say("the writer of captured exchanges does not end: killed")
            self._ends = MOST_ENDS
            os.kill(self._process.pid, signal.SIGKILL)

    def _on_hung(self) -> None:
        if self._process is not None:
            say(f"the writer of captured exchanges (pid {self._process.pid}) does not "
                "answer: killed")
            os.kill(self._process.pid, signal.SIGKILL)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.end()
        self._watch = None

    def _beats(self) -> int:
        return sum(ring.beat(0) for ring in self._mapped())

    def on_reaped(self, pid: int, status: int) -> bool:
        """Takes note of the end of a child. False: it is not the writer."""
        if pid != self.pid or self._process is None:
            return False
        returncode = self._process.returncode = os.waitstatus_to_exitcode(status)
        was_ending, self._process = self._ending, None
        self._end_watch()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None
        while self._questions:
            _, said = self._questions.popitem()
            if not said.done():
                said.set_result(False)
        self._gone.set()
        if was_ending or self._wanted is None:
            self._ends += 1
            if returncode > 0 or self._ends > MOST_ENDS:     # it has said why
                self._last = None
            self._update()
            return True
        early = time.monotonic() - self._started_at < EARLY_S
        self._early_deaths = self._early_deaths + 1 if early else 0
        if self._early_deaths > 1 and self._wanted.recordings is not None:
            for ring in self._mapped():      # rules may refuse the unrecorded
                ring.set_failing(True)
        delay = min(MOST_DELAY_S, BACKOFF_S * 2.0 ** self._early_deaths)
        say(f"the writer of captured exchanges (pid {pid}) died: "
            f"{describe_exit(returncode)}; starting a replacement in {delay:g} s")
        self._start_later(delay)
        return True

    def _mapped(self) -> Iterator["Ring"]:
        """The rings. None may be kept."""
        from cutthrough.tape.ring import RING_BYTES, Ring

        if self._rings < 0:
            return
        for number in range(os.fstat(self._rings).st_size // RING_BYTES):
            with mmap.mmap(self._rings, RING_BYTES, offset=number * RING_BYTES) as view:
                yield Ring(view)

    def counts(self) -> Counter[str]:
        """Exchanges by result, of all rings: one whose worker has ended loses some,
        too, when the writer comes to it."""
        counts = Counter[str]()
        for ring in self._mapped():
            counts.update(ring.counts())
        return counts

    def traced(self) -> tuple[int, int]:
        """Exchanges whose spans were exported, and lost."""
        sums = [ring.trace() for ring in self._mapped()]
        return sum(exported for exported, _ in sums), sum(lost for _, lost in sums)

    def _left(self) -> int:
        """How many exchanges the rings have."""
        return sum(ring.count_left() for ring in self._mapped())

    async def close(self) -> None:
        """Ends the writer, after the workers have ended: after another one, if it has
        died before."""
        self._wanted = None
        if self._process is None and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._update()
        while self._process is not None:
            await self._gone.wait()
        if self._rings >= 0 and (left := self._left()):
            say(f"{left} exchanges are lost: they were in the rings, and could not be "
                "written")
        for fd in (self._rings, *self._pipe):
            if fd >= 0:
                os.close(fd)
        self._rings, self._pipe = -1, (-1, -1)
