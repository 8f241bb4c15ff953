"""Values made anew in a replayed answer: dates, the end of cookies, identifiers.

Dates move by the time passed since the answer's own `Date`, so an answer fresh for an
hour is fresh for an hour again. A new identifier has the form and length of the
recorded identifier, and replaces it throughout the answer; so a body's pieces keep
their sizes and times.
"""

import re
import secrets
import string
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from cutthrough.codings import CodingError
from cutthrough.exchange.bounds import TooMuch
from cutthrough.exchange.content import inflate, is_digest
from cutthrough.exchange.documents import read_json, select
from cutthrough.recording.model.masking import of_another_body
from cutthrough.recording.model.recording import Chunk, Fields, Recording, Response

# HTTP's dates (RFC 9110 section 5.6.7); Retry-After may be seconds
DATES = ("date", "expires", "last-modified", "retry-after")
# Shorter identifiers are counters, and are in too many other places
LEAST_ID = 6
MOST_IDS = 1000                              # of one answer

_EXPIRES = re.compile(r"(;\s*expires=)([^;]+)", re.IGNORECASE)
_PREFIX = re.compile(r"[A-Za-z]+[-_](?=.)")
_UUID = re.compile("-".join(f"[0-9A-Fa-f]{{{size}}}" for size in (8, 4, 4, 4, 12)))
_HEX = (frozenset("0123456789abcdef"), frozenset("0123456789ABCDEF"))
_CLASSES = (string.digits, string.ascii_lowercase, string.ascii_uppercase)


def refresh(recording: Recording, kinds: Iterable[str], ids: tuple[str, ...],
            now: datetime) -> Recording:
    """`kinds`: "dates", "cookies". `ids`: names of fields, and JSONPaths in bodies of
    JSON and of server-sent events with data of JSON."""
    response = recording.response
    fields = response.fields
    passed = now - recorded_at(recording, now)
    if "dates" in kinds:
        fields = tuple((name, move(value, passed) if name.lower() in DATES else value)
                       for name, value in fields)
    if "cookies" in kinds:
        fields = tuple((name, _EXPIRES.sub(
            lambda match: match[1] + move(match[2], passed), value)
            if name.lower() == "set-cookie" else value) for name, value in fields)
    response = msgspec.structs.replace(response, fields=fields)
    if ids:
        response = renew(response, ids)
    return msgspec.structs.replace(recording, response=response)


def recorded_at(recording: Recording, now: datetime) -> datetime:
    try:
        return _read_date(recording.response.field("date"))
    except ValueError:
        created_us = recording.created_us
        return datetime.fromtimestamp(created_us / 1e6, UTC) if created_us else now


def move(text: str, passed: timedelta) -> str:
    """A date of HTTP; anything else stays as it is."""
    try:
        moved = _read_date(text) + passed
        return format_datetime(moved, usegmt=True)
    except (ValueError, OverflowError):
        return text


def _read_date(text: str) -> datetime:
    """Raises ValueError. Cookies have dashes in their dates."""
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)


def renew(response: Response, ids: tuple[str, ...]) -> Response:
    """With other identifiers; equal identifiers stay equal."""
    response = without_coding(response)
    names = {name.lower() for name in ids if not name.startswith("$")}
    paths = [path for path in ids if path.startswith("$")]
    known = {value: make_id(value) for name, value in response.fields
             if name.lower() in names and len(value) >= LEAST_ID}
    body = response.body
    for document in documents(response, body) if paths else ():
        for path in paths:
            for value in values_at(document, path):
                text = str(value) if isinstance(value, int | str) else ""
                if len(text) >= LEAST_ID and len(known) < MOST_IDS:
                    known.setdefault(text, make_id(text))
    if not known:
        return response
    pattern = re.compile("|".join(
        re.escape(identifier) for identifier in sorted(known, key=len, reverse=True)))

    def replaced(text: str) -> str:
        return pattern.sub(lambda match: known[match[0]], text)

    content = replaced(body.decode("latin-1")).encode("latin-1")
    ends = [0, *accumulate(len(chunk.data) for chunk in response.chunks)]
    fields: Fields = tuple(
        (name, replaced(value)) for name, value in response.fields
        if content == body or not is_digest(name))
    return msgspec.structs.replace(response, fields=fields, chunks=tuple(
        msgspec.structs.replace(chunk, data=content[begin:end])
        for chunk, (begin, end) in zip(response.chunks, pairwise(ends), strict=True)))


def values_at(document: Any, path: str) -> list[Any]:
    """[] if there are too many values to look at."""
    try:
        return select(document, path)
    except TooMuch:
        return []


def without_coding(response: Response) -> Response:
    """The same if it has no coding, or if its coding cannot be undone."""
    if response.field("content-encoding").lower() in ("", "identity"):
        return response
    try:
        body = inflate(response.body, response.field("content-encoding").lower())
    except CodingError:
        return response
    fields = of_another_body(response.fields)
    return msgspec.structs.replace(
        response, fields=(*fields, ("Content-Length", str(len(body)))),
        chunks=(Chunk(response.chunks[-1].at_us, body),) if body else ())


def documents(response: Response, body: bytes) -> Iterator[Any]:
    """The JSON of the body, without other content."""
    is_events = response.field("content-type").startswith("text/event-stream")
    texts = [line[5:] for line in body.splitlines() if line.startswith(b"data:")
             ] if is_events else [body]
    for text in texts:
        try:
            yield read_json(text)
        except ValueError:
            continue


def make_id(old: str) -> str:
    """Makes another identifier of the same form: a prefix of letters stays, as in
    `req_8f3a`, and each digit or letter becomes another of its kind."""
    if _UUID.fullmatch(old):
        made_uuid = str(uuid.uuid4())
        return made_uuid.upper() if old.isupper() else made_uuid
    match = _PREFIX.match(old)
    prefix = match[0] if match else ""
    rest = old[len(prefix):]
    words = {character for character in rest if character.isalnum()}
    digits = next((sorted(alphabet) for alphabet in _HEX if words <= alphabet), None)
    characters = []
    for character in rest:
        alphabet = next((kind for kind in _CLASSES if character in kind), "")
        if alphabet and digits and not rest.isdigit():
            alphabet = "".join(digits)
        characters.append(secrets.choice(alphabet) if alphabet else character)
    if characters and characters[0] == "0" and rest[0] != "0" and rest.isdigit():
        characters[0] = "1"                  # a number in JSON
    return prefix + "".join(characters)
