"""The options of recordings: the place of answers, and the likeness of requests."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec

from cutthrough.config.capture import CaptureOptions
from cutthrough.config.database import check_url
from cutthrough.config.mistake import raise_all
from cutthrough.config.option import ConfigError, Option, Table
from cutthrough.config.redaction import FIELDS, KEYS, PATHS, REGEXES, parse_field
from cutthrough.config.values import (
    COUNT,
    DURATION_OR_0,
    FILE,
    FLAG,
    SIZE,
    TEXT,
    Kind,
    choice,
    parse_text,
    parse_token,
)

# As in recording.match.keys and recording.sessions.directory
BODIES = ("raw", "json", "partial_json", "jsonpath", "form", "regex", "graphql",
          "xml", "xpath", "grpc", "ignore")
PARTS = ("method", "scheme", "host", "port", "path")
Scope = dict[str, tuple[str, ...]]
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_TEXTS = Kind("TEXT", parse_text, many=True)
_JSONPATHS = _TEXTS._replace(metavar="PATH", separator="\n")
# Keys of a route, and with which kinds of bodies they have an effect
_OF_BODIES = {
    "body_paths": ("jsonpath", "xpath"), "body_regexes": ("regex",),
    "ignored_form": ("form",),
    "ignored_paths": ("json", "partial_json", "jsonpath", "grpc"),
    "descriptors": ("grpc",)}
_NEEDED = ("body_paths", "body_regexes", "descriptors")


def parse_session(text: str) -> str:
    if _SESSION.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no name of a session: letters, digits, dot, "
                         "dash and underscore, at most 100")
    return text


def parse_pace(text: str) -> float:
    """The speed; 0: at once."""
    if text in _PACES:
        return _PACES[text]
    match = _SPEED.fullmatch(text)
    if match is None or not 0.01 <= float(match[1]) <= 1000:
        raise ValueError(f"{text!r} is neither at_once nor as_recorded, nor a speed of "
                         "0.01x to 1000x")
    return float(match[1])


def parse_refresh(text: str) -> str:
    if text not in ("dates", "cookies"):
        raise ValueError(f"{text!r} is neither dates nor cookies")
    return text


def parse_part(text: str) -> str:
    if text not in PARTS:
        raise ValueError(f"{text!r} is not one of {', '.join(PARTS)}")
    return text


def show_pace(speed: float) -> str:
    return next((text for text, pace in _PACES.items() if pace == speed), f"{speed:g}x")


_PACES = {"at_once": 0.0, "as_recorded": 1.0}
_SPEED = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4})?)x")
_PACE = Kind("at_once|as_recorded|SPEED", parse_pace, show_pace)


class RecordingRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `[recording_routes.NAME]`."""

    name: str
    hosts: Annotated[tuple[str, ...], Option(
        _TEXTS._replace(metavar="HOST"), "hosts of the requests, which may have *",
        "all", swapped=True)] = ()
    paths: Annotated[tuple[str, ...], Option(
        _TEXTS._replace(metavar="PATH"), "their paths, which may have *", "all",
        swapped=True)] = ()
    methods: Annotated[tuple[str, ...], Option(
        Kind("METHOD", parse_token, many=True), "their methods", "all", swapped=True)
        ] = ()
    path_regexes: Annotated[tuple[str, ...], Option(
        REGEXES, "expressions (RE2) that find something in the path", "all",
        swapped=True)] = ()
    ignored: Annotated[tuple[str, ...], Option(
        Kind("|".join(PARTS), parse_part, many=True), "what of a request's line and "
        "destination does not count", "none", swapped=True)] = ()
    query: Annotated[Literal["exact", "subset", "ignore"], Option(
        choice("exact", "subset", "ignore"), "how the query is compared; subset: the "
        "request may have more keys", "exact: two requests differ if in doubt",
        swapped=True)] = "exact"
    ignored_query: Annotated[tuple[str, ...], Option(
        _TEXTS._replace(metavar="KEY"), "keys of the query that do not count, which "
        "may have *", "none", swapped=True)] = ()
    fields: Annotated[tuple[str, ...], Option(
        FIELDS, "fields that count", "none: clients' "
        "fields differ by version", swapped=True)] = ()
    body: Annotated[Literal["raw", "json", "partial_json", "jsonpath", "form", "regex",
                            "graphql", "xml", "xpath", "grpc", "ignore"], Option(
        choice(*BODIES), "how the body is compared", "raw: octet by octet",
        swapped=True)] = "raw"
    body_paths: Annotated[tuple[str, ...], Option(
        _JSONPATHS, "of body = \"jsonpath\" or \"xpath\": what counts", "none",
        swapped=True)] = ()
    body_regexes: Annotated[tuple[str, ...], Option(
        REGEXES, "of body = \"regex\": likewise, their groups",
        "none", swapped=True)] = ()
    descriptors: Annotated[str, Option(
        FILE, "of body = \"grpc\": a file of `protoc --include_imports "
        "--descriptor_set_out`, which has the messages' fields", "none", swapped=True)
        ] = ""
    ignored_paths: Annotated[tuple[str, ...], Option(
        _JSONPATHS, "JSONPaths in the body that do not count; of body = \"grpc\" names "
        "of fields, as $.trace.id and $.items[*].id", "none", swapped=True)] = ()
    ignored_form: Annotated[tuple[str, ...], Option(
        _TEXTS._replace(metavar="KEY"), "keys of a form that do not count", "none",
        swapped=True)] = ()
    after: Annotated[Literal["repeat", "cycle", "miss", "newest"], Option(
        choice("repeat", "cycle", "miss", "newest"), "what follows the last of several "
        "recordings of one request; newest: it alone answers, from the first time on",
        "repeat: as a server that has settled", swapped=True)] = "repeat"
    messages: Annotated[Literal["both", "server"], Option(
        choice("both", "server"), "whose messages of a WebSocket count; server: its "
        "messages come at their times, whatever the client says", "both: a client that "
        "says other things is another", swapped=True)] = "both"
    lane: Annotated[str, Option(
        Kind("FIELD", parse_field), "a field of requests; those with other values of "
        "it have sequences of their own", "none: all have one", swapped=True)] = ""
    refresh: Annotated[tuple[str, ...], Option(
        Kind("dates|cookies", parse_refresh, many=True), "what moves by the time since "
        "the recording: the dates of an answer, and when its cookies expire", "none: "
        "the same bytes", swapped=True)] = ()
    refresh_ids: Annotated[tuple[str, ...], Option(
        _JSONPATHS._replace(metavar="FIELD|PATH"), "fields, and JSONPaths in the body, "
        "whose values are new identifiers in each replay", "none", swapped=True)] = ()
    redact_fields: Annotated[tuple[str, ...], Option(
        FIELDS, "as recording_redact_fields, of requests of this route alone; of "
        "several that apply, all count", "none", swapped=True)] = ()
    redact_query: Annotated[tuple[str, ...], Option(
        KEYS, "as recording_redact_query, likewise", "none", swapped=True)] = ()
    redact_json: Annotated[tuple[str, ...], Option(
        PATHS, "as recording_redact_json, likewise", "none", swapped=True)] = ()
    redact_body: Annotated[tuple[str, ...], Option(
        REGEXES, "as recording_redact_body, likewise", "none", swapped=True)] = ()

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        if self.query == "ignore" and self.ignored_query:
            yield ConfigError("", "ignored_query",
                              'has no effect with query = "ignore"')
        for key, kinds in _OF_BODIES.items():
            if getattr(self, key):
                if self.body not in kinds:
                    shown = " or ".join(f'"{kind}"' for kind in kinds)
                    yield ConfigError("", key, f"has no effect without body = {shown}")
            elif self.body in kinds and key in _NEEDED:
                yield ConfigError("", "body", f'"{self.body}" needs {key}, which say '
                                  "what counts")


