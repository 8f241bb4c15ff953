"""The recordings that may answer a request in mode `cache`.

They are its user's own, or shared (R75). If the answer has `Vary`, the recorded request
had to have the same fields (RFC 9111 section 4.1), because else a client without a
decoder gets compressed content.
"""

import sys

from cutthrough.recording.model.recording import Recording, Request
from cutthrough.recording.model.sharing import NOBODYS, Reader, mark_of, may_read

# The fields of Vary, with their values in the recorded request; None: "*", met by none
Variant = tuple[tuple[str, tuple[str, ...]], ...] | None


def variant_of(recording: Recording) -> Variant:
    """(): the answer is the same for all fields."""
    names = {name.strip().lower() for field, value in recording.response.fields
             if field.lower() == "vary" for name in value.split(",")} - {""}
    if "*" in names:
        return None
    return tuple((name, _values(recording.request, name)) for name in sorted(names))


def _values(request: Request, name: str) -> tuple[str, ...]:
    return tuple(value.strip() for field, value in request.fields
                 if field.lower() == name)


class Readable:
    """Judges which recordings of a matcher a request may get."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}    # see sharing.mark_of
        self._variants: dict[int, Variant] = {}
        self._alike: dict[Variant, Variant] = {}     # each is in memory once

    @property
    def has_variants(self) -> bool:
        """Do fields of requests count?"""
        return bool(self._variants)

    def add(self, recording: Recording) -> None:
        if not recording.owner:         # imported: its request may have lost fields
            return
        self._owners[recording.number] = sys.intern(mark_of(recording))
        variant = variant_of(recording)
        if variant != ():
            self._variants[recording.number] = self._alike.setdefault(variant, variant)

    def remove(self, number: int) -> None:
        self._owners.pop(number, None)
        if self._variants.pop(number, None) and not self._variants:
            self._alike.clear()

    def mark(self, number: int) -> str:
        """The owner for an answer at hand, which is found by the request's line."""
        return NOBODYS if number in self._variants else self._owners.get(number, "")

    def is_kept(self, number: int, reader: Reader | None) -> bool:
        """May its answer be at hand for the same line? `reader`: None: of no cache."""
        return reader is None or number not in self._variants

    def is_readers(self, number: int, reader: Reader) -> bool:
        return may_read(self._owners.get(number, ""), reader)

    def may_answer(self, number: int, request: Request, reader: Reader) -> bool:
        """`request`: without its secrets, as the recorded one is."""
        variant = self._variants.get(number, ())
        return self.is_readers(number, reader) and variant is not None and all(
            _values(request, name) == values for name, values in variant)
