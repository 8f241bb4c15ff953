"""Has certificates read again when their files change, without a signal.

The files are looked at every EVERY_S seconds; inotify would have to follow links, and
directories that are exchanged as a whole, as Kubernetes does it. A change counts when
it is one look old: a program that renews a certificate writes several files. Only the
files of TLS are read; configuration and policy stay as they are.
"""

import asyncio
import os
from collections.abc import Callable

from cutthrough.config.config import Config
from cutthrough.generation.delegates import is_old, renew_old
from cutthrough.generation.interception import interception_files

EVERY_S = 5.0

Stamps = dict[str, tuple[int, int, int] | None]


class CertificateWatch:
    """Calls `reread` after a change of a file that the present configuration names."""

    def __init__(self, config: Callable[[], Config],
                 reread: Callable[[], bool]) -> None:
        """`reread` returns False if it cannot be done now."""
        self._config, self._reread = config, reread
        self._read: Stamps = {}              # when they were read last
        self._stamps: Stamps = {}            # at the last look
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Begins to look, at the files that are in force now. Idempotent."""
        self.end()
        self._read = self._stamps = stamps_of(self._config())
        self._schedule()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._look)

    def _look(self) -> None:
        now = stamps_of(self._config())
        if now.keys() != self._read.keys():  # a reload has read them
            self._read = now
        elif now != self._read and now == self._stamps and self._reread():
            self._read = now
        self._stamps = now
        if is_old() and not self._renewing:
            self._renewing = asyncio.ensure_future(self._renew())
        self._schedule()

    async def _renew(self) -> None:
        """In a thread, because a token takes its time."""
        try:
            if await asyncio.to_thread(renew_old):
                self._reread()
        finally:
            self._renewing = None

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def stamps_of(config: Config) -> Stamps:
    """The identity of each file's version; None: it is not there."""
    files = [path for listener in config.all_listeners for path in listener.tls_files]
    files += [path for parent in config.all_parents for path in parent.tls_files]
    files += [path for path in (config.ca_certificate, config.ticket_keys_file) if path]
    files += interception_files(config)
    return {path: _stamp(path) for path in files}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
