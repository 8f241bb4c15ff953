"""Verbs of the command line, in this process or in a fork: a new process takes 0.2 s
of CPU to begin."""

import contextlib
import io
import os
import subprocess
from collections.abc import Iterator

from cutthrough.cli.main import main
from tests.support import starter
from tests.support.proxy import ROOT, clean_environment


@contextlib.contextmanager
def environment(**more: str) -> Iterator[None]:
    """Within, the variables of a process that no terminal has started."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(clean_environment(**{"COLUMNS": "80", **more}))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_verb(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What `cutthrough WORDS…` returns and prints. Not `serve`, which takes the
    signals of its process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.chdir(ROOT), environment(**environ), \
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    printed, errors = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(words, status, printed, errors)


def run_apart(*words: object, seconds: float = 60.0, **environ: str
              ) -> subprocess.CompletedProcess[str]:
    """As `run_verb`, in a process of its own."""
    return starter.complete(["-m", "cutthrough", *map(str, words)],
                            clean_environment(**environ), str(ROOT), seconds)
