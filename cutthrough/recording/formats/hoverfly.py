"""Simulations of hoverfly, schemas v1 to v5 -> recordings with patterns.

Read are the matchers exact, glob, regex, json, jsonpartial, jsonpath, jwt, jwtjsonpath,
xml, xmltemplated, xpath, negate, array and form, state, delays, templates, and bodies
in files beside it. A pair with another matcher, or with a helper in its template that
is not known here, is refused with the reason: it would answer as hoverfly does not.
What is left out of a pair, such as an action behind its answer, is told.

    {"path": "/a"}                                        v1
    {"path": {"exactMatch": "/a"}}                        v2 to v4
    {"path": [{"matcher": "exact", "value": "/a"}]}       v5
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.documents import read_file
from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.formats.har_bodies import decode
from cutthrough.exchange.formats.har_values import Notes
from cutthrough.exchange.formats.imported import Altered, NotImported
from cutthrough.recording.formats.foreign import (
    MOST_FILE,
    fit_coding,
    part,
    read_fields,
)
from cutthrough.recording.formats.handlebars import Literals, translate
from cutthrough.recording.formats.hoverfly_delays import (
    delayed,
    milliseconds,
    read_rules,
)
from cutthrough.recording.match.patterns import make_predicate
from cutthrough.recording.model.ranges import checked
from cutthrough.recording.model.recording import (
    DEFAULT_PORTS,
    JWT,
    Chunk,
    How,
    Part,
    Pattern,
    Recording,
    Request,
    Response,
)

Name = Callable[[str], None]

_HOW: dict[str, How] = {
    "exact": "exact", "glob": "glob", "regex": "regex", "json": "json",
    "jsonpartial": "partial_json", "jsonpath": "jsonpath", "form": "form",
    "negate": "negate", "array": "array", "jwt": "jwt", "jwtjsonpath": "jwt_jsonpath",
    "xml": "xml", "xmltemplated": "xml_templated", "xpath": "xpath"}
# The value that a matcher gives to its `doMatch`
_STEPS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "jsonpath": lambda path: (path,), "jwt": lambda _value: (JWT,),
    "jwt_jsonpath": lambda path: (JWT, path)}
# Matchers of v2 to v4
_OLD = {"exactMatch": "exact", "globMatch": "glob", "regexMatch": "regex",
        "jsonMatch": "json", "jsonPathMatch": "jsonpath", "xmlMatch": "xml",
        "xpathMatch": "xpath"}
# Bytes of all bodies in files beside a simulation; of those of a pair that shares its
# file with others, too
MOST_BODIES = 4 * MOST_FILE
_PARTS: dict[str, Part] = {"method": "method", "scheme": "scheme", "path": "path",
                           "destination": "host", "body": "body"}


def read_simulation(data: bytes, folder: Path | None = None
                    ) -> list[Recording | NotImported]:
    """The recordings in order, or the reason if one cannot be read. `folder`: of the
    file; None: bodies in other files are not read. Raises NotImported if the file is no
    simulation."""
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    try:
        document = read_file(data)
    except (ValueError, RecursionError) as error:
        raise NotImported(f"is no JSON: {error}") from None
    return read_pairs(document, folder)


def read_pairs(document: Any, folder: Path | None) -> list[Recording | NotImported]:
    """As read_simulation, of the document."""
    version = part(document, "meta").get("schemaVersion")
    schema = version.partition(".")[0] if isinstance(version, str) else ""
    if schema not in _SCHEMAS:
        raise NotImported(f"has schema {version!r:.20}, not v1 to v5")
    data_part = part(document, "data")
    pairs = data_part.get("pairs")
    if not isinstance(pairs, list):
        raise NotImported("has no `pairs`")
    results: list[Recording | NotImported] = []
    identities = set()
    bodies = Bodies(folder, read_literals(data_part.get("literals")))
    for number, table in enumerate(pairs):
        notes = Notes()
        try:
            pair = read_pair(_SCHEMAS[schema](table), bodies, notes.add)
            identity = pair.patterns, tuple(sorted(pair.requires.items()))
            if identity in identities:
                raise Altered("left out, as hoverfly does: a pair before it has the "
                              "same request")
            identities.add(identity)
        except Altered as error:
            results.append(Altered(f"pair {number}: {error}"))
            continue
        except NotImported as error:
            results.append(NotImported(f"pair {number}: {error}"))
            continue
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this pair (R71)
            results.append(NotImported(f"pair {number}: {reason_of(error)}"))
            continue
        results.append(pair)
        results += [Altered(f"pair {number}: {what}")
                    for what in (*notes.lines(), *left_out(table))]
    return with_global_delays(results, data_part.get("globalActions"))


def with_global_delays(results: list[Recording | NotImported], actions: Any
                       ) -> list[Recording | NotImported]:
    """Adds the global delays to pairs without a delay of their own."""
    if not isinstance(actions, dict):
        return results
    failures = [result for result in results if isinstance(result, NotImported)]
    pairs = [result for result in results if isinstance(result, Recording)]
    try:
        random = read_rules(actions.get("delaysLogNormal"), "median")
        pairs = delayed(pairs, (read_rules(actions.get("delays"), "delay"), random))
        if random:
            failures.append(Altered(f"globalActions: {RANDOM}"))
    except NotImported as error:
        failures.append(Altered(f"globalActions: its delays are left out: {error}"))
    return [*pairs, *failures]


RANDOM = "in place of random delays with this median there is always the median"


def left_out(pair: Any) -> list[str]:
    """The parts of a pair that its recording lacks."""
    reasons, response = [], part(pair, "response")
    if response.get("logNormalDelay"):
        reasons.append(RANDOM)
    if response.get("postServeAction"):
        reasons.append(f"the action {response['postServeAction']!r:.60} behind its "
                       "answer is left out")
    return reasons


def read_new(pair: Any) -> Any:
    return pair


def read_old(pair: Any) -> Any:
    """A pair of v2 to v4 as v5 has it."""
    request = dict(part(pair, "request"))
    for name in (*_PARTS, "query"):
        if request.get(name) is not None:
            request[name] = old_matchers(request[name])
    request["deprecatedQuery"] = request.pop("query", None)
    fields = values_of(request.get("headers"))
    for name, value in (request.get("headersWithMatchers") or {}).items():
        fields[name] = [*fields.get(name, ()), *old_matchers(value)]
    queries = request.get("queriesWithMatchers")
    return {**pair, "request": {
        **request, "headers": fields, "query": None if queries is None else {
            name: old_matchers(value) for name, value in queries.items()}}}


def old_matchers(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, dict) or not value.keys() <= _OLD.keys():
        raise NotImported(f"a matcher {value!r:.60} is not known")
    return [{"matcher": _OLD[name], "value": pattern}
            for name, pattern in value.items()]


def read_first(pair: Any) -> Any:
    """A pair of v1 as v5 has it: a request is a recorded one, or globs."""
    request = part(pair, "request")
    name = "exact" if request.get("requestType") in (None, "", "recording") else "glob"
    parts: dict[str, Any] = {
        key: [{"matcher": name, "value": request[key]}]
        for key in (*_PARTS, "query") if request.get(key) is not None}
    parts["deprecatedQuery"] = parts.pop("query", None)
    return {**pair, "request": {**parts, "headers": values_of(request.get("headers"))}}


def values_of(fields: Any) -> dict[str, list[dict[str, Any]]]:
    """Returns the matchers of fields with their values."""
    return {name: [{"matcher": "glob", "value": ";".join(map(str, values))}]
            for name, values in (fields or {}).items()}


_SCHEMAS = {"v1": read_first, "v2": read_old, "v3": read_old, "v4": read_old,
            "v5": read_new}


def read_pair(pair: Any, bodies: "Bodies", note: Name) -> Recording:
    """Raises NotImported."""
    request, response = part(pair, "request"), part(pair, "response")
    patterns = []
    for name, part_name in _PARTS.items():
        for matcher in matchers(request.get(name)):
            patterns += read_matcher(part_name, "", matcher)
    for matcher in matchers(request.get("deprecatedQuery")):
        patterns += read_matcher("query", "", matcher)
    for part_name, name in (("query", "query"), ("field", "headers")):
        table = request.get(name)
        if table is not None and not isinstance(table, dict):
            raise NotImported(f"`{name}` is no table")
        for key, values in (table or {}).items():
            for matcher in matchers(values):
                patterns += read_matcher(part_name, key, matcher)
    if request.get("query") == {}:           # the request has none
        patterns.append(Pattern(part="query"))
    if not patterns:                         # it answers everything
        patterns.append(Pattern(part="path", how="glob", value="*"))
    try:
        for pattern in patterns:
            make_predicate(pattern)
    except KeyMistake as error:
        raise NotImported(str(error)) from None
    random = response.get("logNormalDelay")
    labels = pair.get("labels")
    return checked(Recording(
        request=example(patterns), response=read_answer(response, bodies, note),
        template=bool(response.get("templated")),
        tags=tuple(map(str, labels)) if isinstance(labels, list) else (),
        patterns=tuple(patterns), requires=required(request.get("requiresState")),
        sets=words(response.get("transitionsState")),
        removes=tuple(map(str, response.get("removesState") or ())),
        delay_us=milliseconds(response.get("fixedDelay")) + (milliseconds(
            random.get("median")) if isinstance(random, dict) else 0)))


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
    name, value = str(matcher.get("matcher") or "exact").lower(), matcher.get("value")
    how = _HOW.get(name)
    if how is None:
        raise NotImported(f"the matcher {name!r:.20} is not known")
    more = []
    if matcher.get("doMatch") is not None:   # the input of a second one
        if how in ("form", "xpath"):
            raise NotImported(f"`doMatch` of {name!r} is not known")
        steps = _STEPS[how](str(value)) if how in _STEPS else ()
        more = [msgspec.structs.replace(pattern, steps=(*steps, *pattern.steps))
                for pattern in read_matcher(where, key, matcher["doMatch"])]
    config = matcher.get("config")
    if how == "array":
        if not isinstance(value, list) or where not in ("query", "field", "form"):
            raise NotImported("an array is not matched with a list of values")
        value = json.dumps({"values": value, **(config or {})})
    elif config is not None:
        raise NotImported(f"`config` of {name!r} is not known")
    return [*make_patterns(where, key, how, value), *more]


def make_patterns(where: Part, key: str, how: How, value: Any) -> list[Pattern]:
    """Raises NotImported."""
    if how == "form":
        if not isinstance(value, dict):
            raise NotImported("a form is no table")
        return [pattern for inner, values in value.items()
                for matcher in matchers(values)
                for pattern in read_matcher("form", inner, matcher)]
    if not isinstance(value, str):
        raise NotImported("the value of a matcher is no text")
    if where == "host" and how == "exact":
        host, port = split_authority(value.lower())
        patterns = [Pattern(part="host", value=host)]
        return [*patterns, Pattern(part="port", value=port)] if port else patterns
    if how in ("json", "xml") and not value.strip():
        # Which is equal to itself alone
        how = "exact"
    if where == "host":                      # of which hoverfly has the port
        where = "authority"
    return [Pattern(part=where, how=how, value=value,
                    key=key.lower() if where == "field" else key)]


def split_authority(text: str) -> tuple[str, str]:
    """Host without brackets, and port; "": absent."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port


