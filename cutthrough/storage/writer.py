"""The writer process: `python -m cutthrough.storage.writer FD`.

    rings of all workers ──> parts put together, redacted ──> the store, in batches

FD is its end of a socket pair; the first packet has the settings. The message `stop`
ends it, after the rings are empty. A message that begins with `settle` is sent back
when what the rings have then is written, as far as it can be. One that begins with
`parts` asks for what has come of exchanges in hand (open_parts). If the supervisor is
gone, it goes on until the workers are gone too: the pipe by which they wake it then has
no writer left.

It is the only consumer of the rings, and gives their room back when their rows are
written. So if it is killed, the next writer reads the same records again, and a row
that is there already is left alone. If the disk is full, rows are counted and dropped:
the rings must not fill for it. If the store cannot be used (outlet.py), the writer
waits for it with the rows: the rings fill, and workers drop and count.

No exchange ends it: one that cannot be handled is left out and counted, and so is one
at which two writers have died (R71).
"""

import contextlib
import gc
import logging
import mmap
import os
import select
import signal
import socket
import sys
import time
from array import array

import msgspec

from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.log.errorlog import ErrorLog
from cutthrough.storage.outlet import HOUSEKEEPING_S, Outlet, Queue
from cutthrough.storage.settings import Start
from cutthrough.storage.store import NotNow, StoreError
from cutthrough.storage.traced import Sender
from cutthrough.tape.assembly import Assembly
from cutthrough.tape.batch import Batch
from cutthrough.tape.open_parts import (
    MOST_MESSAGE,
    PARTS,
    Parts,
    PartsQuery,
    decode,
    encode,
    in_memory,
)
from cutthrough.tape.ring import RING_BYTES, Ring
from cutthrough.tape.ring_exchange import RingExchange

log = logging.getLogger("cutthrough")

STOP, SETTLE = b"stop", b"settle"
# A turn's part of a ring: at most this part, and turn_bytes of the writer
TURN_PART = 8
# How long rows gather after a turn, so that batches are large: GATHER_S, or if the last
# turns had FAST_BYTES_S a second MOST_GATHER_S, or until a ring is half full. A turn
# pushes the other processes onto fewer CPUs, and they stay there for a while
GATHER_S, MOST_GATHER_S = 0.02, 0.05
FAST_BYTES_S = 25 << 20
# How long a turn waits until a thread has stored its rows
STORE_S = 0.2
# Turns between two searches for garbage among all objects
TURNS_TO_COLLECT = 256


