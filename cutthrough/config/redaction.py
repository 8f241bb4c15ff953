"""The options of redaction: which secrets captures and recordings do not keep."""

import re
from typing import Annotated

from cutthrough.config.interception import InterceptionOptions
from cutthrough.config.option import Option
from cutthrough.config.values import Kind, parse_text, parse_token


def parse_field(text: str) -> str:
    """Reads a field's name; returns it in lower case."""
    return parse_token(text).lower()


def parse_key(text: str) -> str:
    """Reads a key of a URL's query; returns it in lower case."""
    return parse_text(text).lower()


def parse_path(text: str) -> str:
    """Reads a path in JSON, such as `$.user.token`, `items.*.key` or `$..password`;
    returns it with `.*` in place of JSONPath's `[*]`."""
    text = text.replace("[*]", ".*")
    if re.fullmatch(r"\$?(\.{1,2})?[^.$\s\[\]]+(\.{1,2}[^.\s\[\]]+)*", text) is None:
        raise ValueError(f"{text!r} is not a path such as $.user.token, items.*.key "
                         "or $..password")
    return parse_text(text)


FIELDS = Kind("FIELD", parse_field, many=True)
KEYS = Kind("KEY", parse_key, many=True)
PATHS = Kind("PATH", parse_path, many=True)
# With commas of their own; parse_text refuses a line end in one
REGEXES = Kind("REGEX", parse_text, many=True, separator="\n")


class RedactionOptions(InterceptionOptions, frozen=True, kw_only=True):
    """A part of Config, behind another: a msgspec.Struct has one base."""

    redact_fields: Annotated[tuple[str, ...], Option(
        FIELDS, "fields of heads whose values neither captures nor recordings keep; "
        "credentials' they never do", "none", section="Redaction", swapped=True,
        of_program=True)] = ()
    redact_query: Annotated[tuple[str, ...], Option(
        KEYS, "keys of URLs and forms, likewise", "none", swapped=True, of_program=True)
        ] = ()
    redact_json: Annotated[tuple[str, ...], Option(
        PATHS, "paths in JSON bodies, likewise, such as $.user.token, items.*.key or "
        "$..password", "none", swapped=True, of_program=True)] = ()
    redact_body: Annotated[tuple[str, ...], Option(
        REGEXES, "expressions (RE2) whose groups, or matches, are not kept of bodies",
        "none", swapped=True, of_program=True)] = ()