def example(patterns: list[Pattern]) -> Request:
    """A request from the patterns; the rest is made up, and not matched."""
    patterns = [pattern for pattern in patterns
                if pattern.how == "exact" and not pattern.steps]
    values = {pattern.part: pattern.value for pattern in patterns if not pattern.key}
    scheme = values.get("scheme", "http")
    if scheme not in DEFAULT_PORTS:          # which no request has
        scheme = "http"
    port = values.get("port", "")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise NotImported(f"the port {port!r:.20} is none")
    return Request(
        method=values.get("method", "GET"), scheme=scheme, host=values.get("host", "*"),
        port=int(port) if port else DEFAULT_PORTS[scheme], path=values.get("path", "/"),
        query="&".join(f"{pattern.key}={pattern.value}" for pattern in patterns
                       if pattern.part == "query"),
        body=values.get("body", "").encode(errors="replace"))


def read_answer(response: dict[str, Any], bodies: "Bodies", note: Name) -> Response:
    """Raises NotImported."""
    status, text = response.get("status", 200), response.get("body") or ""
    if not isinstance(status, int) or not 100 <= status <= 999:
        raise NotImported(f"the status {status!r:.20} is none")
    if not isinstance(text, str):
        raise NotImported("the body is no text")
    body = text.encode(errors="replace")
    if response.get("bodyFile") and not text:
        body = bodies.read(response["bodyFile"])
    elif response.get("encodedBody"):
        decoded = decode(text)
        if decoded is None:
            raise NotImported("the body is not base64")
        body = decoded
    fields = fit_coding(read_fields(response.get("headers"), "response", note), body)
    if response.get("templated"):
        body = translate(body.decode(errors="replace"), bodies.literals).encode()
        fields = tuple(
            (name, translate(value, bodies.literals)) for name, value in fields)
    return Response(status=status, fields=fields,
                    chunks=(Chunk(0, body),) if body else ())


