"""The options of traces: the collector of spans, and the share of traced requests."""

import re
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from cutthrough.config.option import ConfigError, Option
from cutthrough.config.redaction import RedactionOptions
from cutthrough.config.values import FILE, FLAG, TEXT, Kind


def parse_ratio(text: str) -> float:
    """Reads a number from 0 to 1."""
    if re.fullmatch(r"[0-9]{0,3}(\.[0-9]{1,9})?", text) is None or not text:
        raise ValueError(f"{text!r} is not a number from 0 to 1")
    return float(text)


RATIO = Kind("RATIO", parse_ratio, lambda ratio: f"{ratio:.9g}", low=0, high=1,
             bare=True, noun="number", typed="float")


class TraceOptions(RedactionOptions, frozen=True, kw_only=True):
    """A part of Config, behind another: a msgspec.Struct has one base."""

    trace_url: Annotated[str, Option(
        TEXT._replace(metavar="URL"), "collector of spans, by OTLP over HTTP; rules "
        "with capture choose the requests: http://127.0.0.1:4318/v1/traces; with a key "
        "in its query prefer trace_url_file; needs cutthrough[otlp]: docs/traces.md",
        "none", section="Traces", file="trace_url_file",
        stand_in="http://127.0.0.1:4318/v1/traces", swapped=True, of_program=True)] = ""
    trace_url_file: Annotated[str, Option(
        FILE, "file with the URL on one line", "none", swapped=True,
        of_program=True)] = ""
    trace_ratio: Annotated[float, Option(
        RATIO, "share of requests to be traced, if they have no valid traceparent; "
        "else its flag decides",
        "all, as OpenTelemetry's own default", swapped=True)] = 1.0
    trace_users: Annotated[bool, Option(
        FLAG, "name the user in spans", "off: spans leave the host", swapped=True,
        of_program=True)] = False

    def contradictions_of_traces(self) -> Iterator[ConfigError]:
        yield from self.contradictions_of_interception()
        if not self.trace_url:
            return
        try:
            url = urlsplit(self.trace_url)
            is_url = url.scheme in ("http", "https") and bool(url.hostname) and (
                url.port != 0)
        except ValueError:
            is_url = False
        if not is_url:
            yield ConfigError("", "trace_url", "is not http://HOST:PORT/PATH or https://")
        elif "@" in url.netloc:              # requests would quote it in its errors
            yield ConfigError("", "trace_url", "has a password: give it as a field, in "
                              "the variable OTEL_EXPORTER_OTLP_HEADERS")
