"""Secrets of a request in a recorded answer: the results of `exchange.echoes`, in
the types of recordings."""

from collections.abc import Iterator
from itertools import accumulate

import msgspec

from cutthrough.exchange.echoes import Echoes, Work
from cutthrough.recording.model.recording import Chunk, Fields, Message


class RecordedEchoes(Echoes):
    """The echoes of one recorded request."""

    def chunks(self, chunks: tuple[Chunk, ...], work: Work | None = None
               ) -> tuple[Chunk, ...]:
        """Pieces of a body without a coding; the same object if no secret is there. A
        split secret stands at its former end."""
        body = b"".join([chunk.data for chunk in chunks])
        places = self.places(body, work or self.work())
        if places is None:
            return (Chunk(chunks[-1].at_us, self._whole(body)),)
        if not places:
            return chunks
        ends = list(accumulate(len(chunk.data) for chunk in chunks))
        pieces, number = [bytearray() for _ in chunks], 0
        for begin, end, instead in _around(places, len(body)):
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

    def fields(self, fields: Fields, work: Work | None = None) -> Fields:
        """The same object if no secret is there."""
        work = work or self.work()
        masked = tuple((name, self.text(value, work)) for name, value in fields)
        return fields if masked == fields else masked

    def message(self, message: Message, work: Work | None = None) -> Message:
        """The same object if no secret is there."""
        work = work or self.work()
        data = self.cut(message.data, work)
        if data and self.has_wide(data, work):
            data = self._whole(data)
        return message if data is message.data else msgspec.structs.replace(
            message, data=data)


def _around(places: list[tuple[int, int, bytes]], size: int
            ) -> Iterator[tuple[int, int, bytes | None]]:
    """Begin, end, and the stand-in; None: it stays."""
    at = 0
    for begin, end, stand_in in places:
        yield at, begin, None
        yield begin, end, stand_in
        at = end
    yield at, size, None
