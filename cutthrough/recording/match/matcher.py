"""Finds the recording that answers a request, and says why if none does (R60).

    request ──> route ──> key ──> index ──> groups ──> the next of its sequence
                  └─ recordings with patterns of their own ──┘

Recordings by key come before those with patterns; of both, those that ask for the most
come first. A sequence is replayed in the order of its numbers. Each lane has a place of
its own in each sequence, and a state of its own, so that clients at the same time do
not take each other's answers. Both may be shared with other processes, for which `take`
waits: another thread may call that. For all else one thread at a time may use it.

There may be 100 000 recordings in each worker: they are kept as MessagePack, a fifth of
what their objects take, and decoded when they are needed.
"""

import math
import time
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice, takewhile

import msgspec

from cutthrough.exchange.content import has_heads
from cutthrough.exchange.work import MOST_RAW, is_costly
from cutthrough.recording.match import statuses
from cutthrough.recording.match.begins import Begins
from cutthrough.recording.match.index import (
    NO_EXTRA,
    Draw,
    DrawResult,
    Extra,
    Group,
    Index,
    RouteIndex,
    Serials,
    used_up,
)
from cutthrough.recording.match.lanes import Lane, OwnLanes
from cutthrough.recording.match.matches import (
    Likely,
    Match,
    Miss,
    Nearest,
    Reading,
    TooLong,
    no_match,
)
from cutthrough.recording.match.nearest import (
    Admits,
    Places,
    compare,
    find_likely,
    numbers_of,
)
from cutthrough.recording.match.patterns import Predicate as Asks
from cutthrough.recording.match.patterns import Subject, make_predicate, parts_of, split
from cutthrough.recording.match.readable import Readable
from cutthrough.recording.match.routes import SETTLED, Base, Parts, Route
from cutthrough.recording.model.grpc_messages import MOST_BODY_NEAR
from cutthrough.recording.model.recording import Pattern, Recording, Request
from cutthrough.recording.model.sharing import Reader

# Recordings of one place that are read at a time, and their bytes
MOST_READ, MOST_READ_BYTES = 100, 4 << 20

Hold = Callable[[str, list[int]], AbstractContextManager[Lane]]

_NOTHING: Mapping[Pattern, bool] = {}

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Recording).decode


