"""The connections that a worker keeps ready for its parents: `standby` of each."""

import functools

from cutthrough.net.poller import Poller
from cutthrough.policy.parents import Parent, Ways
from cutthrough.session.context import Context
from cutthrough.session.probe import SetUp
from cutthrough.session.standby import Standby


class ParentStandby:
    """Keeps connections from `configure` on, until `close`.

    If a reload leaves a parent as it is, the parent keeps its number and connections.
    If not, the connections are closed: they may lead elsewhere, or show another
    certificate (R46).
    """

    def __init__(self, context: Context, poller: Poller) -> None:
        self._context, self._poller = context, poller
        self._standbys: dict[int, Standby] = {}
        self._is_closed = False

    def configure(self, ways: Ways | None, timeout: float) -> None:
        """Follows the ways in force; a connection waits for `timeout` seconds."""
        wanted = {parent.standing.number: parent
                  for parent in (ways.parents if ways is not None else ())
                  if parent.standby and parent.standing is not None}
        if self._is_closed:
            wanted = {}
        for number in self._standbys.keys() - wanted.keys():
            self._standbys.pop(number).close_now()
        for number, parent in wanted.items():
            if number not in self._standbys:
                assert parent.standing is not None
                self._standbys[number] = Standby(self._poller, parent.standing)
            self._standbys[number].configure(
                parent.standby, timeout, functools.partial(self._begin, parent))
        self._context.standbys = self._standbys or None

    def _begin(self, parent: Parent, standby: Standby) -> SetUp:
        return SetUp(self._context, parent, standby)

    @property
    def held(self) -> int:
        """Endpoints of the poller, each with a timer."""
        return sum(one.held for one in self._standbys.values())

    def close(self) -> None:
        """Closes all connections for good. Idempotent."""
        self._is_closed = True
        self.configure(None, 0.0)
