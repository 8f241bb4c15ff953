"""Cassettes of VCR.py, YAML or JSON -> recordings, and back; those of go-vcr, betamax
and VCR for Ruby -> recordings.

A cassette has no chunks and no version of HTTP, and the fields of one name are
together. Bodies are text or bytes; in JSON bytes are in `base64_string`. Of the tags of
Python in cassettes, those of text, tuples, files, iterators and tables of fields are
read as what is in them, and nothing of Python is made. A value with another tag cannot
be read, and costs itself alone.
"""

from collections.abc import Iterable
from typing import Any, TextIO

import yaml

from cutthrough.exchange.documents import read_file
from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.formats.har_values import Notes
from cutthrough.exchange.formats.imported import Altered, NotImported
from cutthrough.recording.formats.foreign import MOST_FILE, lost, why_not
from cutthrough.recording.formats.interactions import read_interaction
from cutthrough.recording.match.statuses import SWITCHED
from cutthrough.recording.model.recording import Fields, Recording
from cutthrough.recording.model.yaml_documents import Loader, load

VERSION = 1
# Of the files of VCR.py 0: they were lists
OLD = ("is of VCR.py before version 1, which VCR.py does not read either: "
       "`python3 -m vcr.migration FILE` makes a newer one")


# Versions of go-vcr's files beside that
GO_VERSIONS = (1, 2)
OLD_RUBY = "is of VCR for Ruby before version 2, whose objects are not read"


class _Loader(Loader):
    """Reads the tags of Python and Ruby that cassettes may have. A date is text."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if "timestamp" not in tag]
        for first, pairs in Loader.yaml_implicit_resolvers.items()}


class Tagged:
    """A value with a tag that is not read."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def __repr__(self) -> str:
        return f"a value with the tag {self._tag}"


def _text(loader: _Loader, node: Any) -> Any:
    return loader.construct_scalar(node)


def _binary(loader: _Loader, node: Any) -> Any:
    return loader.construct_yaml_binary(node)


def _list(loader: _Loader, node: Any) -> Any:
    """No tuple: as a key it would be hashed, and by aliases that may take for ever."""
    return loader.construct_sequence(node, deep=True)


def _first(key: str) -> Any:
    """A constructor: the first value of the list that is in this key."""
    def construct(loader: _Loader, node: Any) -> Any:
        values = loader.construct_mapping(node, deep=True).get(key)
        return values[0] if isinstance(values, list) and values else None

    return construct


def _fields(key: str) -> Any:
    """A constructor of fields: names and their values are in lists, in this key."""
    def construct(loader: _Loader, node: Any) -> Any:
        table = loader.construct_mapping(node, deep=True).get(key)
        return [[pair[0], pair[1:]] for pair in table.values() if isinstance(pair, list)
                and pair] if isinstance(table, dict) else Tagged(node.tag)

    return construct


def _other(loader: _Loader, tag: str, node: Any) -> Any:
    return Tagged(tag or node.tag)


for _name, _construct in (
        ("unicode", _text), ("str", _text), ("bytes", _binary), ("tuple", _list),
        ("object/new:_io.BytesIO", _first("state")),
        ("object/new:io.BytesIO", _first("state")),
        ("object/apply:builtins.iter", _first("args")),
        ("object:urllib3._collections.HTTPHeaderDict", _fields("_container")),
        ("object:requests.structures.CaseInsensitiveDict", _fields("_store"))):
    _Loader.add_constructor(f"tag:yaml.org,2002:python/{_name}", _construct)
for _tag, _construct in (("!binary", _binary), ("!str", _text)):     # Ruby's
    _Loader.add_constructor(_tag, _construct)
for _prefix in ("tag:yaml.org,2002:python/", "!"):
    _Loader.add_multi_constructor(_prefix, _other)


