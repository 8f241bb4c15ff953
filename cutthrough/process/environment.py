"""What a child process begins with: its environment, and the blocked signals."""

import os
import signal

import cutthrough
from cutthrough.config.config import SECRETS
from cutthrough.config.settings import variable_name

# Blocked round a spawn; the child lets them in when its handlers stand.
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1,
           signal.SIGUSR2}
# Of these, what would end a program that has no handler yet, and does not mean to
EARLY = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def worker_environment() -> dict[str, str]:
    """Returns our environment, able to import this package, and without secrets."""
    environ = {name: value for name, value in os.environ.items()
               if name not in map(variable_name, SECRETS)}
    package = os.path.dirname(os.path.dirname(os.path.abspath(cutthrough.__file__)))
    before = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return environ
