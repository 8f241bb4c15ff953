"""The recording that is nearest to a request, and the differences, in words (R60).

It is asked for on a miss only, and bounded, because the process waits for it: of
MOST_CANDIDATES recordings (of the same host and path, else of the host, else of the
path, else of anything) those MOST_COMPARED are compared that look most alike. Of the
recordings of other users only those are compared whose requests the rules admit for
this user, and the words have no hash of a secret (R74): a client could compare the
hash of a guess with it.
"""

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

import msgspec

from cutthrough.exchange.documents import (
    canonical,
    flatten,
    read_json,
    select,
    show_path,
)
from cutthrough.recording.match.bodies import plain, read_form, read_operations
from cutthrough.recording.match.keys import KeyReader, root_of
from cutthrough.recording.match.matches import Nearest, RecordedRequest, veil
from cutthrough.recording.match.patterns import Subject, make_predicate
from cutthrough.recording.match.routes import PLAIN, Key, Route
from cutthrough.recording.model.recording import OF_TOKENS, Pattern, Request
from cutthrough.recording.model.xml_documents import select_xml

MOST_CANDIDATES = 2000
MOST_COMPARED = 40
MOST_PATHS = 200
# Questions to the rules in one search; one takes some 10 us
MOST_ASKED = 200
# Of bodies, after which the nearest so far is taken: 40 of 27 KB took 1.3 s
MOST_BYTES = 128 << 10
# Differences that are said, and characters of a value
MOST_SAID = 8
MOST_VALUE = 60
# Most octets of two calls with fields in the output: 4 ms
MOST_SHOWN = 4096

# By host, by path, the numbers of recordings; an int is the only one
Places = dict[str, dict[str, "int | array[int]"]]


class Glance(msgspec.Struct, frozen=True):
    """The first parts of a recorded request to compare; without a copy of the body."""

    method: str
    scheme: str
    host: str
    port: int
    path: str
    query: str = ""
    body: memoryview = memoryview(b"")


# Whether the rules let the asking user make this request
Admits = Callable[[Glance], bool]


class Glanced(msgspec.Struct, frozen=True):
    request: Glance


_GLANCE = msgspec.msgpack.Decoder(Glanced).decode
_DECODE = msgspec.msgpack.Decoder(RecordedRequest).decode


def find_likely(request: Request, key: Key, recordings: Mapping[int, bytes],
                places: Places, admits: Admits | None = None) -> list[RecordedRequest]:
    """The requests that are compared with it. `recordings`: in MessagePack. `admits`:
    whether the rules let the user request it; None: the user may see all."""
    numbers = list(islice(candidates(request, places, key), MOST_CANDIDATES))
    if admits is not None:
        numbers = list(admitted(numbers, recordings, admits))
    if len(numbers) > MOST_COMPARED:
        # Stable: among those alike, the likeliest path stays first
        numbers = heapq.nsmallest(MOST_COMPARED, numbers, lambda number: unlike(
            request, _GLANCE(recordings[number]).request, key))
    likely: list[RecordedRequest] = []
    left = MOST_BYTES
    for number in numbers:
        if left <= 0:
            break
        likely.append(recording := _DECODE(recordings[number]))
        left -= len(request.body) + len(recording.request.body)
    return likely


def compare(request: Request, reader: KeyReader, likely: Iterable[RecordedRequest],
            state: Mapping[str, str], route_of: Callable[[Request], Route]
            ) -> Nearest | None:
    """`route_of` is asked for both sides."""
    best: tuple[int, RecordedRequest, list[str]] | None = None
    route = route_of(request)
    here = reader.plain(request)
    left = MOST_BYTES
    for recording in likely:
        if left <= 0:                        # of the content without its codings
            break
        there = reader.plain(recording.request)
        left -= len(here.body) + len(there.body)
        texts = list(differences(request, recording, reader, state, (here, there)))
        if not recording.patterns and (
                other := route_of(recording.request)) is not route:
            texts.insert(0, f"route: {_named(route)}, of the recording {_named(other)}")
        if best is None or len(texts) < best[0]:
            best = len(texts), recording, texts
    if best is None:
        return None
    _, recording, texts = best
    if reader.key.body == "raw":
        texts = [text for old in texts for text in (_by_path(
            here, reader.plain(recording.request), reader)
            if old.startswith("body: ") else ()) or (old,)]
    if len(texts) > MOST_SAID:
        texts[MOST_SAID:] = [f"{len(texts) - MOST_SAID} more"]
    return Nearest(recording, tuple(texts))


def admitted(numbers: Iterable[int], recordings: Mapping[int, bytes], admits: Admits
             ) -> Iterator[int]:
    """The numbers of recordings whose request the user might send. `admits` is asked
    MOST_ASKED times at most; recordings beyond that are left out."""
    known: dict[tuple[str, str, str, int, str], bool] = {}
    for number in numbers:
        glance = _GLANCE(recordings[number]).request
        place = glance.method, glance.scheme, glance.host, glance.port, glance.path
        if place not in known and len(known) < MOST_ASKED:
            known[place] = admits(glance)
        if known.get(place):
            yield number


