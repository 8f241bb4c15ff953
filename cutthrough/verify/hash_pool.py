"""Where password hashes are computed: in helper processes, or in threads.

A worker with its own process uses helper processes (`verify.hash_process`), started
when first needed and kept. A worker embedded in another program starts no process and
uses threads. Both compute at most `most` hashes at a time, and answer each question
once, in the loop. After `close` no answer comes.
"""

import asyncio
import contextlib
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from cutthrough.process.files import FilesReplaced
from cutthrough.process.hang_watch import HangWatch, cpu_of
from cutthrough.process.helper import start_helper
from cutthrough.verify.hash_process import FAULT, MOST_BYTES, RIGHT, WRONG

log = logging.getLogger("cutthrough")

# Does the password match? None if unknown; the text is then the kind of the error, or
# LOST.
Done = Callable[[bool | None, str], None]

# The helper died or hung, or none could be started. Another try may succeed.
LOST = "lost"

# Of -20 to 19: a tenth of a busy core's time, all of an idle core's.
NICENESS = 10

# Wait before another helper is started, if one ended before its first answer.
PAUSE_S = 1.0

# The helper's program; the descriptor's number is appended. -P: see supervisor.children
COMMAND = (sys.executable, "-P", "-m", "cutthrough.verify.hash_process")


class HashPool(Protocol):
    most: int               # hashes at a time; the caller must not exceed it

    def compute(self, hash: str, secret: bytes, done: Done) -> None: ...

    def close(self) -> None: ...


class ThreadPool:
    """Hashes in `most` threads of this process, made when first needed.

    Their niceness is higher than the loop's: bcrypt and the like release the
    interpreter's lock, and then compete for the cores with requests that need no hash.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.most = most
        self._loop = loop
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[tuple[str, bytes, Done] | None]
        self._jobs = queue.SimpleQueue()
        self._closed = False

    def compute(self, hash: str, secret: bytes, done: Done) -> None:
        if self._idle == 0:
            self._start_thread()
        self._idle -= 1
        self._jobs.put((hash, secret, done))

    def _start_thread(self) -> None:
        # A daemon, so that an exit does not wait for a hash that is no longer needed
        thread = threading.Thread(
            target=self._work, name=f"hasher-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)
        self._idle += 1

    def _work(self) -> None:
        # Imported here, because a proxy without a table of users needs no hash library
        from cutthrough.policy import users

        os.nice(NICENESS)               # affects this thread only: nice(2), sched(7)
        while (job := self._jobs.get()) is not None:
            hash, secret, done = job
            matches, fault = None, ""
            try:
                matches = users.check_hash(hash, secret)
            except Exception as error:  # the library is missing, or rejects the hash
                fault = type(error).__name__        # its text may hold the secret (R37)
            with contextlib.suppress(RuntimeError):             # the loop has ended
                self._loop.call_soon_threadsafe(self._finish, done, matches, fault)

    def _finish(self, done: Done, matches: bool | None, fault: str) -> None:
        self._idle += 1
        if not self._closed:
            done(matches, fault)

    def close(self) -> None:
        """Ends each thread after its current hash."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)


class Helper:
    """One helper process and its current question. Raises OSError if the process cannot
    be started."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.process, self.sock = start_helper(command, socket.SOCK_SEQPACKET)
        self.sock.setblocking(False)
        self.done: Done | None = None
        self.watch: HangWatch | None = None
        self.has_answered = False

    def end_watch(self) -> None:
        if self.watch is not None:
            self.watch.end()
        self.watch = None

    def receive(self) -> bytes:
        """Returns the answer; empty if the helper has ended."""
        try:
            return self.sock.recv(MOST_BYTES)
        except OSError:
            return b""


class HelperPool:
    """Hashes in up to `most` helper processes, which end with this one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int,
                 command: tuple[str, ...] = COMMAND) -> None:
        self.most = most
        self._loop = loop
        self._command = command
        self._helpers: list[Helper] = []
        self._ended: list[subprocess.Popen[bytes]] = []     # not reaped yet
        self._not_before = 0.0
        self._threads: ThreadPool | None = None     # if no helper can be started

    def compute(self, hash: str, secret: bytes, done: Done) -> None:
        helper = self._take()
        if helper is None and self._threads is not None:
            self._threads.compute(hash, secret, done)
            return
        if helper is None:
            self._loop.call_soon(done, None, LOST)
            return
        helper.done = done
        # A hash may take long on a busy core, but it gets some of it
        helper.watch = HangWatch(lambda: cpu_of(helper.process.pid),
                                 lambda: self._on_hung(helper))
        try:
            helper.sock.send(hash.encode() + b"\0" + secret)
        except OSError:                     # it has died; its end also becomes readable
            self._loop.call_soon(self._on_end, helper)

    def _take(self) -> Helper | None:
        self._ended = [process for process in self._ended if process.poll() is None]
        for helper in self._helpers:
            if helper.done is None:
                return helper
        if self._threads is not None or self._loop.time() < self._not_before:
            return None
        try:
            helper = Helper(self._command)
        except FilesReplaced as error:      # logins go on until the upgrade
            log.warning("%s; password hashes are computed in the worker", error)
            self._threads = ThreadPool(self._loop, self.most)
            return None
        except OSError as error:            # no memory, too many processes: may pass
            log.error("cannot start a helper for password hashes: %s", error)
            self._not_before = self._loop.time() + PAUSE_S
            return None
        self._helpers.append(helper)
        self._loop.add_reader(helper.sock.fileno(), self._on_readable, helper)
        return helper

    def _on_readable(self, helper: Helper) -> None:
        packet = helper.receive()
        done = helper.done
        if done is None or packet[:1] not in (RIGHT, WRONG, FAULT):
            self._on_end(helper)            # it ended, or broke the protocol
            return
        helper.done = None
        helper.end_watch()
        helper.has_answered = True
        if packet[:1] == FAULT:
            done(None, packet[1:].decode("ascii", "replace"))
        else:
            done(packet == RIGHT, "")

    def _on_hung(self, helper: Helper) -> None:
        """Kills and replaces a helper that hangs: else its place would be lost, and
        users without a known password would be refused for ever."""
        self._on_end(helper, "does not answer: killed")

    def _on_end(self, helper: Helper, what: str = "ended unexpectedly") -> None:
        if helper not in self._helpers:
            return
        self._drop(helper)
        log.error("helper for password hashes (pid %d) %s", helper.process.pid, what)
        if not helper.has_answered:
            self._not_before = self._loop.time() + PAUSE_S
        if helper.done is not None:
            helper.done(None, LOST)

    def _drop(self, helper: Helper) -> None:
        helper.end_watch()
        self._helpers.remove(helper)
        self._loop.remove_reader(helper.sock.fileno())
        helper.sock.close()
        helper.process.kill()
        self._ended.append(helper.process)  # a wait for it here could block the loop

    def close(self) -> None:
        """Kills the helpers, even in the middle of a hash."""
        if self._threads is not None:
            self._threads.close()
        while self._helpers:
            self._drop(self._helpers[-1])
