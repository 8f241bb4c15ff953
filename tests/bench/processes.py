"""Processes that a run of the bench has started."""

import contextlib
import subprocess

import psutil

from tests.support.wait import wait_until


def is_below(process: psutil.Process, words: str) -> bool:
    """Is the command of any process below this one made of these words?"""
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if words in " ".join(child.cmdline()):
                return True
    return False


def wait_below(starter: subprocess.Popen[str], words: str) -> list[psutil.Process]:
    """Waits for a command of these words; returns all that was started by then."""
    process = psutil.Process(starter.pid)

    def has_begun() -> bool:
        assert starter.poll() is None
        return is_below(process, words)

    wait_until(has_begun, f"{words} below {starter.args}", 120)
    return process.children(recursive=True)
