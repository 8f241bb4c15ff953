"""Which recordings have a base, and no part that the request has not: without a scan.

    base ──> its groups
      └────> shapes (names of the parts) ── values of these names ──> groups

Recordings of one base mostly have few shapes, so a look-up takes the request's values
for the names of each shape, and finds them in a dictionary. If there are many shapes,
only those are tried that are filed under a name that the request has; each is filed
under the name with the fewest others.

There may be many recordings, and most have a base or values of their own. So these are
kept as digests, and what there is one of is kept as itself.
"""

import hashlib
from bisect import insort
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from cutthrough.exchange.documents import compile_path
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matches import Match, Miss, Reading
from cutthrough.recording.match.routes import Base, Parts, Route
from cutthrough.recording.match.statuses import (
    FAILED,
    NOT_MODIFIED,
    PARTIAL,
    RANGE,
    SWITCHED,
    UNSATISFIED,
    conditions_of,
)
from cutthrough.recording.model.recording import Pattern

Names = tuple[Hashable, ...]
# Common to the recordings of one group, beside their parts
Extra = tuple[tuple[Pattern, ...], tuple[tuple[str, str], ...]]
# By the digest of a base or of values; an int stands for a group of one without extra
Groups = dict[bytes, "int | dict[Extra, Group]"]

_ENCODE = msgspec.msgpack.Encoder().encode

NO_EXTRA: Extra = ((), ())
FEW = 8
# A bytes object of 15 bytes takes 48, one of 16 takes 64
DIGEST_BYTES = 15


class Group:
    """Recordings that answer the same requests, in order: a sequence."""

    __slots__ = ("extra", "numbers", "serial", "weight")

    def __init__(self, weight: int, extra: Extra, serial: int, numbers: list[int]
                 ) -> None:
        self.weight = weight                 # the more, the rather it is taken
        self.extra = extra
        self.serial = serial
        self.numbers = numbers

    def copy(self) -> "Group":
        return Group(self.weight, self.extra, self.serial, self.numbers[:])


class Serials:
    """Numbers of groups, over all indexes. Unlike an identity, a number is never given
    again."""

    def __init__(self) -> None:
        self._highest = 0
        self._last = 0

    def accepts(self, number: int) -> bool:
        """Whether a group may have the number of its first recording. Numbers mostly
        rise; one that was there before, and was edited perhaps, is no serial again."""
        if number <= self._highest:
            return False
        self._highest = number
        return True

    def make(self) -> int:
        self._last -= 1
        return self._last


class _Shape:
    """The shape of recordings of any base."""

    __slots__ = ("mark", "names", "uses")

    def __init__(self, names: Names) -> None:
        self.names = names
        self.mark = digest(names)
        self.uses = 0                        # groups

    def key(self, base: bytes, values: list[Hashable]) -> bytes:
        return digest(values, base + self.mark)


class _Bucket:
    """The shapes of a base that has more than one group."""

    __slots__ = ("counts", "filed", "places")

    def __init__(self) -> None:
        self.counts: dict[_Shape, int] = {}
        self.places: dict[_Shape, Hashable] = {}
        self.filed: dict[Hashable, dict[_Shape, None]] = {}

    def add(self, shape: _Shape) -> None:
        if shape not in self.counts:
            place = min(shape.names, key=lambda name: len(self.filed.get(name, ())))
            self.places[shape] = place
            self.filed.setdefault(place, {})[shape] = None
        self.counts[shape] = self.counts.get(shape, 0) + 1

    def remove(self, shape: _Shape) -> None:
        self.counts[shape] -= 1
        if self.counts[shape]:
            return
        del self.counts[shape]
        place = self.places.pop(shape)
        del self.filed[place][shape]
        if not self.filed[place]:
            del self.filed[place]

    def candidates(self, parts: Parts) -> Iterator[_Shape]:
        if len(self.counts) <= FEW:
            yield from self.counts
            return
        for name in parts:
            if name in self.filed:
                yield from self.filed[name]


