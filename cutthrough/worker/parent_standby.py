"""The connections that a worker keeps ready for its parents: `standby` of each."""

import functools

from cutthrough.net.poller import Poller
from cutthrough.policy.parents import Parent, Ways
from cutthrough.session.model.context import Context
from cutthrough.session.model.standby import Standby
from cutthrough.session.ways.probe import SetUp
from cutthrough.worker.transaction import Transaction


class ParentStandby:
    """Keeps connections from a commit on, until `close`.

    If a reload leaves a parent as it is, the parent keeps its number and connections.
    If not, the connections are closed: they may lead elsewhere, or show another
    certificate (R46).
    """

    def __init__(self, context: Context, poller: Poller) -> None:
        self._context, self._poller = context, poller
        self._standbys: dict[int, Standby] = {}

    def prepare(self, ways: Ways | None, timeout: float, transaction: Transaction
                ) -> None:
        """Follows the ways in force; a connection waits for `timeout` seconds."""
        wanted = {parent.standing.number: parent
                  for parent in (ways.parents if ways is not None else ())
                  if parent.standby and parent.standing is not None}
        standbys = {}
        for number, parent in wanted.items():
            standby = self._standbys.get(number)
            if standby is None:
                assert parent.standing is not None
                standby = Standby(self._poller, parent.standing)
                transaction.on_discard(standby.close_now)
            standbys[number] = standby
            transaction.on_commit(standby.configure, parent.standby, timeout,
                               functools.partial(self._begin, parent))
        transaction.on_commit(self._assign, standbys)

    def _assign(self, standbys: dict[int, Standby]) -> None:
        for number in self._standbys.keys() - standbys.keys():
            self._standbys[number].close_now()
        self._standbys = standbys
        self._context.standbys = standbys or None

    def _begin(self, parent: Parent, standby: Standby) -> SetUp:
        return SetUp(self._context, parent, standby)

    @property
    def held(self) -> int:
        """Endpoints of the poller, each with a timer."""
        return sum(standby.held for standby in self._standbys.values())

    def close(self) -> None:
        """Closes all connections. Idempotent."""
        self._assign({})