class Matcher:
    """`mask` removes a request's secrets, as recordings have none."""

    def __init__(self, routes: Iterable[Route] = (),
                 mask: Callable[[Request], Request] | None = None,
                 shared: Hold | None = None, *, reads_bodies: bool = False) -> None:
        """`shared` holds a lane that other processes have too, for a `with`.
        `reads_bodies`: the mask does. Raises KeyMistake."""
        self.reads_bodies = reads_bodies
        serials = Serials()
        self._lines = [RouteIndex(route, serials) for route in (*routes, Route())]
        self._mask = mask
        self._patterned = Index(serials)
        # Each with whether it is asked of the request with its secrets
        self._predicates: dict[tuple[Pattern, ...], Sequence[tuple[bool, Asks]]] = {}
        self._recordings: dict[int, bytes] = {}
        self._read_apart: dict[int, Reading] = {}
        self.readable = Readable()
        self._places: Places = {}
        self.begins = Begins()
        self._own = OwnLanes()
        self._shared = shared
        self._has_state = False
        self._has_conditional = False

    def __len__(self) -> int:
        return len(self._recordings)

    def __contains__(self, number: int) -> bool:
        return number in self._recordings

    @property
    def has_patterns(self) -> bool:
        return self._patterned.has_any

    @property
    def reads_fields(self) -> bool:
        """Do other fields of requests count than the fields that routes name?"""
        return self._patterned.has_any or self._has_conditional

    def add(self, recording: Recording, reading: Reading | None = None) -> bool:
        """False: no request gets another recording than before. The number must be new.
        `reading`: of its request, if that was done elsewhere. Raises KeyMistake if a
        pattern is malformed."""
        number, request = recording.number, recording.request
        if number in self._recordings:
            raise ValueError(f"recording {number} is there already")
        index, base, parts, extra = self._filed(recording, reading)
        if reading is not None:
            self._read_apart[number] = reading
        if extra[0] and extra[0] not in self._predicates:
            self._predicates[extra[0]] = [
                (pattern.is_of_token, make_predicate(pattern)) for pattern in extra[0]]
        has_state = bool(recording.requires or recording.sets or recording.removes)
        conditional = statuses.is_conditional(recording)
        changes = self._patterned.has_any or has_state or conditional or (
            index is self._patterned or index.has(base))
        self._has_conditional |= conditional
        index.add(number, base, parts, extra)
        self._recordings[number] = _ENCODE(recording)
        self.readable.add(recording)
        self.begins.add(recording)
        self._has_state |= has_state
        paths = self._places.setdefault(request.host, {})
        known = paths.get(request.path)
        if known is None:
            paths[request.path] = number
        elif isinstance(known, int):
            paths[request.path] = array("q", sorted((known, number)))
        else:
            insort(known, number)
        return changes

    def remove(self, number: int) -> None:
        """Raises KeyError."""
        recording = _DECODE(self._recordings[number])
        index, base, parts, extra = self._filed(
            recording, self._read_apart.pop(number, None))
        index.remove(number, base, parts, extra)
        del self._recordings[number]
        self.readable.remove(number)
        request = recording.request
        self.begins.remove(recording)
        paths = self._places[request.host]
        known = paths[request.path]
        if isinstance(known, array):
            del known[bisect_left(known, number)]
            if known:
                return
        del paths[request.path]
        if not paths:
            del self._places[request.host]

    def remove_below(self, number: int) -> bool:
        """Removes recordings below this number. If there are any, sequences begin anew.
        Returns whether there were."""
        numbers = list(takewhile(number.__gt__, self._recordings))
        for lower_number in numbers:
            self.remove(lower_number)
        if numbers:
            self.rewind()
        return numbers != []

    def _filed(self, recording: Recording, reading: Reading | None
               ) -> tuple[Index, Base, Parts, Extra]:
        requires = tuple(sorted(recording.requires.items()))
        if recording.patterns:
            parts, left = split(recording.patterns)
            return self._patterned, (), parts, (left, requires)
        line = self._line(recording.request)
        base, parts = (line.reader.read(recording.request, recorded=True)
                       if reading is None else (reading.base, reading.parts))
        base, parts = statuses.key_of(recording, base, parts)
        return line.index, base, parts, ((), requires) if requires else NO_EXTRA

    def _line(self, request: Request) -> RouteIndex:
        lines = self._lines
        if len(lines) == 1:
            return lines[0]
        return next(line for line in lines if line.route.applies(request))

    def masked(self, request: Request) -> Request:
        """Without secrets, as in recordings."""
        return request if self._mask is None else self._mask(request)

    def is_costly(self, request: Request, *, recorded: bool = False) -> bool:
        """Whether reading its content may take longer than the loop has for it."""
        body = request.body
        if self.reads_bodies or (self._patterned.has_any and not recorded):
            reads = True
        else:
            key = self._line(request).route.key
            reads = key.body not in ("raw", "ignore")
            if (key.body == "grpc" and len(body) > MOST_BODY_NEAR) or (
                    key.body == "graphql" and is_costly(request.query.encode())):
                return True
        if not (reads or has_heads(request.field("content-type"))):
            return len(body) > MOST_RAW
        return body != b"" and is_costly(body, request.field("content-encoding"))

    def read(self, request: Request, *, recorded: bool = False) -> Reading:
        """`recorded`: it is a recording's, which has no secrets any more."""
        if self._mask is not None and not recorded:
            request = self._mask(request)
        base, parts = self._line(request).reader.read(request, recorded=recorded)
        return Reading(request, base, parts)

    def asks(self, reading: Reading) -> tuple[Pattern, ...]:
        """The patterns of recordings with its exact values."""
        if not self._patterned.has_any:
            return ()
        return tuple(dict.fromkeys(
            pattern for group in self._patterned.find((), parts_of(reading.request))
            for pattern in group.extra[0]))

    def match(self, request: Request, lane: str = "", *, explain: bool = True,
              offers: bool = False, admits: Admits | None = None,
              reader: Reader | None = None) -> Match | Miss:
        """Takes the next recording of the request's sequence. `lane`: of the client; a
        route that names a field takes its value. `explain`: a miss has the nearest
        recording, whose search takes 1 ms among thousands; `admits` as of find_likely.
        `offers`: an upgrade; the recording of a WebSocket answers no other request.
        `reader`: of a cache, only recordings that it may read; None: all."""
        reading = self.read(request)
        drawn = self.draw(request, reading, lane, offers=offers, reader=reader)
        result = self.take(drawn) if isinstance(drawn, Draw) else drawn
        if isinstance(result, Match):
            return result
        if not explain:
            return Miss(result.reason)
        result = self.explain(request, reading, result, offers=offers, admits=admits)
        return result if result.likely is None else Miss(
            result.reason, self.nearest(reading.request, result.likely))

    def draw(self, request: Request, reading: Reading, lane: str = "", *,
             offers: bool = False, holds: Mapping[Pattern, bool] = _NOTHING,
             reader: Reader | None = None, seconds: float = math.inf) -> DrawResult:
        """As `match`, but of a lane nothing is taken yet. `holds`: which patterns of
        bodies hold, if that was found elsewhere. Raises TooLong if patterns take longer
        than `seconds`."""
        whole, request = request, reading.request
        line = self._line(request)
        route = line.route
        if route.lane:
            lane = request.field(route.lane)
        if offers or self._patterned.has_any or self._has_conditional:
            groups = list(self._groups(line, reading, whole, offers, holds, seconds))
        else:
            groups = line.index.find(reading.base, reading.parts)
        if reader is not None:
            groups = list(self._readable(groups, request, reader, route))
            lane += f" of {reader.owner}"    # which has sequences of its own
        if not groups and not self._has_state:
            return no_match(self._recordings, {})    # no place has to be taken
        if self._shared is not None and not self._has_state and (
                route.after != "miss" and len(groups[0].numbers) == 1):
            # No other process need know of its place
            return Match(_DECODE(self._recordings[groups[0].numbers[0]]), route, 0, 1,
                         route.after in SETTLED)
        if self._shared is not None:         # others are added meanwhile
            groups = [group.copy() for group in groups]
        return Draw(lane, groups, route)

    @property
    def is_shared(self) -> bool:
        """Other processes have the same lanes."""
        return self._shared is not None

    def take(self, draw: Draw) -> Match | Miss:
        """Raises KeyError if a recording was deleted since then."""
        groups, route = draw.groups, draw.route
        if self._shared is None:
            lane = self._own.lane(draw.lane)
            choice = self._choose(groups, route, lane)
        else:
            with self._shared(
                    draw.lane, [group.numbers[0] for group in groups]) as lane:
                choice = self._choose(groups, route, lane)
        if isinstance(choice, Match):
            return choice
        if choice is not None:
            return used_up(choice)
        return no_match(self._recordings, dict(lane.state))

    def explain(self, request: Request, reading: Reading, miss: Miss, *,
                offers: bool = False, admits: Admits | None = None) -> Miss:
        """A miss with the recordings to be compared."""
        if miss.likely is None:
            return miss
        line = self._line(reading.request)
        if reason := line.index.why_not(reading, offers=offers):
            return Miss(reason)
        return Miss(miss.reason, likely=Likely(find_likely(
            reading.request, line.route.key, self._recordings, self._places, admits),
            miss.likely.state) if self._recordings else None)

    def nearest(self, request: Request, likely: Likely) -> Nearest | None:
        """Compares the content of a request without its secrets."""
        return compare(request, self._line(request).reader, likely.asked, likely.state,
                       self.route)

    def _readable(self, groups: Iterable[Group], request: Request, reader: Reader,
                  route: Route) -> Iterator[Group]:
        """Groups of a cache: each has its newest recording alone, unless the route
        counts recordings. There are several if requests came before an answer was
        recorded."""
        most = 1 if route.after in SETTLED else None
        for group in groups:
            numbers = [*islice((
                number for number in reversed(group.numbers)
                if self.readable.may_answer(number, request, reader)), most)][::-1]
            if numbers:
                yield Group(group.weight, group.extra, group.serial, numbers)

    def route(self, request: Request) -> Route:
        return self._line(request).route

    def has_place(self, request: Request) -> bool:
        """Whether there is a recording of its host and path."""
        return request.path in self._places.get(request.host, ())

    def recordings_at(self, request: Request, begin: bytes | None,
                      reader: Reader | None = None) -> tuple[list[Recording], bool]:
        """The recordings of its host and path, oldest first, whose request begins with
        this message (None: with any), or whose answer is early (EARLY); and whether
        these are all: a bound holds, because the process waits."""
        recordings: list[Recording] = []
        size = 0
        numbers = self.begins.find(request, begin) if begin is not None else (
            numbers_of(self._places.get(request.host, {}).get(request.path, ())))
        for number in numbers:
            if reader is not None and not self.readable.is_readers(number, reader):
                continue
            packed = self._recordings[number]
            size += len(packed)
            if recordings and (len(recordings) >= MOST_READ or size > MOST_READ_BYTES):
                return recordings, False
            recordings.append(_DECODE(packed))
        return recordings, True

    def numbers(self) -> list[int]:
        return list(self._recordings)

    def packed(self, number: int) -> bytes:
        """The recording in MessagePack: longer than the answer's body."""
        return self._recordings[number]

    def own_match(self, number: int) -> Match | None:
        """The match of each request with this recording's first line and no body; None
        if another recording matches, or if more than the line decides."""
        if self._patterned.has_any or self._has_state:
            return None
        recording = _DECODE(self._recordings[number])
        request = recording.request
        line = self._line(request)
        route = line.route
        if (request.body or statuses.status_apart(recording)
                or route.after not in SETTLED or route.lane or route.key.fields
                or self.masked(request) != request):
            return None
        groups = line.index.find(*line.reader.read(request, recorded=False))
        if not groups or groups[0].numbers != [number]:
            return None
        return Match(recording, route, 0, 1, is_last=True)

    def _choose(self, groups: list[Group], route: Route, lane: Lane
                ) -> Match | Group | None:
        """A group: it is used up."""
        used_up = None
        for group in groups:
            if any(lane.state.get(name) != value for name, value in group.extra[1]):
                continue
            match = self._take(group, lane, route)
            if match is not None:
                return match
            used_up = group
        return used_up

    def _groups(self, line: RouteIndex, reading: Reading, whole: Request, offers: bool,
                known: Mapping[Pattern, bool], seconds: float) -> Iterable[Group]:
        if offers:
            base = (*reading.base, statuses.SWITCHED)
            yield from line.index.find(base, reading.parts)
        if self._has_conditional:
            yield from line.index.find_conditional(reading)
        yield from line.index.find(reading.base, reading.parts)
        if not self._patterned.has_any:
            return
        until = time.monotonic() + seconds
        subject, with_secrets = Subject(reading.request), Subject(whole)
        for group in self._patterned.find((), parts_of(reading.request)):
            left = group.extra[0]
            if not left or all(
                    known[pattern] if pattern in known else
                    holds(with_secrets if of_token else subject) for pattern,
                    (of_token, holds) in zip(left, self._predicates[left],
                                             strict=True)):
                yield group
            if time.monotonic() > until:
                raise TooLong

    def _take(self, group: Group, lane: Lane, route: Route) -> Match | None:
        """None: the sequence is at its end."""
        numbers = group.numbers
        # A serial is of this process alone
        sequence = group.serial if self._shared is None else numbers[0]
        place = lane.places.get(sequence, 0)
        if place >= len(numbers) or route.after == "newest":
            if route.after == "miss":
                return None
            place = 0 if route.after == "cycle" else len(numbers) - 1
        lane.places[sequence] = place + 1
        recording = _DECODE(self._recordings[numbers[place]])
        for name in recording.removes:
            lane.state.pop(name, None)
        lane.state.update(recording.sets)
        return Match(
            recording, route, place, len(numbers), not self._has_state and (
                route.after in SETTLED and place == len(numbers) - 1),
            dict(lane.state) if self._has_state else {})

    def state(self, lane: str = "") -> Mapping[str, str]:
        """The state of one of the matcher's own lanes."""
        return dict(self._own.lane(lane).state)

    def rewind(self, lane: str | None = None) -> None:
        """Forgets places and state: of one lane, or of all."""
        if lane is None:
            self._own.lanes.clear()
        else:
            self._own.lanes.pop(lane, None)
