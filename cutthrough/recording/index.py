"""Which recordings have a base, and no part that the request has not: without a scan.

    base ──> bucket ──> shape (names of the parts) ──> values of these names ──> groups

Recordings of one base mostly have few shapes, so a look-up takes the request's values
for the names of each shape, and finds them in a dictionary. If there are many shapes,
only those are tried that are filed under a name that the request has; each is filed
under the name with the fewest others.
"""

import itertools
from bisect import insort
from collections.abc import Hashable, Iterator

from cutthrough.recording.keys import Base, Parts
from cutthrough.recording.model import Pattern

Names = tuple[Hashable, ...]
Values = tuple[Hashable, ...]
# What recordings of one group have in common beside their parts
Extra = tuple[tuple[Pattern, ...], tuple[tuple[str, str], ...]]

NO_EXTRA: Extra = ((), ())
FEW = 8
_SERIALS = itertools.count(1)


class Group:
    """Recordings that answer the same requests, in order: a sequence."""

    __slots__ = ("extra", "numbers", "serial", "weight")

    def __init__(self, weight: int, extra: Extra) -> None:
        self.weight = weight                 # the more, the rather it is taken
        self.extra = extra
        self.serial = next(_SERIALS)         # never given again, unlike an identity
        self.numbers: list[int] = []


class _Shape:
    __slots__ = ("filed", "groups", "names")

    def __init__(self, names: Names, filed: Hashable) -> None:
        self.names = names
        self.filed = filed
        self.groups: dict[Values, dict[Extra, Group]] = {}


class _Bucket:
    __slots__ = ("filed", "shapes")

    def __init__(self) -> None:
        self.shapes: dict[Names, _Shape] = {}
        self.filed: dict[Hashable, dict[Names, _Shape]] = {}

    def shape(self, names: Names) -> _Shape:
        found = self.shapes.get(names)
        if found is None:
            filed = min(names, key=lambda name: len(self.filed.get(name, ())),
                        default=None)
            found = self.shapes[names] = _Shape(names, filed)
            self.filed.setdefault(filed, {})[names] = found
        return found

    def forget(self, shape: _Shape) -> None:
        del self.shapes[shape.names]
        del self.filed[shape.filed][shape.names]
        if not self.filed[shape.filed]:
            del self.filed[shape.filed]

    def candidates(self, parts: Parts) -> Iterator[_Shape]:
        if len(self.shapes) <= FEW:
            yield from self.shapes.values()
            return
        # The shape without names is filed under None
        for name in (None, *parts):
            if name in self.filed:
                yield from self.filed[name].values()


class Index:
    def __init__(self) -> None:
        self._buckets: dict[Base, _Bucket] = {}

    @property
    def has_any(self) -> bool:
        return bool(self._buckets)

    def add(self, number: int, base: Base, parts: Parts, extra: Extra = NO_EXTRA
            ) -> Group:
        bucket = self._buckets.get(base)
        if bucket is None:
            bucket = self._buckets[base] = _Bucket()
        names = tuple(sorted(parts, key=repr)) if len(parts) > 1 else tuple(parts)
        groups = bucket.shape(names).groups.setdefault(
            tuple(parts[name] for name in names), {})
        group = groups.get(extra)
        if group is None:
            weight = len(names) + sum(map(len, extra))
            group = groups[extra] = Group(weight, extra)
        insort(group.numbers, number)
        return group

    def remove(self, number: int, base: Base, parts: Parts, extra: Extra = NO_EXTRA
               ) -> None:
        """As it was added."""
        bucket = self._buckets[base]
        shape = bucket.shape(tuple(sorted(parts, key=repr)))
        values = tuple(parts[name] for name in shape.names)
        groups = shape.groups[values]
        group = groups[extra]
        group.numbers.remove(number)
        if group.numbers:
            return
        del groups[extra]
        if not groups:
            del shape.groups[values]
        if not shape.groups:
            bucket.forget(shape)
        if not bucket.shapes:
            del self._buckets[base]

    def find(self, base: Base, parts: Parts) -> list[Group]:
        """The groups, those with the most parts first, then the oldest."""
        bucket = self._buckets.get(base)
        if bucket is None:
            return []
        found: list[Group] = []
        for shape in bucket.candidates(parts):
            groups = shape.groups.get(tuple(map(parts.get, shape.names)))
            if groups is not None:
                found += groups.values()
        if len(found) > 1:
            found.sort(key=lambda group: (-group.weight, group.numbers[0]))
        return found