def read_cassette(data: bytes) -> list[Recording | NotImported]:
    """The recordings in order, or the reason if one cannot be read. Raises NotImported
    if the file is no cassette."""
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    if data.lstrip()[:1] != b"{":
        return read_interactions(read_yaml(data))
    try:
        return read_interactions(read_file(data))
    except (ValueError, RecursionError) as error:
        if isinstance(error, NotImported):
            raise
        raise NotImported(f"is neither YAML nor JSON: {error}") from None


def read_yaml(data: bytes) -> Any:
    """The document of a cassette. Raises NotImported."""
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    try:
        return load(data, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotImported(f"is neither YAML nor JSON: {error}") from None


def read_interactions(document: Any) -> list[Recording | NotImported]:
    """As read_cassette, of the document."""
    if is_old(document):
        raise NotImported(OLD_RUBY if isinstance(document[0], Tagged) else OLD)
    program = program_of(document)
    if not program:
        raise NotImported("has no `interactions`")
    version = document.get("version", VERSION)
    if (program == "VCR.py" and version != VERSION) or (
            program == "go-vcr" and version not in GO_VERSIONS):
        raise NotImported(f"has the version {version!r:.20}, which is not read")
    results: list[Recording | NotImported] = []
    for number, interaction in enumerate(interactions_of(document) or ()):
        notes = Notes()
        try:
            results.append(read_interaction(interaction, notes.add))
        except NotImported as error:
            error.args = (f"interaction {number}: {error}",)
            results.append(error)
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this one (R71)
            results.append(NotImported(f"interaction {number}: {reason_of(error)}"))
        else:
            results += [Altered(f"interaction {number}: {line}")
                        for line in notes.lines()]
    return results


def is_old(document: Any) -> bool:
    """The first versions wrote lists."""
    return isinstance(document, list) and document != [] and (
        isinstance(document[0], Tagged) or (isinstance(document[0], dict)
        and document[0].keys() == {"request", "response"}))


def interactions_of(document: Any) -> list[Any] | None:
    if not isinstance(document, dict):
        return None
    inner = document.get("interactions", document.get("http_interactions"))
    return inner if isinstance(inner, list) else None


def program_of(document: Any) -> str:
    """Returns the name of the program that wrote a cassette; "" if the document is no
    cassette."""
    interactions = interactions_of(document)
    if interactions is None:
        return ""
    if "http_interactions" in document:
        return "betamax" if str(document.get("recorded_with", "")).startswith(
            "betamax") else "Ruby VCR"
    first = interactions[0] if interactions else None
    request = first.get("request") if isinstance(first, dict) else None
    return "go-vcr" if isinstance(request, dict) and "url" in request else "VCR.py"


def write_cassette(file: TextIO, recordings: Iterable[Recording]
                   ) -> list[tuple[int, str]]:
    """As VCR.py writes it: bytes as !!binary unless they are UTF-8. Returns the numbers
    of recordings that are not in it, or not whole, and why. Raises OSError."""
    left_out: list[tuple[int, str]] = []
    interactions = []
    for recording in recordings:
        reason = why_not(recording)
        if recording.response.messages or recording.response.status == SWITCHED:
            reason = "left out: a cassette has no WebSockets"
        if reason:
            left_out.append((recording.number, reason))
            continue
        left_out += [(recording.number, what) for what in lost(recording)]
        request, response = recording.request, recording.response
        interactions.append({
            "request": {"body": show(request.body) if request.body else None,
                        "headers": group(request.fields), "method": request.method,
                        "uri": request.ascii_url},
            "response": {"body": {"string": show(response.body)},
                         "headers": group(response.fields),
                         "status": {"code": response.status,
                                    "message": response.reason}}})
    yaml.safe_dump({"interactions": interactions, "version": VERSION}, file,
                   allow_unicode=False, sort_keys=False)
    return left_out


def show(body: bytes) -> str | bytes:
    """Text if it can be read as such, and comes back from YAML as it is."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    return body if yaml.reader.Reader.NON_PRINTABLE.search(text) else text


def group(fields: Fields) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in fields:
        groups.setdefault(name, []).append(value)
    return groups
