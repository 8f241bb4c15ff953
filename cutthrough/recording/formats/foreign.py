"""Shared by the readers and writers of other programs' files: values of a document ->
replayable parts of recordings; parts of a recording without a place in a file.

The files are hostile. A name with a blank, or a value with a line end, becomes no
field. Fields of the hop are left out, as in recordings of this program, because a
replay has its own.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cutthrough.codings import known_decoders
from cutthrough.exchange.content import undo_coding
from cutthrough.exchange.formats.imported import (
    CONNECTS,
    NotImported,
    OtherProtocol,
    clean,
    sound_fields,
    split_url,
)
from cutthrough.recording.model.recorded_heads import end_to_end
from cutthrough.recording.model.recording import (
    DEFAULT_PORTS,
    Fields,
    Recording,
    Request,
    find,
)

MOST_FILE = 64 << 20
# Of content: enough to see a coding, because the whole of many small bombs is much
MOST_BEGIN = 16 << 10
_ON_THE_WIRE = {"ws": "http", "wss": "https"}
# Of YAML and JSON
_SCALARS = (str, bytes, int, float, type(None))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")


def part(value: Any, name: str) -> dict[str, Any]:
    table = value.get(name) if isinstance(value, dict) else None
    if not isinstance(table, dict):
        raise NotImported(f"has no `{name}`")
    return table


def make_request(method: str, url: str, fields: Fields, body: bytes) -> Request:
    """As a client sends it: `get` as GET, and the address of a WebSocket as an
    address of HTTP. Raises NotImported."""
    if _TOKEN.fullmatch(method) is None:
        raise NotImported(f"the method {method!r:.60} is none")
    if method.upper() == "CONNECT":
        raise OtherProtocol("CONNECT", CONNECTS)
    scheme, host, port, target = split_url(url)
    path, _, query = target.partition("?")
    return Request(method=method.upper(), scheme=_ON_THE_WIRE.get(scheme, scheme),
                   host=host,
                   port=port or DEFAULT_PORTS[scheme], path=path, query=query,
                   fields=tuple(
                       field for field in fields if field[0].lower() != "host"),
                   body=body)


def read_fields(value: Any, side: str, name: Callable[[str], None]) -> Fields:
    """Reads fields from a table of names, each with a value or a list of values, or
    from a list of pairs. Other values are left out, with a message to `name`. `side`:
    of the message."""
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        name(f"{side}: without its fields, which are no table")
        return ()
    fields = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            name(f"{side}: without a field that is no pair")
            continue
        key, values = pair
        for scalar in values if isinstance(values, list) else [values]:
            # Nothing nested: by aliases it may be larger than any memory
            if isinstance(key, str) and isinstance(scalar, _SCALARS):
                fields.append((key, text_of(scalar)))
            else:
                name(f"{side}: a value of {key!r:.60} is no text")
    return clean_fields([
        pair for pair in sound_fields(fields, side, name) if pair[0][0] != ":"])


def text_of(value: Any) -> str:
    """Returns a scalar of YAML as it was written, mostly."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    return str(value)


def clean_fields(fields: Iterable[tuple[str, str]]) -> Fields:
    """Without those of the hop. Raises NotImported."""
    pairs = []
    for name, value in fields:
        if _TOKEN.fullmatch(name) is None:
            raise NotImported(f"the name of a field {name!r:.60} is none")
        pairs.append((name, clean(value)))
    return end_to_end(pairs)


def fit_coding(fields: Fields, body: bytes) -> Fields:
    """The fields of this body: without its coding, and with its length, if it has been
    decoded already: some clients give their recorder content, with original fields."""
    coding = find(fields, "content-encoding").lower()
    names = {name.strip() for name in coding.split(",")} - {"", "identity"}
    if not body or not names or not names <= known_decoders().keys() or (
            undo_coding(body, coding, MOST_BEGIN)[0] is not None):
        return fields
    return tuple(
        (name, str(len(body)) if name.lower() == "content-length" else value)
        for name, value in fields if name.lower() != "content-encoding")


def why_not(recording: Recording) -> str:
    """Why a recording cannot be in a file of requests and their answers alone: there it
    would answer other requests, or otherwise. "" if it can."""
    if recording.patterns:
        return "left out: it answers by patterns, and the file has none"
    if recording.requires:
        return "left out: it answers in a state alone, and the file has none"
    if recording.template:
        return "left out: its answer is a template"
    if not recording.response.status:
        return "left out: it has no answer"
    return ""


def lost(recording: Recording) -> Iterator[str]:
    """The parts of a recording missing in such a file."""
    for name, value in (("trailers", recording.response.trailers),
                        ("tags", recording.tags),
                        ("changes of the state", recording.sets or recording.removes),
                        ("cut", recording.response.is_cut),
                        ("delay", recording.delay_us)):
        if value:
            yield f"without its {name}: the file has no place for that"