class Writer:
    """The process, from its settings to its end. Raises OSError and StoreError."""

    turn_bytes = 1 << 20

    def __init__(self, channel: socket.socket, start: Start) -> None:
        self.settings = settings = start.settings
        self._channel = channel
        self._rings_fd, self._wake = start.rings, start.wake
        self._rings: list[Ring] = []
        self._assembly = Assembly(Redactor(settings.redaction))
        self._failures = self._assembly.failures
        # None: nothing is captured, there are recordings only
        self._outlet = Outlet(settings, self._failures) if settings.database else None
        self._queue: Queue | None = None
        self._sender = Sender(settings.traces, settings.program, settings.form) if (
            settings.traces) else None
        self._in_turn = 0                    # rows that wait, and are in the ring still
        self._has_supervisor = True
        self._stopping = False
        self._asked: list[tuple[bytes, int]] = []    # and how many turns ago at most
        self._wanted: list[bytes] = []       # messages that ask for parts
        self._turns = 0
        self._kept_house = time.monotonic()
        # So many read all that the rings have, and one that has begun
        self._most_turns = self._turns_left = max(
            TURN_PART, RING_BYTES // self.turn_bytes) + 1
        self._read, self._read_at = 0, time.monotonic()      # bytes, and when

    def run(self) -> None:
        """Writes until it is stopped, or no worker is left. Raises NotNow if the store
        cannot be used then: the next writer reads the rings again."""
        if self._outlet is not None and self._queue is None:
            self._outlet.open()
        try:
            self.work()
        except NotNow:
            for ring in self._rings:
                ring.leave()
            raise
        finally:
            self.end()

    def work(self) -> None:
        while True:
            self.beat()
            busy = self.turn()
            self.answer(busy)
            if not busy:
                if self._stopping:
                    break
                self.keep_house()
            elif self._stopping:             # the next writer reads the rest
                self._turns_left -= 1
                if self._turns_left < 0:
                    break
            elif time.monotonic() - self._kept_house >= HOUSEKEEPING_S:
                self.keep_house()            # records may come without a free moment
            self.wait(busy)

    def beat(self) -> None:
        """The supervisor sees that it does not hang."""
        if self._rings:
            self._rings[0].beat()

    def end(self) -> None:
        if self._queue is not None:
            self._queue.close()
        elif self._outlet is not None:
            self._outlet.finish()
        self.note_pending()
        if self._rings:
            self._rings[0].lose(failed=self._failures.take())
            if self._sender is not None:
                self._sender.close(self._rings[0])
        self._failures.report(at_once=True)
        if not self._has_supervisor and (left := sum(
                ring.count_left() for ring in self._rings)):
            log.error("%d exchanges are lost: they could not be written", left)

    def turn(self) -> bool:
        """Moves the rings' records to the store. False: the rings are empty."""
        self.map_rings()
        has_records = False
        for ring in self._rings:
            records = ring.read(self.most_of_turn(ring), wholes=True)
            if not records:
                continue
            has_records = True
            forgotten = self._assembly.evicted
            rows = self._assembly.leave_out(records) if ring.is_deadly else (
                self._assembly.rows(records))
            ring.lose(forgotten=self._assembly.evicted - forgotten)
            if rows and self._sender is not None:
                self._sender.put(rows, ring)
            if rows:
                self.store(rows, ring)
            if self._assembly.to_record:
                exchanges, self._assembly.to_record = self._assembly.to_record, []
                self.on_recorded(exchanges, ring)
            if failed := self._failures.take():
                ring.lose(failed=failed)
            self.await_store()
            self._in_turn = 0
            self.note_pending()
            ring.release()
        if has_records:
            self._failures.report()
            self.collect()
        return has_records

    def most_of_turn(self, ring: Ring) -> int:
        return min(self.turn_bytes, ring.size // TURN_PART)

    def collect(self) -> None:
        """Python would look for cycles in the middle of a turn, when thousands of its
        objects are young and none is garbage. Now almost none of them is left."""
        self._turns = (self._turns + 1) % TURNS_TO_COLLECT
        gc.collect(1 if self._turns else 2)

    def on_recorded(self, exchanges: list[RingExchange], ring: Ring) -> None:
        """Exchanges that rules record; see `recording.record.writer`."""

    def store(self, rows: Batch, ring: Ring) -> None:
        """Writes rows, as soon as the store can be used. Raises NotNow if the writer is
        stopped before."""
        if self._queue is not None:
            self._in_turn = len(rows)
            self._queue.put(self._assembly.give(), ring)
            return
        while self._outlet is not None:
            try:
                if lost := self._outlet.write(rows):
                    ring.lose(unwritten=lost)
                return
            except NotNow:
                if self._stopping:
                    raise
                self.beat()
                self.look(self._outlet.pause_s, with_pipe=False)

    def await_store(self) -> None:
        """Until the store has the rows that wait for it, if there is time: what is not
        released is read again by the next writer, if this one is killed."""
        if self._queue is not None and not any(
                ring.unread >= self.most_of_turn(ring) for ring in self._rings):
            self._queue.wait(STORE_S)

    @property
    def pending(self) -> int:
        """How many exchanges wait in this process alone."""
        return 0 if self._queue is None else max(0, self._queue.waiting - self._in_turn)

    def note_pending(self) -> None:
        """The number of lost ones, for the next writer if this one is killed."""
        if self._rings:
            self._rings[0].pending = self.pending

    def answer(self, busy: bool) -> None:
        """Tells those who have asked that what the rings had is written, and sends the
        parts that are wanted."""
        while self._wanted:
            self.send_parts(self._wanted.pop())
        busy = busy or (self._queue is not None and not self._queue.is_settled)
        questions, self._asked = self._asked, []
        for message, turns in questions:
            if busy and turns < self._most_turns:
                self._asked.append((message, turns + 1))
                continue
            with contextlib.suppress(OSError):       # it has ended, or does not read
                self._channel.send(message, socket.MSG_DONTWAIT)

    def send_parts(self, message: bytes) -> None:
        name, _, text = message.partition(b":")
        wanted: PartsQuery = decode(text, PartsQuery)
        parts = {}
        for worker, request in wanted.names:
            some = self._assembly.parts(worker, request, wanted.whole)
            if some is not None and some[0] != wanted.known:
                parts[f"{worker}-{request}"] = Parts(*some)
        with contextlib.suppress(OSError):   # no memory; it has ended, or does not read
            fd = in_memory(encode(parts))
            try:
                # Not socket.send_fds: that of Python 3.11 ignores its flags
                self._channel.sendmsg(
                    [name], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))],
                    socket.MSG_DONTWAIT)
            finally:
                os.close(fd)

    def map_rings(self) -> None:
        """Maps the rings that were added for further workers."""
        count = os.fstat(self._rings_fd).st_size // RING_BYTES
        for number in range(len(self._rings), count):
            ring = Ring(mmap.mmap(
                self._rings_fd, RING_BYTES, offset=number * RING_BYTES))
            if ring.pending:
                log.error("%d exchanges are lost: they waited in the memory of a "
                          "writer that was killed", ring.pending)
                ring.lose(unwritten=ring.pending)
                ring.pending = 0
            self._rings.append(ring)

    def keep_house(self) -> None:
        """The work of a free moment, and once in HOUSEKEEPING_S at least."""
        self._kept_house = time.monotonic()
        if self._outlet is not None and self._queue is None:
            self._outlet.keep_house()
        if self._sender is not None and self._rings:
            self._sender.collect(self._rings[0])
        self._failures.report()

    def wait(self, busy: bool) -> None:
        """Waits for records, and a moment longer so that more of them gather."""
        if busy:
            self.gather()
        elif self._outlet is None or self._queue is not None:
            self.sleep(GATHER_S if self._asked else HOUSEKEEPING_S)
        else:
            self.sleep(0.0 if self._outlet.is_busy else
                       self._outlet.pause_s or HOUSEKEEPING_S)

    def gather(self) -> None:
        """Waits for more records, unless there are enough for a turn."""
        self.use_pause()
        if any(ring.unread >= self.most_of_turn(ring) for ring in self._rings):
            self.look(0, with_pipe=False)
            return
        now, read = time.monotonic(), sum(ring.turn for ring in self._rings)
        is_fast = read - self._read > FAST_BYTES_S * (now - self._read_at)
        self._read, self._read_at = read, now
        timeout = MOST_GATHER_S if is_fast else GATHER_S
        is_awaited = self._asked or self._wanted or self._stopping or any(
            ring.reads_alone for ring in self._rings)
        if self._outlet is not None and self._queue is None and not is_awaited:
            self._outlet.index_some()
        self.sleep(0 if is_awaited else timeout, part=2)

    def sleep(self, timeout: float, part: int = 0) -> None:
        """Until a record comes, or a ring is full by a half (part 2), a third (3) …"""
        asleep = [ring.sleep(ring.size // part if part else 1) for ring in self._rings]
        if all(asleep):
            self.look(timeout, with_pipe=True)
        for ring in self._rings:
            ring.wake()

    def use_pause(self) -> None:
        """Short work between two turns."""

    def look(self, timeout: float, *, with_pipe: bool) -> None:
        waiting = select.poll()
        if self._has_supervisor:
            waiting.register(self._channel, select.POLLIN)
        # Without events: for its hang-up alone
        waiting.register(self._wake, select.POLLIN if with_pipe else 0)
        for fd, events in waiting.poll(timeout * 1000):
            if fd == self._wake:
                if events & select.POLLIN:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                else:                        # no worker is left, nor a supervisor
                    self._stopping = True
            else:
                message = b""
                with contextlib.suppress(ConnectionResetError):
                    message = self._channel.recv(MOST_MESSAGE)
                self._stopping |= message == STOP
                if message.startswith(SETTLE):
                    self._asked.append((message, 0))
                elif message.startswith(PARTS):
                    self._wanted.append(message)
                self._has_supervisor = message != b""


def serve(fd: int, kind: type[Writer] = Writer) -> int:
    """Runs the writer with the channel at descriptor `fd`; returns its exit status."""
    # It ends when the workers have: not by a signal to the whole service
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP,
                   signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    channel = socket.socket(fileno=fd)
    packet = channel.recv(1 << 20)
    if not packet:                           # the supervisor has ended
        return 0
    start = msgspec.json.decode(packet, type=Start)
    errors = ErrorLog(start.settings.form, "capture")
    logging.basicConfig(level=logging.INFO, handlers=[errors])
    try:
        writer = kind(channel, start)
        gc.freeze()
        gc.disable()                         # `Writer.collect` does it
        writer.run()
    except (OSError, StoreError) as error:
        log.error("%s", error)
        return 1
    finally:
        errors.report_suppressed(everything=True)
    return 0


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
