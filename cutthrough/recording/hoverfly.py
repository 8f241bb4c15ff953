"""Simulations of hoverfly, schema v5 -> recordings with patterns.

Read are the matchers exact, glob, regex, json, jsonpartial, jsonpath and form, state
delays and templates. A pair with another matcher, or with a helper in its template that
is not known here, is refused with the reason: it would answer as hoverfly does not.
"""

import base64
import binascii
import json
from typing import Any

from cutthrough.capture.imported import NotImported
from cutthrough.recording.handlebars import translate
from cutthrough.recording.model import (
    DEFAULT_PORTS,
    Chunk,
    How,
    Part,
    Pattern,
    Recording,
    Request,
    Response,
)
from cutthrough.recording.foreign import MOST_FILE, part, read_fields

_HOW: dict[str, How] = {
    "exact": "exact", "glob": "glob", "regex": "regex", "json": "json",
    "jsonpartial": "partial_json", "jsonpath": "jsonpath", "form": "form"}
_PARTS: dict[str, Part] = {"method": "method", "scheme": "scheme", "path": "path",
                           "destination": "host", "body": "body"}


def read_simulation(data: bytes) -> list[Recording | NotImported]:
    """The recordings in order, or the reason if one cannot be read. Raises NotImported
    if the file is no simulation."""
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotImported(f"is no JSON: {error}") from None
    version = part(found, "meta").get("schemaVersion")
    if not isinstance(version, str) or version.partition(".")[0] != "v5":
        raise NotImported(f"has schema {version!r:.20}, not v5: `hoverctl export` of a "
                          "newer hoverfly writes it")
    pairs = part(found, "data").get("pairs")
    if not isinstance(pairs, list):
        raise NotImported("has no `pairs`")
    made: list[Recording | NotImported] = []
    for number, one in enumerate(pairs):
        try:
            made.append(read_pair(one))
        except NotImported as error:
            made.append(NotImported(f"pair {number}: {error}"))
    return made


def read_pair(one: Any) -> Recording:
    """Raises NotImported."""
    request, response = part(one, "request"), part(one, "response")
    patterns = []
    for name, part_name in _PARTS.items():
        for matcher in matchers(request.get(name)):
            patterns += read_matcher(part_name, "", matcher)
    for part_name, name in (("query", "query"), ("field", "headers")):
        table = request.get(name) or {}
        if not isinstance(table, dict):
            raise NotImported(f"`{name}` is no table")
        for key, values in table.items():
            for matcher in matchers(values):
                patterns += read_matcher(part_name, key, matcher)
    if not patterns:                         # it answers everything
        patterns.append(Pattern(part="path", how="glob", value="*"))
    return Recording(
        request=example(patterns), response=read_answer(response),
        template=bool(response.get("templated")),
        patterns=tuple(patterns), requires=words(request.get("requiresState")),
        sets=words(response.get("transitionsState")),
        removes=tuple(map(str, response.get("removesState") or ())),
        delay_us=milliseconds(response.get("fixedDelay")) * 1000)


def matchers(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise NotImported("matchers are no list")
    return value


def read_matcher(where: Part, key: str, matcher: Any) -> list[Pattern]:
    """Raises NotImported if it has no meaning here."""
    if not isinstance(matcher, dict):
        raise NotImported("a matcher is no table")
    name, value = str(matcher.get("matcher", "exact")).lower(), matcher.get("value")
    how = _HOW.get(name)
    if how is None or any(
            matcher.get(key) is not None for key in ("doMatch", "config")):
        raise NotImported(f"the matcher {name!r:.20} is not known, or has `doMatch` or "
                          "`config`")
    if how == "form":
        if not isinstance(value, dict):
            raise NotImported("a form is no table")
        found = []
        for inner, values in value.items():
            for one in matchers(values):
                if not isinstance(one, dict) or one.get("matcher") != "exact":
                    raise NotImported("a key of a form is not matched exactly")
                found.append(Pattern(part=where, how="form", key=inner,
                                     value=str(one.get("value"))))
        return found
    if not isinstance(value, str):
        raise NotImported("the value of a matcher is no text")
    if where == "host" and how == "exact":
        host, _, port = value.lower().partition(":")
        made = [Pattern(part="host", value=host)]
        return [*made, Pattern(part="port", value=port)] if port else made
    return [Pattern(part=where, how=how, value=value,
                    key=key.lower() if where == "field" else key)]


def example(patterns: list[Pattern]) -> Request:
    """What the patterns say of a request; the rest is made up, and not matched."""
    found = {one.part: one.value for one in patterns
             if one.how == "exact" and not one.key}
    scheme = found.get("scheme", "http")
    if scheme not in DEFAULT_PORTS:
        raise NotImported(f"the scheme {scheme!r:.20} is none of HTTP")
    port = found.get("port", "")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise NotImported(f"the port {port!r:.20} is none")
    return Request(
        method=found.get("method", "GET"), scheme=scheme, host=found.get("host", "*"),
        port=int(port) if port else DEFAULT_PORTS[scheme], path=found.get("path", "/"),
        query="&".join(f"{one.key}={one.value}" for one in patterns
                       if one.part == "query" and one.how == "exact"),
        body=found.get("body", "").encode(errors="replace"))


def read_answer(response: dict[str, Any]) -> Response:
    """Raises NotImported."""
    status, text = response.get("status", 200), response.get("body") or ""
    if not isinstance(status, int) or not 100 <= status <= 999:
        raise NotImported(f"the status {status!r:.20} is none")
    if not isinstance(text, str):
        raise NotImported("the body is no text")
    if response.get("bodyFile") and not text:
        raise NotImported("its body is in another file")
    body = text.encode(errors="replace")
    if response.get("encodedBody"):
        try:
            body = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise NotImported("the body is not base64") from None
    fields = read_fields(response.get("headers"))
    if response.get("templated"):
        body = translate(body.decode(errors="replace")).encode()
        fields = tuple((name, translate(value)) for name, value in fields)
    return Response(status=status, fields=fields,
                    chunks=(Chunk(0, body),) if body else ())


def words(value: Any) -> dict[str, str]:
    return {str(key): str(one) for key, one in value.items()} if isinstance(
        value, dict) else {}


def milliseconds(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= 3_600_000 else 0
