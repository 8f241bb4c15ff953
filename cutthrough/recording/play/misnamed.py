"""Requests that choose a session of which there is none."""

from cutthrough.recording.match.matches import Miss
from cutthrough.recording.play.request import Play
from cutthrough.recording.play.shared import Arrival, Exchange, Shared


class Misnamed(Play):
    """Its request has an invalid name of a session."""

    __slots__ = ("_why",)

    def __init__(self, why: str, shared: Shared, exchange: Exchange, arrival: Arrival
                 ) -> None:
        super().__init__(shared, exchange, arrival)
        self._why = why

    def start(self) -> None:
        self.refuse(self._why)


class Absent(Play):
    """There is no such session."""

    __slots__ = ("_name",)

    def __init__(self, name: str, shared: Shared, exchange: Exchange, arrival: Arrival
                 ) -> None:
        super().__init__(shared, exchange, arrival)
        self._name = name

    def start(self) -> None:
        self.miss(Miss(f"there is no session {self._name!r}"))