def _named(route: Route) -> str:
    return route.name or "none"


def unlike(request: Request, other: Glance, key: Key) -> int:
    """The result of a glance."""
    return (4 * (key.path and request.path != other.path)
            + 2 * (key.method and request.method != other.method)
            + (request.query != other.query) + (request.body != other.body))


def candidates(request: Request, places: Places, key: Key) -> Iterator[int]:
    paths = places.get(request.host) if key.host else None
    if paths is not None:
        if key.path and request.path in paths:
            yield from numbers_of(paths[request.path])
        else:
            ratio = SequenceMatcher(b=request.path[:MOST_VALUE * 4], autojunk=False)

            def likeness(path: str) -> float:
                ratio.set_seq1(path[:MOST_VALUE * 4])
                return ratio.quick_ratio()

            for path in sorted(islice(paths, MOST_PATHS), key=likeness, reverse=True):
                yield from numbers_of(paths[path])
        return
    hosts = list(islice(places.values(), MOST_PATHS))
    for host_paths in hosts:
        if request.path in host_paths:
            yield from numbers_of(host_paths[request.path])
    for host_paths in hosts:
        for path, numbers in host_paths.items():
            if path != request.path:
                yield from numbers_of(numbers)


def numbers_of(known: "int | Iterable[int]") -> Iterable[int]:
    return (known,) if isinstance(known, int) else known


def differences(request: Request, recording: RecordedRequest, reader: KeyReader,
                state: Mapping[str, str], bodies: tuple[Request, Request]
                ) -> Iterator[str]:
    """Lines of the form `part: here, recorded there`. `bodies`: both requests, as
    `KeyReader.plain` returns them."""
    if recording.patterns:
        yield from _patterns(request, recording.patterns)
    else:
        yield from _by_key(request, recording.request, reader)
        if reader.key.body != "ignore":
            yield from _body(*bodies, reader)
    for name, value in recording.requires.items():
        if state.get(name) != value:
            yield f"state {name}: {show(state.get(name))}, required {show(value)}"


def _patterns(request: Request, patterns: tuple[Pattern, ...]) -> Iterator[str]:
    subject = Subject(request)
    for pattern in patterns:
        if pattern.how not in OF_TOKENS and not make_predicate(pattern)(subject):
            name = f"{pattern.part} {pattern.key}".rstrip()
            subject_text = subject.text(pattern)
            text = None if subject_text is None else subject_text.text
            is_binary = (pattern.part == "body" and text is not None
                         and not _is_text(text))
            here = f"{len(request.body)} bytes" if is_binary else show(text)
            yield f"{name}: {here}, wanted {pattern.how} {show(pattern.value)}"


def _by_key(request: Request, other: Request, reader: KeyReader) -> Iterator[str]:
    key = reader.key
    for name in PLAIN:
        here, there = getattr(request, name), getattr(other, name)
        if getattr(key, name) and here != there:
            yield f"{name}: {veil(str(here))}, recorded {veil(str(there))}"
    if key.query != "ignore":
        yield from _query(request, other, reader)
    for name in key.fields:
        if request.field(name) != other.field(name):
            yield (f"field {name}: {show(request.field(name) or None)}, "
                   f"recorded {show(other.field(name) or None)}")


def _values(request: Request, reader: KeyReader) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in reader.pairs(request):
        values.setdefault(name, []).append(value)
    return values


def _query(request: Request, other: Request, reader: KeyReader) -> Iterator[str]:
    here, there = _values(request, reader), _values(other, reader)
    names = there if reader.key.query == "subset" else {**there, **here}
    for name in names:
        if here.get(name) != there.get(name):
            yield (f"query key {_name(name)}: {_joined(here.get(name))}, "
                   f"recorded {_joined(there.get(name))}")


def _joined(values: list[str] | None) -> str:
    return "absent" if values is None else ", ".join(map(show, values))