def read_body(name: Any, folder: Path | None, left: int) -> bytes:
    """Returns a file in the folder of the simulation, or below. Raises NotImported."""
    if folder is None or not isinstance(name, str) or "\0" in name or "://" in name:
        raise NotImported(f"its body is in another file, {name!r:.60}, which is not "
                          "read")
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()):
            raise NotImported(f"its body is in {name!r:.60}, which is not in the "
                              "directory of the simulation")
        if not path.is_file():
            raise NotImported(f"its body is in {name!r:.60}, which is no file")
        with path.open("rb") as file:
            data = file.read(min(MOST_FILE, left) + 1)
    except OSError as error:
        raise NotImported(f"its body is in {name!r:.60}: {error.strerror}") from None
    if len(data) > MOST_FILE:
        raise NotImported(f"its body, {name!r:.60}, is longer than {MOST_FILE} bytes")
    if len(data) > left:
        raise NotImported(f"with its body, {name!r:.60}, those in files would be "
                          f"longer than {MOST_BODIES} bytes together")
    return data


def read_literals(value: Any) -> dict[str, str]:
    """The literals of a simulation, for its templates."""
    return {str(literal.get("name")): str(literal.get("value")) for literal in value
            if isinstance(literal, dict)} if isinstance(value, list) else {}


class Bodies:
    """The bodies in files beside a simulation. Many pairs may share a file, and a
    recording has a copy of its own in a session, so all together are bounded (R70)."""

    def __init__(self, folder: Path | None, literals: dict[str, str]) -> None:
        self._folder = folder
        self.literals = Literals(literals)
        self._left = MOST_BODIES

    def read(self, name: Any) -> bytes:
        """Raises NotImported."""
        data = read_body(name, self._folder, self._left)
        self._left -= len(data)
        return data


def required(value: Any) -> dict[str, str]:
    """Sequences that hoverfly has captured begin with the state 1, which nothing sets.
    Without that the first of a sequence answers unless a later one does, which requires
    more."""
    return {name: state for name, state in words(value).items()
            if not ("sequence:" in name and state == "1")}


def words(value: Any) -> dict[str, str]:
    return {str(key): str(word) for key, word in value.items()} if isinstance(
        value, dict) else {}
