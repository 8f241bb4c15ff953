"""The old program's part in an upgrade: it starts the new one, and drains for it.

Before the new program serves, nothing changes here. If it fails, or refuses because it
would serve less, this program continues (upgrade.Served).

What drains here follows the new program's rules: this program reads the same files when
the new one serves, and after each of its reloads. Nothing of a generation passes from
program to program, because the two may be of different versions. A key that this one
does not know refuses the whole, where a decoder would drop it and widen a rule.
"""

import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from cutthrough.generation.checks import complete, describe
from cutthrough.generation.generation import (
    Generation,
    Sources,
    show_changes,
    to_memory,
)
from cutthrough.log.stderr import say
from cutthrough.process.channel import Commit, Prepare
from cutthrough.supervisor.capture_writer import CaptureWriter
from cutthrough.supervisor.children import Child
from cutthrough.supervisor.inherited_pages import InheritedPages
from cutthrough.supervisor.listeners import Lent, Listeners
from cutthrough.supervisor.reload import Reloads
from cutthrough.supervisor.upgrade import Answer, Served, Successor


class Program(Protocol):
    """The part of the supervisor that is used here."""

    generation: Generation
    sources: Sources
    listeners: Listeners
    pages: InheritedPages
    capture: CaptureWriter
    children: dict[int, Child]
    reloads: Reloads

    @property
    def is_serving(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...


class Succession:
    """`successor`: the new program, from its start; None: there is none, or it failed.
    `on_serving` is called when it serves. `answer` answers its queries."""

    def __init__(self, program: Program, on_serving: Callable[[Successor], None],
                 answer: Answer) -> None:
        self._program = program
        self._on_serving = on_serving
        self._answer = answer
        self._is_wanted = False
        self.successor: Successor | None = None
        self._lent: Lent | None = None

    def request(self) -> None:
        """Starts the new program, after the attempt of a reload that is under way."""
        program = self._program
        self._is_wanted = False
        if not program.is_serving or self.successor is not None:
            say("upgrade refused: the program is starting, upgrading or shutting down")
        elif os.getpid() == 1:
            say("upgrade refused: the container would end with this process, its "
                "process 1; replace the container")
        elif program.reloads.is_attempting:
            self._is_wanted = True
        else:
            self._begin()

    def retry(self) -> None:
        """No attempt of a reload is under way any more."""
        if self._is_wanted:
            self.request()

    def _begin(self) -> None:
        program = self._program
        generation = program.generation
        self._lent = program.listeners.lend(generation.config.all_listeners)
        try:
            self.successor = Successor(
                program.listeners.all(), program.listeners.activated,
                on_serving=self._on_successor_serving, on_failed=self._on_failed,
                answer=self._answer, pages=program.pages.variables,
                served=Served.of(generation.config, generation.policy))
        except OSError as error:
            say(f"upgrade refused: {describe(error)}")

    def _on_failed(self, reason: str) -> None:
        self.successor = None
        if self._lent is not None:
            self._lent.give_back()
        say(f"upgrade failed, this program continues to serve: {reason}")
        self._program.reloads.retry()

    def _on_successor_serving(self) -> None:
        assert self.successor is not None
        say(f"pid {self.successor.process.pid} serves; this program drains")
        self._on_serving(self.successor)
        self.follow()

    def follow(self) -> None:
        """Applies what the new program has in force to what drains here."""
        program = self._program
        if self.successor is None or not (program.is_ending and program.children):
            return
        try:
            generation, changes = self._read()
            if not changes:
                return
            memory = to_memory(generation)
        except Exception as error:           # whatever it is, this program drains on
            say("what drains here keeps the rules of generation "
                f"{program.generation.number}, and DELETE /connections cuts it: "
                f"{program.reloads.explain(error)}")
            return
        say(f"what drains here follows pid {self.successor.process.pid}: {changes}")
        try:
            for child in program.children.values():
                if not (child.send(Prepare(generation.number), (memory,))
                        and child.send(Commit(generation.number))):
                    say(f"{child.name}: control socket full, worker is not reading; "
                        "what drains there keeps its rules")
        finally:
            os.close(memory)
        program.generation = generation      # no worker starts with it
        program.capture.commit(generation)

    def _read(self) -> tuple[Generation, str]:
        """Returns what the files have now, and its changes; "": it has none."""
        before = self._program.generation
        config, policy = self._program.sources.read()
        self._program.reloads.check_user(config)
        generation = complete(
            msgspec.structs.replace(before, config=config, policy=policy))
        changes = "" if generation == before else show_changes(before, generation)
        return msgspec.structs.replace(generation, number=before.number + 1), changes

    async def finish_answers(self) -> None:
        """Waits until the new program's queries are answered."""
        if self.successor is not None:
            await self.successor.finish_answers()

    def abandon(self) -> None:
        """Ends the new program if it does not serve yet."""
        if self.successor is not None and self.successor.abandon():
            self.successor = None