def scopes_of(routes: Iterable[RecordingRoute]) -> tuple[Scope, ...]:
    """The redaction of those routes that have one of their own: the values by the names
    of recording.model.masking.Scope."""
    scopes = []
    for row in routes:
        removed = {name: getattr(row, f"redact_{name}")
                   for name in ("fields", "query", "json", "body")}
        if any(removed.values()):
            scopes.append({**{name: getattr(row, name) for name in (
                "hosts", "paths", "path_regexes", "methods")}, **removed})
    return tuple(scopes)


class RecordingOptions(CaptureOptions, frozen=True, kw_only=True):
    """A part of Config, behind another: a msgspec.Struct has one base."""

    recording_directory: Annotated[str, Option(
        FILE._replace(metavar="DIR"), "directory of recorded sessions, for rules with "
        "`recording`: docs/recording.md", "none: such a rule is refused",
        section="Recordings", swapped=True)] = ""
    recording_url: Annotated[str, Option(
        TEXT._replace(metavar="URL"), "PostgreSQL database of the sessions, which "
        "several hosts record and replay; the directory has copies: "
        "docs/recording.md#several-hosts; it has a password, so prefer "
        "recording_url_file", "none: sessions are files of the directory",
        file="recording_url_file", stand_in="postgresql://localhost/cutthrough",
        swapped=True, of_program=True)] = ""
    recording_url_file: Annotated[str, Option(
        FILE, "file with the URL on one line", "none", swapped=True,
        of_program=True)] = ""
    recording_session: Annotated[str, Option(
        Kind("NAME", parse_session), "session that is recorded and replayed until "
        "`cutthrough mode` names another", "our choice", swapped=True)] = "default"
    recording_session_field: Annotated[str, Option(
        Kind("FIELD", parse_field), "field of a request that names its session, such "
        "as x-session; a request without it is the user's, or of the session above",
        "none: a client chooses what it reads and writes", swapped=True)] = ""
    recording_session_user: Annotated[bool, Option(
        FLAG, "each user has a session of the user's name", "off: all have one",
        swapped=True)] = False
    recording_pace: Annotated[float, Option(
        _PACE, "when the pieces of a replayed answer are sent; 10x: in a tenth of the "
        "recorded time", "at_once: a test need not wait", swapped=True)] = 0.0
    recording_misses: Annotated[Literal["reason", "nearest"], Option(
        choice("reason", "nearest"), "what a client is told whose request no recording "
        "answers; nearest: also the nearest recording, and the differences, which may "
        "be of another user", "reason: recordings are of several users", swapped=True)
        ] = "reason"
    recording_body: Annotated[int, Option(
        SIZE._replace(high=64 << 20), "most bytes of a body that is recorded, or "
        "compared; an answer with a longer one passes unrecorded", "our choice: the "
        "answers of APIs", swapped=True)] = 4 << 20
    recording_cut: Annotated[Literal["streams", "any", "none"], Option(
        choice("streams", "any", "none"), "answers without a length that are recorded "
        "as cut if their client or origin leaves early; streams: of events, of "
        "lines of JSON, or of gRPC", "streams: they often have no other end",
        swapped=True)] = "streams"
    recording_count: Annotated[int, Option(
        COUNT, "most recordings of a new session, oldest out first; 0: no limit",
        "0: a session is kept as recorded", swapped=True, of_program=True)] = 0
    recording_age: Annotated[float, Option(
        DURATION_OR_0, "age at which a recording of a new session is deleted; 0: never",
        "the same", swapped=True, of_program=True)] = 0.0
    recording_redact_fields: Annotated[tuple[str, ...], Option(
        FIELDS, "as redact_fields, for new sessions alone", "none", swapped=True,
        of_program=True)] = ()
    recording_redact_query: Annotated[tuple[str, ...], Option(
        KEYS, "as redact_query, likewise", "none",
        swapped=True, of_program=True)] = ()
    recording_redact_json: Annotated[tuple[str, ...], Option(
        PATHS, "as redact_json, likewise", "none",
        swapped=True, of_program=True)] = ()
    recording_redact_body: Annotated[tuple[str, ...], Option(
        REGEXES, "as redact_body, likewise", "none", swapped=True, of_program=True)
        ] = ()
    recording_hooks: Annotated[str, Option(
        TEXT._replace(metavar="MODULE:CLASS"), "class with `on_record`, `on_replay` or "
        "both", "none", swapped=True)] = ""
    recording_routes: Annotated[tuple[RecordingRoute, ...], Table(
        RecordingRoute, "Routes of recordings: what makes two requests alike. The "
        "first that applies counts. docs/recording.md.", named=True, swapped=True)
        ] = ()

    def contradictions_of_capture(self) -> Iterator[ConfigError]:
        yield from CaptureOptions.contradictions_of_capture(self)
        if self.recording_routes and not self.recording_directory:
            yield ConfigError("", "recording_routes", "has no effect without "
                              "recording_directory")
        for name in ("recording_session_field", "recording_session_user"):
            if getattr(self, name) and not self.recording_directory:
                yield ConfigError("", name, "has no effect without recording_directory")
        if self.recording_url and (reason := check_url(self.recording_url)):
            yield ConfigError("", "recording_url", reason)