class Index:
    def __init__(self, serials: Serials) -> None:
        self._serials = serials
        self._whole: Groups = {}             # of recordings without parts, by base
        self._parted: Groups = {}            # of the others, by _Shape.key
        self._by_base: dict[bytes, _Shape | _Bucket] = {}
        self._shapes: dict[Names, _Shape] = {}

    @property
    def has_any(self) -> bool:
        return bool(self._whole or self._parted)

    def has(self, base: Base) -> bool:
        at = digest(base)
        return at in self._whole or at in self._by_base

    def add(self, number: int, base: Base, parts: Parts, extra: Extra = NO_EXTRA
            ) -> None:
        at = digest(base)
        groups = self._whole
        names = names_of(parts)
        if names:
            shape = self._shapes.get(names)
            if shape is None:
                shape = self._shapes[names] = _Shape(names)
            whole, at = at, shape.key(at, [parts[name] for name in names])
            groups = self._parted
            if at not in groups:
                self._file(whole, shape)
        known = groups.get(at)
        is_serial = self._serials.accepts(number)
        if known is None and is_serial and extra == NO_EXTRA:
            groups[at] = number
            return
        if known is None:
            known = groups[at] = {}
        elif isinstance(known, int):
            first_group = Group(len(names), NO_EXTRA, known, [known])
            known = groups[at] = {NO_EXTRA: first_group}
        group = known.get(extra)
        if group is None:
            weight = len(names) + sum(map(len, extra))
            group = known[extra] = Group(weight, extra, self._serials.make(), [])
        insort(group.numbers, number)

    def _file(self, base: bytes, shape: _Shape) -> None:
        shape.uses += 1
        known = self._by_base.get(base)
        if known is None:
            self._by_base[base] = shape
            return
        if isinstance(known, _Shape):
            bucket = self._by_base[base] = _Bucket()
            bucket.add(known)
            known = bucket
        known.add(shape)

    def remove(self, number: int, base: Base, parts: Parts, extra: Extra = NO_EXTRA
               ) -> None:
        """As it was added."""
        at = whole = digest(base)
        groups = self._whole
        names = names_of(parts)
        if names:
            groups = self._parted
            at = self._shapes[names].key(whole, [parts[name] for name in names])
        known = groups[at]
        if not isinstance(known, int):
            group = known[extra]
            group.numbers.remove(number)
            if not group.numbers:
                del known[extra]
            if known:
                return
        del groups[at]
        if names:
            self._unfile(whole, self._shapes[names])

    def _unfile(self, base: bytes, shape: _Shape) -> None:
        shape.uses -= 1
        if not shape.uses:
            del self._shapes[shape.names]
        known = self._by_base[base]
        if isinstance(known, _Bucket):
            known.remove(shape)
            if known.counts:
                return
        del self._by_base[base]

    def find(self, base: Base, parts: Parts) -> list[Group]:
        """The groups, by the number of their parts, largest first, then by age."""
        at = digest(base)
        groups: list[Group] = []
        known = self._whole.get(at)
        if known is not None:
            take(known, 0, groups)
        shapes = self._by_base.get(at)
        if shapes is not None:
            for shape in (shapes.candidates(parts) if isinstance(shapes, _Bucket)
                          else (shapes,)):
                values = [*map(parts.get, shape.names)]
                if None in values:           # no part of a recording is None
                    continue
                known = self._parted.get(shape.key(at, values))
                if known is not None:
                    take(known, len(values), groups)
        if len(groups) > 1:
            groups.sort(key=lambda group: (-group.weight, group.numbers[0]))
        return groups

    def find_conditional(self, reading: Reading) -> Iterator[Group]:
        """The groups of 304, 412, 206 and 416, by its conditions and its range."""
        request, base = reading.request, reading.base
        if conditions := conditions_of(request):
            yield from self.find((*base, NOT_MODIFIED), reading.parts)
            yield from self.find((*base, FAILED), {**reading.parts, **conditions})
        if byte_range := request.field("range"):
            for status in (PARTIAL, UNSATISFIED):
                yield from self.find(
                    (*base, status), {**reading.parts, RANGE: byte_range})

    def why_not(self, reading: Reading, *, offers: bool) -> str:
        """Why a recording of the same request does not answer it; "": there is no such
        recording. `offers`: the request offers a WebSocket."""
        for status, what in (
                (SWITCHED, "is a WebSocket, which the request does not offer"),
                (NOT_MODIFIED, "answers a condition, which the request does not have")):
            if status != SWITCHED or not offers:
                for group in self.find((*reading.base, status), reading.parts):
                    return f"recording {group.numbers[0]} {what}"
        return ""


def take(known: int | dict[Extra, Group], weight: int, into: list[Group]) -> None:
    if isinstance(known, int):
        into.append(Group(weight, NO_EXTRA, known, [known]))
    else:
        into += known.values()


def digest(values: Iterable[Hashable], behind: bytes = b"") -> bytes:
    """Equal values have equal ones: these are strings, bytes, numbers and tuples."""
    try:
        data = _ENCODE(values)
    except (OverflowError, UnicodeError):    # a large number, half of a character
        data = b"\xc1" + repr(values).encode()   # a byte that begins no MessagePack
    return hashlib.blake2b(behind + data, digest_size=DIGEST_BYTES).digest()


def names_of(parts: Parts) -> Names:
    return tuple(sorted(parts, key=repr)) if len(parts) > 1 else tuple(parts)


class RouteIndex:
    """A route, the reader of its key, and its recordings. Raises KeyMistake."""

    __slots__ = ("index", "reader", "route")

    def __init__(self, route: Route, serials: Serials) -> None:
        self.route = route
        self.reader = KeyReader(route.key)
        for path in route.refresh_ids:
            if path.startswith("$"):
                compile_path(path)
        self.index = Index(serials)


class Draw(NamedTuple):
    """The groups from which a lane's next recording is taken."""

    lane: str
    groups: list[Group]
    route: Route


DrawResult = Match | Miss | Draw


def used_up(group: Group) -> Miss:
    count = len(group.numbers)
    times = "1 time" if count == 1 else f"{count} times"
    return Miss(f"recording {group.numbers[-1]} matches, and has been replayed as "
                f"often as it was recorded: {times}")
