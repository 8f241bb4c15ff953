"""A file's program is recognised by the content, and never by the name.

    a number and a colon          a dump of mitmproxy
    {"log": …}                    an HTTP Archive
    {"data": …, "meta": …}        a simulation of hoverfly
    interactions, in JSON, YAML   a cassette: VCR.py's, go-vcr's, betamax's, Ruby VCR's

Each of them may be in gzip or zlib.
"""

import codecs
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cutthrough.exchange.documents import read_file
from cutthrough.exchange.formats.har_reader import read_log
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.exchange.formats.packed import unpacked
from cutthrough.exchange.formats.reader import read_whole
from cutthrough.exchange.formats.tnetstring import begins_with_item
from cutthrough.recording.formats.exchanges import read_exchanges, recordings_of
from cutthrough.recording.formats.foreign import MOST_FILE
from cutthrough.recording.formats.hoverfly import read_pairs
from cutthrough.recording.formats.vcr import (
    is_old,
    program_of,
    read_interactions,
    read_yaml,
)
from cutthrough.recording.model.recording import Recording

UNKNOWN = ("is no HTTP Archive, dump of mitmproxy, simulation of hoverfly or cassette "
           "of VCR.py, go-vcr, betamax or VCR for Ruby; "
           "an export is imported by its directory")
# Words of a cassette in YAML, of today and before its program's first version
_OF_CASSETTES = (b"interactions", b"vcr.request.", b"VCR::")
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Contents(NamedTuple):
    """`program`: the file's writer."""

    program: str
    items: Iterable[Recording | NotImported]


def read_recordings(path: Path) -> Contents:
    """The recordings of a file in order, or the reason if one cannot be read. Raises
    NotImported if it is of no known form, and OSError."""
    with path.open("rb") as raw:
        file, front = unpacked(raw)
        if begins_with_item(front):
            return Contents("mitmproxy", list(read_exchanges(file)))
        data = read_whole(file)
    if not front:
        raise NotImported("is empty")
    if is_json(data, front[:1]):
        try:
            document = read_file(data, constants=True)
        except (ValueError, RecursionError) as error:
            raise NotImported(f"is no JSON: {error}") from None
        if isinstance(document, dict) and "log" in document:
            return Contents("HAR", recordings_of(read_log(document)))
        if len(data) > MOST_FILE:
            raise NotImported(f"is longer than {MOST_FILE} bytes")
        return read_document(document, path.parent)
    if not any(word in data.replace(b"\0", b"") for word in _OF_CASSETTES):
        raise NotImported(UNKNOWN)
    return read_document(read_yaml(data), path.parent)


def is_json(data: bytes, start: bytes) -> bool:
    if data.startswith(_MARKS):
        return data[2:4].strip(b"\0") in (b"{", b"[")
    return start in (b"{", b"[") or (data[3:4] in (b"{", b"[") and (
        data.startswith(codecs.BOM_UTF8)))


def read_document(document: Any, folder: Path) -> Contents:
    """Raises NotImported."""
    if isinstance(document, dict) and "meta" in document:
        return Contents("hoverfly", read_pairs(document, folder))
    if is_old(document) or (isinstance(document, dict) and (
            "interactions" in document or "http_interactions" in document)):
        return Contents(program_of(document), read_interactions(document))
    raise NotImported(UNKNOWN)
