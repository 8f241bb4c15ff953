"""The begin of `cutthrough`, `python -m cutthrough` and `import proxy`.

`serve` starts its first worker before anything else: on two cores the worker loads its
modules while the command line and the supervisor load theirs.
"""

from __future__ import annotations

import gc
import importlib
import sys

from cutthrough.cli.standard import fill_standard
from cutthrough.process.lean import import_msgspec
from cutthrough.process.leaving import leave

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import NoReturn

HELP = {"-h", "--help"}


def main() -> NoReturn:
    """Runs the command line, and ends the process."""
    leave(begin(sys.argv[1:], lambda: int(_command_line().main())))


def demonstrate(flags: Sequence[str]) -> int:
    """Serves for `python -c "import proxy"`; returns the exit status."""
    return begin(["serve", *flags], lambda: int(
        _command_line().demonstrate(flags)))


def _command_line() -> ModuleType:
    import_msgspec()
    return importlib.import_module("cutthrough.cli.main")


def begin(words: Sequence[str], run: Callable[[], int]) -> int:
    fill_standard()                          # before there is a socket
    if words[:1] != ["serve"] or not HELP.isdisjoint(words):
        return run()
    from cutthrough.supervisor.early_worker import EarlyWorker

    gc.disable()                             # modules are no garbage: 8 % of the time
    EarlyWorker.begin()
    try:
        return run()
    finally:
        EarlyWorker.end_unused()
