"""Captured exchanges that have not ended, for operators: the supervisor's side.

Each worker says which it has in hand, and the writer what has come of them. Both go on
to a process that redacts and reads them (flow_queries). A previous program that drains
is not asked.
"""

from base64 import b64decode
from itertools import zip_longest

from cutthrough.process.channel import ListOpen
from cutthrough.storage.settings import Settings
from cutthrough.supervisor.replays import Ask, Processes
from cutthrough.tape.open_parts import (
    MOST_OPEN,
    Opened,
    Parts,
    PartsQuery,
    encode,
    split_name,
)


class OpenFlows:
    def __init__(self, ask: Ask, processes: Processes) -> None:
        """`ask`: Inquiry.ask_workers."""
        self._ask = ask
        self._processes = processes

    @property
    def settings(self) -> Settings | None:
        """The settings by which exchanges are redacted; None if nothing is captured."""
        return self._processes.capture.settings

    async def all(self) -> bytes:
        """All of them with their heads, as a list of Opened."""
        ends = await self._ends("")
        wanted = PartsQuery(tuple(split_name(name) for name, _ in ends))
        parts = await self._processes.capture.parts(wanted) if ends else {}
        return encode([Opened(name, end, parts.get(name, Parts()))
                       for name, end in ends])

    async def flow(self, name: str, known: int = -1) -> tuple[int, bytes] | None:
        """The bytes that have come of an exchange, and it with all its parts, as
        `all`; b"" if there are `known` bytes still. None: it has ended."""
        ends = await self._ends(name)
        if not ends:
            return None
        by_name = await self._processes.capture.parts(
            PartsQuery((split_name(name),), whole=True, known=known))
        parts = by_name.get(name, Parts())
        if known >= 0 and name not in by_name:
            return known, b""
        return parts.size, encode([Opened(name, ends[0][1], parts)])

    async def _ends(self, name: str) -> list[tuple[str, bytes]]:
        workers = [child for child in self._processes.children.values() if child.ready]
        query = await self._ask(lambda query: ListOpen(query, name), workers, ())
        # Each worker has its newest first: none is left out for another one's
        turns = [entry for turn in zip_longest(*query.answers) for entry in turn
                 if entry is not None]
        return [(name, b64decode(end)) for name, end in turns[:MOST_OPEN]]
