"""The options of capture: database, bounds and redaction of captured requests."""

from collections.abc import Iterator
from typing import Annotated, Literal

from cutthrough.config.database import check_url
from cutthrough.config.option import ConfigError, Option
from cutthrough.config.redaction import FIELDS, KEYS, PATHS
from cutthrough.config.tracing import TraceOptions
from cutthrough.config.values import (
    COUNT,
    DAY,
    DURATION,
    DURATION_OR_0,
    FILE,
    FLAG,
    SIZE,
    TEXT,
    choice,
)


class CaptureOptions(TraceOptions, frozen=True, kw_only=True):
    """A part of Config, behind another: a msgspec.Struct has one base."""

    capture_file: Annotated[str, Option(
        FILE, "database of the requests that rules capture: docs/capture.md",
        "none: such a rule is refused", section="Capture", swapped=True,
        of_program=True)] = ""
    capture_url: Annotated[str, Option(
        TEXT._replace(metavar="URL"), "PostgreSQL database of the same, in place of "
        "capture_file: several programs may write to one: docs/capture.md; it has a "
        "password, so prefer capture_url_file", "none", file="capture_url_file",
        stand_in="postgresql://localhost/cutthrough", swapped=True, of_program=True)
        ] = ""
    capture_url_file: Annotated[str, Option(
        FILE, "file with the URL on one line", "none", swapped=True,
        of_program=True)] = ""
    capture_program: Annotated[str, Option(
        TEXT._replace(metavar="NAME"), "name of this program in the rows of "
        "capture_url", "the host's name", swapped=True, of_program=True)] = ""
    capture_count: Annotated[int, Option(
        COUNT, "most exchanges in it, oldest out first; 0: no limit",
        "our choice: pages and filters stay quick", swapped=True, of_program=True)
        ] = 10_000
    capture_bytes: Annotated[int, Option(
        SIZE, "most bytes of heads and bodies in it; 0: no limit",
        "our choice: a thousand pairs of whole bodies", swapped=True, of_program=True)
        ] = 1 << 30
    capture_age: Annotated[float, Option(
        DURATION_OR_0, "age at which an exchange is deleted; 0: never",
        "our choice: a week", swapped=True, of_program=True)] = 7 * DAY
    capture_body: Annotated[int, Option(
        SIZE._replace(high=64 << 20), "most bytes of each body that are kept",
        "our choice: most answers of APIs, and no downloads", swapped=True,
        of_program=True)] = 512 << 10
    capture_compress: Annotated[bool, Option(
        FLAG, "keep bodies of 1 KiB and more in zstd; needs cutthrough[codings]",
        "off: a body of 1 KiB takes the writer a quarter more time, and readers "
        "need zstd, too", swapped=True, of_program=True)] = False
    capture_credentials: Annotated[bool, Option(
        FLAG, "keep the values of Authorization, Proxy-Authorization, Cookie and "
        "Set-Cookie", "off: a reader of the file could use them (R59)", swapped=True,
        of_program=True)] = False
    capture_redact_fields: Annotated[tuple[str, ...], Option(
        FIELDS, "as redact_fields, for captures alone", "none",
        swapped=True, of_program=True)] = ()
    capture_redact_query: Annotated[tuple[str, ...], Option(
        KEYS, "as redact_query, for captures alone", "none",
        swapped=True, of_program=True)] = ()
    capture_redact_json: Annotated[tuple[str, ...], Option(
        PATHS, "as redact_json, for captures alone", "none",
        swapped=True, of_program=True)] = ()
    breakpoint_timeout: Annotated[float, Option(
        DURATION, "how long a rule's `breakpoint` holds a message for an operator, if "
        "the admin listener has armed them",
        "below the patience of most clients", swapped=True, of_program=True)] = 30.0
    breakpoint_messages: Annotated[int, Option(
        COUNT._replace(low=1, high=1000), "most requests and responses that a worker "
        "holds at a time; the next go on, or are refused as those about which nobody "
        "has decided", "more than an operator can look at", swapped=True,
        of_program=True)] = 32
    breakpoint_undecided: Annotated[Literal["pass", "refuse"], Option(
        choice("pass", "refuse"), "what becomes of a message about which nobody has "
        "decided by then, or for which a worker has no room: it goes on unchanged, or "
        "is refused", "pass: who arms and leaves breaks nothing", swapped=True,
        of_program=True)] = "pass"

    @property
    def capture_database(self) -> str:
        """A path or a URL; "": there is none."""
        return self.capture_url or self.capture_file

    def contradictions_of_capture(self) -> Iterator[ConfigError]:
        yield from self.contradictions_of_traces()
        if not self.capture_url:
            return
        if reason := check_url(self.capture_url):
            yield ConfigError("", "capture_url", reason)
        if self.capture_file:
            yield ConfigError("", "capture_url", "and capture_file are both set: "
                              "remove one of the two")
