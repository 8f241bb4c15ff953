"""A command behind a proxy of its own: the proxy, its variables in the command's
environment, and the command's signals and status.

    COMMAND ── http_proxy, roots ──> cutthrough serve ──> origins

The proxy is a session of processes of its own, because ^C must reach the command alone.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutthrough.ca.roots import VARIABLES, find_sources, merge
from cutthrough.ca.store import CERTIFICATE, read_certificate, write_file
from cutthrough.ca.verb import encode, make

NOT_FOUND, NOT_EXECUTABLE = 127, 126
START_S, STOP_S = 30.0, 20.0
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_PORT = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
_FORWARDED = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT,
              signal.SIGUSR1, signal.SIGUSR2}
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python; the command decides itself
_BY_KERNEL = 0x80                            # SI_KERNEL: of the terminal
_DEATH = 1                                   # PR_SET_PDEATHSIG


# The environment's values before these tools set them: a JSON object by name, and
# the values that it set. So a tool inside a tool ignores the other's authority
BEFORE = "CUTTHROUGH_BEHIND"


class NotReady(Exception):
    """The proxy has not started, with its own words."""


class Serving:
    """`cutthrough serve` with these flags in this environment. Raises NotReady and
    OSError."""

    def __init__(self, flags: Sequence[str], environ: Mapping[str, str], errors: Path
                 ) -> None:
        self._errors = errors
        libc = ctypes.CDLL(None)

        def end_with_parent() -> None:
            libc.prctl(_DEATH, signal.SIGTERM)

        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cutthrough", "serve", *flags],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True, preexec_fn=end_with_parent,
                env=dict(environ))
        try:
            self.port = self._wait()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def text(self) -> str:
        """The output of the proxy."""
        return self._errors.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def _wait(self) -> int:
        until = time.monotonic() + START_S
        while (match := _PORT.search(self.text)) is None:
            if self.has_ended or time.monotonic() > until:
                raise NotReady(f"the proxy has not started: {self.text.strip()}")
            time.sleep(0.01)            # between looks for the line
        return int(match[1])

    def stop(self) -> None:
        if self.has_ended:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def make_bundle(directory: Path, authority: str, path: Path, roots: bool = True
                ) -> None:
    """Makes the authority if there is none. `roots`: with those of the system, for a
    client that dials by itself too. Raises AuthorityError and OSError."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)     # another run may make it just now
        if not os.path.lexists(os.path.join(authority, CERTIFICATE)):
            make(authority)
    finally:
        os.close(lock)
    own = read_certificate(authority)
    data = encode(own, "pem")
    if roots:
        data, _ = merge(encode(own, "der"), find_sources(
            str(path), outside(os.environ)))
    write_file(str(path), data, 0o644, True)


def environment(inherited: Mapping[str, str], url: str, bundle: Path
                ) -> dict[str, str]:
    """The command's environment: proxy and roots, by the variables of most programs."""
    before = outside(inherited)
    variables = {name: value for name, value in before.items()
                 if name.lower() != "no_proxy"}
    own = dict.fromkeys(VARIABLES, str(bundle))
    for name in PROXIES:
        own[name] = own[name.upper()] = url
    own["no_proxy"] = own["NO_PROXY"] = ""
    # Node.js asks no proxy without it, since 24
    own["NODE_USE_ENV_PROXY"] = "1"
    return variables | own | {BEFORE: json.dumps(
        {name: (before.get(name), value) for name, value in own.items()})}


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of `environment` (R92), because a proxy
    would trust another one's authority with every origin if it took it for the
    system's."""
    variables = dict(environ)
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        for name, (before, own) in json.loads(variables.pop(BEFORE, "{}")).items():
            if variables.get(name) == own:   # nobody has set it since
                del variables[name]
                if before is not None:
                    variables[name] = before
    return variables


def follow(path: str, command: list[str], environ: Mapping[str, str]) -> int:
    """Runs the command, passes signals on, and returns its status as a shell does."""
    watched = _FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        try:
            number = os.posix_spawn(path, command, environ, setsigmask=before,
                                    setsigdef=_IGNORED)
        except OSError as error:
            print(f"cutthrough: {path}: {error.strerror}", file=sys.stderr)
            return NOT_EXECUTABLE
        while True:
            info = signal.sigwaitinfo(watched)
            if info.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(number, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    return 128 - code if code < 0 else code
            elif info.si_code != _BY_KERNEL:     # else the terminal has told it too
                os.kill(number, info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
