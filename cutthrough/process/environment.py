"""The environment and the blocked signals that a child process starts with."""

import os

import cutthrough
from cutthrough.process import files

# HUP, USR1 and USR2 would end a program that has no handlers yet, though they mean no
# end. Numbers, because the first worker starts before `signal` and `enum` are loaded,
# which takes 2 ms; tests/process compares them.
EARLY = {1, 10, 12}
# And INT, QUIT, TERM. Blocked around a spawn; the child unblocks them when it has its
# handlers.
SIGNALS = EARLY | {2, 3, 15}


# The variables of options that are secrets. Not read from their definitions, because
# the first worker starts before these are loaded; tests/process compares them.
SECRET_VARIABLES = {f"CUTTHROUGH_{name}" for name in (
    "PASSWORD", "FLEET_URL", "CREDENTIALS_KEY", "BUNDLE_URL", "BUNDLE_HEADER",
    "ADMIN_TOKEN", "CAPTURE_URL", "RECORDING_URL", "TRACE_URL")}


# glibc raises this bound to the size of a freed block. Then bodies are in the heap, and
# stay there as long as something small lies behind them (R69)
MAPPED_FROM = 256 << 10


def worker_environment() -> dict[str, str]:
    """As first_environment. Raises FilesReplaced."""
    files.check_files()
    return first_environment()


def first_environment() -> dict[str, str]:
    """Returns the environment of a process of this program: this one's without secrets,
    with a PYTHONPATH from which this package can be imported, and with large
    allocations apart from the heap.

    Of the first worker: this process has looked at the files just now.
    """
    environ = {name: value for name, value in os.environ.items()
               if name not in SECRET_VARIABLES}
    package = os.path.dirname(os.path.dirname(os.path.abspath(cutthrough.__file__)))
    environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(MAPPED_FROM))
    before = environ.get("PYTHONPATH")
    environ[files.VARIABLE] = files.expected()
    environ["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return environ
