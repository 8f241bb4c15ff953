"""Cassettes of VCR.py, version 1: YAML or JSON -> recordings, and back.

A cassette has no time, no chunks and no version of HTTP, and the fields of one name are
together. Bodies are text or bytes; in JSON bytes are in `base64_string`. Of the tags of
Python in cassettes, those of text, tuples, files and iterators are read as what is in
them, and nothing of Python is made.

    response: {status: {code, message}, headers, body: {string}}
    response: {status_code, http_version, headers, content}   of httpx, up to version 5
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, TextIO

import yaml

from cutthrough.capture.failures import reason_of
from cutthrough.capture.imported import NotImported, clean
from cutthrough.exchange.documents import read_file
from cutthrough.recording.foreign import (
    MOST_FILE,
    fit_coding,
    lost,
    make_request,
    part,
    read_fields,
    why_not,
)
from cutthrough.recording.matcher import SWITCHED
from cutthrough.recording.model import Chunk, Fields, Recording, Response
from cutthrough.recording.yaml_documents import Loader, load

VERSION = 1
# Of what VCR.py 0 wrote, which was a list
OLD = ("is of VCR.py before version 1, which VCR.py does not read either: "
       "`python3 -m vcr.migration FILE` makes a newer one")


class _Loader(Loader):
    """Reads the tags of Python that cassettes may have."""


def _text(loader: _Loader, node: Any) -> Any:
    return loader.construct_scalar(node)


def _list(loader: _Loader, node: Any) -> Any:
    """No tuple: as a key it would be hashed, and by aliases that may take for ever."""
    return loader.construct_sequence(node, deep=True)


def _first(key: str) -> Any:
    """A constructor: the first value of the list that is in this key."""
    def construct(loader: _Loader, node: Any) -> Any:
        found = loader.construct_mapping(node, deep=True).get(key)
        return found[0] if isinstance(found, list) and found else None

    return construct


for _name, _construct in (
        ("unicode", _text), ("str", _text), ("tuple", _list),
        ("object/new:_io.BytesIO", _first("state")),
        ("object/apply:builtins.iter", _first("args"))):
    _Loader.add_constructor(f"tag:yaml.org,2002:python/{_name}", _construct)


def read_cassette(data: bytes) -> list[Recording | NotImported]:
    """The recordings in order, or the reason if one cannot be read. Raises NotImported
    if the file is no cassette."""
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    try:
        found = read_file(data) if data.lstrip()[:1] == b"{" else load(data, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotImported(OLD if b"!!python/object:vcr.request" in data else
                          f"is neither YAML nor JSON: {error}") from None
    if isinstance(found, list) and found and isinstance(found[0], dict) and (
            "request" in found[0]):
        raise NotImported(OLD)
    if not isinstance(found, dict) or not isinstance(found.get("interactions"), list):
        raise NotImported("has no `interactions`")
    if found.get("version", VERSION) != VERSION:
        raise NotImported(f"has another version than {VERSION}")
    made: list[Recording | NotImported] = []
    for number, one in enumerate(found["interactions"]):
        try:
            made.append(read_interaction(one))
        except NotImported as error:
            made.append(NotImported(f"interaction {number}: {error}"))
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this one (R71)
            made.append(NotImported(f"interaction {number}: {reason_of(error)}"))
    return made


def read_interaction(one: Any) -> Recording:
    """Raises NotImported."""
    request, response = part(one, "request"), part(one, "response")
    method, url = request.get("method"), request.get("uri")
    if not isinstance(method, str) or not isinstance(url, str):
        raise NotImported("has no `method` or no `uri`")
    if "status_code" in response:
        status = {"code": response["status_code"]}
        body = read_body(response.get("content"))
    else:
        status = part(response, "status")
        body = read_body(response.get("body"))
    code, reason = status.get("code"), status.get("message")
    if not isinstance(code, int) or not 100 <= code <= 999:
        raise NotImported("has no status of HTTP")
    return Recording(
        request=make_request(method, url, read_fields(request.get("headers")),
                             read_body(request.get("body"))),
        response=Response(
            status=code, reason=clean(reason) if isinstance(reason, str) else "",
            fields=fit_coding(read_fields(response.get("headers")), body),
            chunks=(Chunk(0, body),) if body else ()))


def read_body(value: Any) -> bytes:
    if isinstance(value, dict):
        if isinstance(value.get("base64_string"), str):
            try:
                return base64.b64decode(
                    value["base64_string"], validate=True)
            except (binascii.Error, ValueError):
                raise NotImported("a body is not base64") from None
        if value and not {"string", "base64_string"} & value.keys():
            raise NotImported("a body has neither `string` nor `base64_string`")
        value = value.get("string")
    if isinstance(value, list):              # what an iterator gave, piece by piece
        if not all(isinstance(one, str | bytes) for one in value):
            raise NotImported("a body is neither text nor bytes")
        return b"".join(map(read_body, value))
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if not isinstance(value, str):
        raise NotImported("a body is neither text nor bytes")
    return value.encode(errors="surrogateescape")


def write_cassette(file: TextIO, recordings: Iterable[Recording]
                   ) -> list[tuple[int, str]]:
    """As VCR.py writes it: bytes as !!binary unless they are UTF-8. Returns the numbers
    of recordings that are not in it, or not whole, and why. Raises OSError."""
    left_out: list[tuple[int, str]] = []
    interactions = []
    for one in recordings:
        reason = why_not(one)
        if one.response.messages or one.response.status == SWITCHED:
            reason = "left out: a cassette has no WebSockets"
        if reason:
            left_out.append((one.number, reason))
            continue
        left_out += [(one.number, what) for what in lost(one)]
        request, response = one.request, one.response
        interactions.append({
            "request": {"body": show(request.body) if request.body else None,
                        "headers": group(request.fields), "method": request.method,
                        "uri": request.url},
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
    found: dict[str, list[str]] = {}
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found
