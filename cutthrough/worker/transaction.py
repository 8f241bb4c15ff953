"""A generation that a worker could put in force: prepared, and then one of two ends.

    prepare ─> commit      every object that the generation needs is assigned
       └─────> discard     nothing has changed

All that may fail belongs to `prepare`: code of the operator, files, tables that are
full, memory. A commit only assigns prepared parts; it runs no code of the operator, and
reads no file. So a refused generation is never half in force (R73).
"""

import contextlib
from collections.abc import Callable
from typing import Any

from cutthrough.generation.generation import Generation


class Transaction:
    """One generation's commit, in the order in which its parts were prepared."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self._commits: list[Callable[[], object]] = []
        self._undo = contextlib.ExitStack()

    def on_commit(self, call: Callable[..., object], *args: Any, **named: Any) -> None:
        """Has `commit` call this, which cannot fail."""
        self._commits.append(lambda: call(*args, **named))

    def on_discard(self, call: Callable[..., object], *args: Any) -> None:
        """Has `discard` call this, which takes back a table's entries of this
        generation."""
        self._undo.callback(call, *args)

    def commit(self) -> None:
        self._undo.pop_all()
        for call in self._commits:
            call()

    def discard(self) -> None:
        """Idempotent."""
        self._undo.close()
