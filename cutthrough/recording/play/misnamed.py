"""Requests that choose a session of which there is none."""

from typing import Any

from cutthrough.recording.match.matches import Miss
from cutthrough.recording.play.request import Play


class Misnamed(Play):
    """Its request has an invalid name of a session."""

    __slots__ = ("_why",)

    def __init__(self, why: str, *play: Any) -> None:
        super().__init__(*play)
        self._why = why

    def start(self) -> None:
        self.refuse(self._why)


class Absent(Play):
    """There is no such session."""

    __slots__ = ("_name",)

    def __init__(self, name: str, *play: Any) -> None:
        super().__init__(*play)
        self._name = name

    def start(self) -> None:
        self.miss(Miss(f"there is no session {self._name!r}"))
