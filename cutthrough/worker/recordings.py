"""The player of a worker, and room to record: made, and imported, when a rule has
`recording`."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cutthrough.exchange.work import Gate
from cutthrough.generation.generation import Generation
from cutthrough.generation.recordings import make_hooks
from cutthrough.policy.answer import Caller
from cutthrough.policy.snapshot import Snapshot
from cutthrough.policy.source import RECORDINGS, Code, Policy
from cutthrough.session.model.context import Context
from cutthrough.session.replay.answer_cache import AnswerCache
from cutthrough.tape.ring import Ring
from cutthrough.tape.ring_room import RingRoom
from cutthrough.worker.transaction import Transaction

if TYPE_CHECKING:
    from cutthrough.recording.match.misses import Asker
    from cutthrough.recording.match.nearest import Glance
    from cutthrough.recording.play.player import Player

# Exchanges may wait so long for the writer at the worker's end
SETTLE_S = 5.0
LOOK_S = 0.005


class Recordings:
    def __init__(self, context: Context, program: int, ring: Ring | None = None,
                 gate: Gate | None = None, slot: int = 0) -> None:
        """`program`: the supervisor's identifier; 0: there is none. `ring`: to the
        writer; None: nothing is recorded. `slot`: the worker's."""
        self._context = context
        self._ring = ring
        self._room: RingRoom | None = None
        self._program, self._slot = program, slot
        self._gate = gate or Gate()
        self._answer_cache = AnswerCache()
        self._player: Player | None = None
        self._hooks: Any = None
        self._code: tuple[str, Code | None] = ("", None)

    def prepare(self, generation: Generation, snapshot: Snapshot,
                transaction: Transaction) -> None:
        """Raises ValueError. If the generation records nothing, the player stays: a
        request in hand keeps its rule, and what replays must not reach the network
        (R60)."""
        config = generation.config
        if not generation.policy.records:
            return
        from cutthrough.recording.match.matcher import Matcher
        from cutthrough.recording.play.player import Player, Settings, make_route
        from cutthrough.recording.sessions.choice import Choice

        # The same object while its code is: an equal player keeps its places
        name = config.recording_hooks
        code = name, generation.policy.code.get(name.partition(":")[0])
        hooks = self._hooks
        if code != self._code:
            hooks = make_hooks(config, generation.policy)
        player = self._player or Player(
            self._set_mode, self._answer_cache, self._gate, self._slot)
        settings = Settings(
            directory=config.recording_directory, session=config.recording_session,
            choice=Choice(config.recording_session_field,
                          config.recording_session_user),
            program=self._program, speed=config.recording_pace,
            routes=tuple(map(make_route, config.recording_routes)),
            most_body=config.recording_body,
            tells_nearest=config.recording_misses == "nearest",
            on_replay=getattr(hooks, "on_replay", None),
            plays=generation.policy.replays)
        Matcher(settings.routes)             # raises the same as `configure`
        room = self._room
        if room is None and self._ring is not None:
            room = RingRoom(self._ring, self._context)
            transaction.on_discard(room.end)
        transaction.on_commit(player.configure, settings)
        transaction.on_commit(
            player.set_rules, make_admits(snapshot, generation.policy))
        if room is not None:
            transaction.on_commit(room.configure, config.recording_body)
        transaction.on_commit(self._assign_hooks, hooks, code)
        transaction.on_commit(self._assign, player, room)

    def _assign_hooks(self, hooks: Any, code: tuple[str, Code | None]) -> None:
        self._hooks, self._code = hooks, code

    def _assign(self, player: "Player", room: RingRoom | None) -> None:
        context = self._context
        self._player = context.player = player
        context.answer_cache = self._answer_cache
        self._room = context.room = room

    def _set_mode(self, mode: str) -> None:
        self._context.recording = RECORDINGS.get(mode, -1)   # `rules` has none

    def tell(self) -> list[dict[str, Any]]:
        """The misses since the session came into force."""
        return [] if self._player is None else [self._player.tell()]

    async def look(self) -> str:
        """Has mode and session come into force now; returns why not, or ""."""
        return "" if self._player is None else await self._player.look()

    def counts(self) -> dict[str, int]:
        """Requests by how they were recorded, if not at once."""
        return {} if self._room is None else self._room.counts()

    @property
    def waiting(self) -> int:
        """Requests that wait for room now."""
        return 0 if self._room is None else self._room.waiting_now

    async def settle(self) -> None:
        """Returns when the recordings are in the ring, which outlives the worker."""
        for _ in range(int(SETTLE_S / LOOK_S)):
            if self._ring is None or self._ring.settle():
                return
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """No client is left."""
        if self._room is not None:
            self._room.end()

    def close(self) -> None:
        if self._player is not None:
            self._player.close()


def make_admits(snapshot: Snapshot, policy: Policy
                ) -> "Callable[[Asker, Glance], bool]":
    """Whether the rules let a client make a recorded request, as far as name, path and
    method say. Only admitted requests may be compared with the client's own (R74)."""

    def admits(asker: "Asker", glance: "Glance") -> bool:
        acl = snapshot.acl
        if acl is None:
            return True
        host = f"[{glance.host}]" if ":" in glance.host else glance.host
        caller = Caller(asker.user, policy.groups_of(asker.user), asker.client)
        # Requests of an intercepted tunnel were judged twice
        is_inside = glance.scheme in ("https", "wss")
        try:
            return all(
                snapshot.port_outcome(method == "CONNECT", glance.port) == "ok"
                and acl.ask(host=host, port=glance.port, caller=caller, method=method,
                            path=path).outcome == "ok"
                for method, path in [
                    *([("CONNECT", None)] if is_inside else []),
                    (glance.method, glance.path.encode())])
        except ValueError:                   # of a file that was imported
            return False

    return admits
