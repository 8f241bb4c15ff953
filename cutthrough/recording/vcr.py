"""Cassettes of VCR.py, version 1: YAML or JSON -> recordings, and back.

A cassette has no time and no chunks. Bodies are text or bytes; in JSON bytes are in
`base64_string`. Tags of Python that older versions wrote for text are read as text, and
nothing of Python is made otherwise.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any

import yaml

from cutthrough.capture.imported import NotImported, split_url
from cutthrough.recording.model import (
    DEFAULT_PORTS,
    Chunk,
    Fields,
    Recording,
    Request,
    Response,
)

VERSION = 1
MOST_FILE = 64 << 20


class _Loader(yaml.SafeLoader):
    """Reads the tags of VCR.py's older cassettes, too."""


def _text(loader: _Loader, node: Any) -> Any:
    return loader.construct_scalar(node)


_Loader.add_constructor("tag:yaml.org,2002:python/unicode", _text)
_Loader.add_constructor("tag:yaml.org,2002:python/str", _text)


def read_cassette(data: bytes) -> list[Recording | NotImported]:
    """The recordings in order, or the reason if one cannot be read. Raises NotImported
    if the file is no cassette."""
    if len(data) > MOST_FILE:
        raise NotImported(f"is longer than {MOST_FILE} bytes")
    try:
        found = json.loads(data) if data.lstrip()[:1] == b"{" else yaml.load(
            data, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotImported(f"is neither YAML nor JSON: {error}") from None
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
    return made


def read_interaction(one: Any) -> Recording:
    """Raises NotImported."""
    request, response = part(one, "request"), part(one, "response")
    method, url = request.get("method"), request.get("uri")
    if not isinstance(method, str) or not isinstance(url, str):
        raise NotImported("has no `method` or no `uri`")
    status = part(response, "status")
    code, reason = status.get("code"), status.get("message")
    if not isinstance(code, int) or not 100 <= code <= 999:
        raise NotImported("has no status of HTTP")
    body = read_body(response.get("body"))
    return Recording(
        request=make_request(method, url, read_fields(request.get("headers")),
                             read_body(request.get("body"))),
        response=Response(
            status=code, reason=reason if isinstance(reason, str) else "",
            fields=read_fields(response.get("headers")),
            chunks=(Chunk(0, body),) if body else ()))


def make_request(method: str, url: str, fields: Fields, body: bytes) -> Request:
    """Raises NotImported."""
    scheme, host, port, target = split_url(url)
    path, _, query = target.partition("?")
    return Request(method=method, scheme=scheme, host=host,
                   port=port or DEFAULT_PORTS[scheme], path=path, query=query,
                   fields=fields, body=body)


def part(value: Any, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise NotImported(f"has no `{name}`")
    return found


def read_fields(value: Any) -> Fields:
    """Of each name a value or a list of values."""
    fields = []
    for name, found in value.items() if isinstance(value, dict) else ():
        for one in found if isinstance(found, list) else [found]:
            # Nothing nested: by aliases it may be larger than any memory
            if not isinstance(name, str) or not isinstance(one, str | bytes | int):
                raise NotImported("a field is no text")
            fields.append((name, one.decode("latin-1") if isinstance(one, bytes)
                           else str(one)))
    return tuple(fields)


def read_body(value: Any) -> bytes:
    if isinstance(value, dict):
        if isinstance(value.get("base64_string"), str):
            try:
                return base64.b64decode(
                    value["base64_string"], validate=True)
            except (binascii.Error, ValueError):
                raise NotImported("a body is not base64") from None
        value = value.get("string")
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if not isinstance(value, str):
        raise NotImported("a body is neither text nor bytes")
    return value.encode(errors="surrogateescape")


def write_cassette(recordings: Iterable[Recording]) -> str:
    """As VCR.py writes it: bytes as !!binary unless they are UTF-8. It has no patterns,
    so recordings with some are left out."""
    return str(yaml.safe_dump({"interactions": [
        {"request": {"body": show(one.request.body) if one.request.body else None,
                     "headers": group(one.request.fields),
                     "method": one.request.method, "uri": one.request.url},
         "response": {"body": {"string": show(one.response.body)},
                      "headers": group(one.response.fields),
                      "status": {"code": one.response.status,
                                 "message": one.response.reason}}}
        for one in recordings if not one.patterns], "version": VERSION,
    }, allow_unicode=False, sort_keys=False))


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
