"""Asks for a reload when a file of the present configuration changes (`watch`).

The files are looked at every EVERY_S seconds; inotify would have to follow links, and
directories that are exchanged as a whole, as Kubernetes does it. A change counts when
it is one look old: an editor, or a deployment, writes several files. A reload that was
refused is asked for again only after another change. Certificates have a watch of their
own, which reads nothing else; a new bundle asks for its reload itself.
"""

import asyncio
from collections.abc import Callable, Mapping

from cutthrough.config.config import Config
from cutthrough.config.files import Version, version_of
from cutthrough.supervisor.certificate_watch import stamps_of

EVERY_S = 1.0

Versions = Mapping[str, Version | None]


class FileWatch:
    """Looks at the files that `follow` names, while the configuration says so."""

    def __init__(self, config: Callable[[], Config],
                 request: Callable[[], object]) -> None:
        self._config, self._request = config, request
        self._read: dict[str, Version | None] = {}
        self._last: Versions = {}            # at the last look
        self._asked: Versions = {}           # when a reload was requested
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, versions: Versions, whole: bool) -> None:
        """`versions`: of the files when they were read. `whole`: no other file counts;
        else not all were read, because of a mistake."""
        self._read = {**({} if whole else self._read), **versions}

    def begin(self) -> None:
        """Begins to look, or ends, as the configuration in force says."""
        self.end()
        if self._config().watch:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self.look)

    def look(self) -> None:
        own, bundle = stamps_of(self._config()), self._config().bundle_current
        read = {path: version for path, version in self._read.items()
                if path not in own and not (bundle and path.startswith(f"{bundle}/"))}
        now = {path: version_of(path) for path in read}
        if now != read and now == self._last and now != self._asked:
            self._asked = now
            self._request()
        self._last = now
        self.begin()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