def _body(request: Request, other: Request, reader: KeyReader) -> Iterator[str]:
    key = reader.key
    partial = key.body == "partial_json"
    here, parts = reader.read(request, recorded=False)
    there, wanted = reader.read(other, recorded=True)
    if partial:
        same = here[-1] == there[-1] and all(
            parts.get(name) == value for name, value in wanted.items()
            if isinstance(name, tuple) and name[0] == "body")
    else:
        same = here[-1] == there[-1]
    if same:
        return
    texts = None
    try:
        if key.body in ("json", "partial_json"):
            texts = list(_documents(reader.document(request), reader.document(other),
                                    partial))
        elif key.body == "graphql":
            texts = list(_operations(_read_operations(request),
                                     _read_operations(other)))
        elif key.body == "jsonpath":
            sent, recorded = reader.document(request), reader.document(other)
            texts = [
                f"body {path}: {show(canonical(select(sent, path)), quoted=True)}, "
                f"recorded {show(canonical(select(recorded, path)), quoted=True)}"
                for path in key.paths if select(sent, path) != select(recorded, path)]
        elif key.body == "xpath":
            roots = root_of(request), root_of(other)
            texts = [f"body {path}: {show(str(sent))}, recorded {show(str(recorded))}"
                     for path in key.paths for sent, recorded in [
                         [select_xml(root, path) for root in roots]]
                     if sent != recorded]
        elif key.body == "grpc" and len(request.body) + len(other.body) <= MOST_SHOWN:
            texts = list(_documents(reader.messages(request), reader.messages(other),
                                    False))
        elif key.body == "form":
            texts = list(_forms(plain(request), plain(other), key.ignored_form))
    except ValueError:
        pass
    yield from texts or [_bytes(request, other)]


def _by_path(here: Request, there: Request, reader: KeyReader) -> list[str]:
    """Returns the differences of bodies that are compared octet by octet, and are short
    JSON; an empty list if they are not, or if they differ only in their spelling."""
    if max(len(here.body), len(there.body)) > MOST_BYTES // MOST_COMPARED:
        return []
    try:
        return list(_documents(reader.document(here), reader.document(there), False))
    except ValueError:
        return []


def _read_operations(request: Request) -> list[tuple[str, str, str]]:
    try:
        return read_operations(plain(request))
    except ValueError:
        return []


def _operations(here: list[tuple[str, str, str]], there: list[tuple[str, str, str]]
                ) -> Iterator[str]:
    if len(here) != len(there):
        yield f"operations: {len(here)}, recorded {len(there)}"
        return
    for (name, values, document), other in zip(here, there, strict=True):
        if name != other[0]:
            yield f"operation: {show(name)}, recorded {show(other[0])}"
        if values != other[1]:
            yield from _documents(
                read_json(values.encode()), read_json(other[1].encode()), False,
                "variables")
        if document != other[2]:
            yield f"document: {show(document)}, recorded {show(other[2])}"


def _documents(here: Any, there: Any, partial: bool, of: str = "body"
               ) -> Iterator[str]:
    sent, recorded = (flatten(document, whole=True) for document in (here, there))
    for path in recorded if partial else {**recorded, **sent}:
        if sent.get(path) != recorded.get(path):
            # The content of an absent list or object need not be named
            if path and not (path[:-1] in sent and path[:-1] in recorded):
                continue
            yield (f"{of} {show_path(path)}: {show(sent.get(path), quoted=True)}, "
                   f"recorded {show(recorded.get(path), quoted=True)}")


def _forms(request: Request, other: Request, ignored: tuple[str, ...]
           ) -> Iterator[str]:
    sent, recorded = read_form(request), read_form(other)
    if isinstance(sent, bytes) or isinstance(recorded, bytes) or not all(
            _is_text(each.body.decode(errors="replace")) for each in (request, other)):
        return
    here: dict[str, list[str]] = {}
    there: dict[str, list[str]] = {}
    for pairs, values in ((sent, here), (recorded, there)):
        for name, value in pairs:
            if name not in ignored:
                values.setdefault(name, []).append(value)
    for name in {**there, **here}:
        if here.get(name) != there.get(name):
            yield (f"form key {_name(name)}: {_joined(here.get(name))}, "
                   f"recorded {_joined(there.get(name))}")


def _bytes(request: Request, other: Request) -> str:
    here, there = request.body, other.body
    if here == there:                        # it is read by the type
        name = "content-type"
        return (f"body: as {show(request.field(name) or None)}, recorded as "
                f"{show(other.field(name) or None)}")
    sizes = f"body: {len(here)} bytes, recorded {len(there)}"
    if b"[redacted:" in here or b"[redacted:" in there:
        return sizes                         # nor the place of a hash's difference
    at = next((number for number, (byte, other_byte) in enumerate(
        zip(here, there, strict=False)) if byte != other_byte),
        min(len(here), len(there)))
    return f"{sizes}, which differ at byte {at}"


def _is_text(text: str) -> bool:
    return all(
        (character.isprintable() and character != "\ufffd") or character in "\t\r\n"
        for character in text[:MOST_VALUE])


def _name(text: str) -> str:
    """A key of a client's, in one line."""
    text = veil(text)
    return text if text.isprintable() and len(text) <= MOST_VALUE else show(text)


def show(value: str | None, *, quoted: bool = False) -> str:
    """A value in one line; `quoted`: it is JSON already."""
    if value is None:
        return "absent"
    value = veil(value)
    if len(value) > MOST_VALUE:
        value = f"{value[:MOST_VALUE]}…"
    return value if quoted else repr(value)
