"""The environment and the blocked signals that a child process starts with."""

import os
import signal

import cutthrough
from cutthrough.config.config import SECRETS
from cutthrough.config.settings import variable_name

# Blocked around a spawn; the child unblocks them when it has its handlers.
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1,
           signal.SIGUSR2}
# Those that would end a program that has no handlers yet, though they mean no end
EARLY = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def worker_environment() -> dict[str, str]:
    """Returns this process's environment without secrets, and with a PYTHONPATH from
    which this package can be imported."""
    environ = {name: value for name, value in os.environ.items()
               if name not in map(variable_name, SECRETS)}
    package = os.path.dirname(os.path.dirname(os.path.abspath(cutthrough.__file__)))
    before = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return environ
