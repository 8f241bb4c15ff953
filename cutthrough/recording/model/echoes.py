"""Secrets of a request in a recorded answer: the results of `exchange.echoes`, in
the types of recordings."""

from itertools import accumulate

import msgspec

from cutthrough.exchange import echoes
from cutthrough.exchange.echoes import LEAST as LEAST
from cutthrough.exchange.echoes import MOST_WORK
from cutthrough.exchange.echoes import secrets_of as secrets_of
from cutthrough.recording.model.recording import Chunk, Fields, Message


class Echoes(echoes.Echoes):
    """Of one recorded request."""

    def chunks(self, chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
        """Pieces of a body without a coding; the same object if no secret is there. A
        split secret stands at its former end."""
        body = b"".join([chunk.data for chunk in chunks])
        if not self.has(body):
            return chunks
        if len(body) * len(self._stand_ins) > MOST_WORK:
            return (Chunk(chunks[-1].at_us, self.cut(body)),)
        ends = list(accumulate(len(chunk.data) for chunk in chunks))
        pieces, number = [bytearray() for _ in chunks], 0
        for begin, end, instead in self._pieces(body):
            while begin < end:
                while ends[number] <= begin or (
                        instead is not None and ends[number] < end):
                    number += 1
                upto = min(end, ends[number])
                pieces[number] += body[begin:upto] if instead is None else instead
                begin = upto
        changed = tuple(Chunk(chunk.at_us, bytes(data))
                        for chunk, data in zip(chunks, pieces, strict=True) if data)
        return chunks if changed == chunks else changed

    def fields(self, fields: Fields) -> Fields:
        """The same object if no secret is there."""
        masked = tuple((name, self.text(value)) for name, value in fields)
        return fields if masked == fields else masked

    def _instead(self, data: bytes) -> bytes:
        assert self._value is not None
        return self._value(data.decode("latin-1")).encode()

    def message(self, message: Message) -> Message:
        """The same object if no secret is there."""
        data = self.cut(message.data)
        if self.has_wide(data):
            data = self._instead(data)
        return message if data is message.data else msgspec.structs.replace(
            message, data=data)
