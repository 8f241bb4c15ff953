"""Messages of one WebSocket's client, compared with recorded ones within a bound (R64).

A cheap message is compared in the loop, a costly message in the process for long work.
"""

from collections.abc import Callable
from typing import NamedTuple

from cutthrough.exchange.work import Busy, Gate, Unread, is_costly
from cutthrough.recording.match import reading as apart
from cutthrough.recording.match.alike import Alike
from cutthrough.recording.match.keys import Route
from cutthrough.recording.model.recording import Message, Recording, Request


class Setting(NamedTuple):
    """`request`: the client's request. `mask` removes its messages' secrets, absent
    from recordings; `rules` make the same mask in another process."""

    request: Request
    mask: Callable[[Message], Message]
    rules: bytes
    gate: Gate
    asker: str


class Conversing:
    """The client's part of a conversation."""

    def __init__(self, route: Route, recording: Recording, setting: Setting) -> None:
        """Raises KeyMistake."""
        self._route, self._recorded, self._setting = route, recording.request, setting
        self._alike = Alike(route, recording.request)

    async def difference(self, message: Message, recorded: bytes) -> str | None:
        """In words; None if they are the same, and the client's values are known."""
        setting, alike = self._setting, self._alike
        if self._is_costly(message.data, recorded):
            text: str | None
            try:
                text, alike.own = await setting.gate.run(
                    setting.asker, apart.compare_messages, setting.rules, self._route,
                    self._recorded, setting.request, message, recorded, alike.own)
            except (Busy, Unread) as error:
                return f"it was not compared: {error or 'too many others are'}"
            return text
        return alike.compare(setting.mask(message).data, message.data, recorded)

    async def answer(self, data: bytes) -> bytes:
        """A recorded message of the origin's, with the client's values."""
        setting, alike = self._setting, self._alike
        if alike.own and self._is_costly(data):
            try:
                data = await setting.gate.run(
                    setting.asker, apart.answer_message, self._route, self._recorded,
                    data, alike.own)
            except (Busy, Unread):
                pass
            return data
        return alike.answer(data)

    def _is_costly(self, *data: bytes) -> bool:
        return self._setting.gate.is_apart and any(map(is_costly, data))
