"""A request's parts that must be equal, by route: a request -> a base and its parts.

The base of two requests is compared as a whole. Of the parts a request may have more
than the recording: query keys with "subset", values of a document with "partial_json".
A body that is not compared octet by octet is read without its Content-Encoding.
"""

import contextlib
import hashlib
from collections.abc import Callable, Hashable
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any
from urllib.parse import quote

from cutthrough.exchange.bounds import KeyMistake
from cutthrough.exchange.documents import (
    canonical,
    compile_path,
    flatten,
    read_json,
    remove,
    select,
)
from cutthrough.exchange.expressions import compile_expression
from cutthrough.exchange.targets import spell_path
from cutthrough.recording.match.bodies import (
    plain,
    read_form,
    read_operations,
    read_parts_of,
)
from cutthrough.recording.match.routes import PLAIN, Base, Key, Parts
from cutthrough.recording.model.grpc_messages import MessageReader
from cutthrough.recording.model.recording import Pairs, Request, split_pairs
from cutthrough.recording.model.xml_documents import (
    compile_xpath,
    decode_xml,
    read_xml,
    select_xml,
    spell,
)

# Keys of a query that are an operation's
OF_GRAPHQL = ("query", "variables", "operationName", "extensions")


class KeyReader:
    """Reads requests by one key."""

    def __init__(self, key: Key) -> None:
        """Raises KeyMistake."""
        self.key = key
        self._messages = None if key.body != "grpc" else MessageReader(
            key.descriptors, key.descriptors_digest, key.ignored_paths)
        for path in key.ignored_paths if self._messages is None else ():
            compile_path(path)
        for path in key.paths:
            compile_path_of(key.body)(path)
        for pattern in key.regexes:
            compile_expression(pattern)
        if key.body == "xml":
            read_xml("<a/>")                 # is the library there?
        for name, kinds, values in (("paths", ("jsonpath", "xpath"), key.paths),
                                    ("regexes", ("regex",), key.regexes)):
            if (key.body in kinds) != bool(values):
                raise KeyMistake(f"`{name}` and body = {' or '.join(map(repr, kinds))} "
                                 "need each other")
        self._ignored = frozenset(name for name in key.ignored_query if "*" not in name)
        self._globs = tuple(glob for glob in key.ignored_query if "*" in glob)
        self._leaves_out = bool(key.ignored_query or key.body == "graphql")
        names = [name for name in PLAIN if name != "path" and getattr(key, name)]
        # Of two names or more it returns a tuple
        self._plain: Callable[[Request], tuple[Hashable, ...]] = (
            attrgetter(*names) if len(names) > 1 else
            lambda request: tuple(getattr(request, name) for name in names))
        self._body: Callable[[Request], Hashable] | None = {
            "json": self._json, "jsonpath": self._jsonpath, "form": self._form,
            "regex": self._regex, "graphql": self._graphql, "xml": self._xml,
            "xpath": self._xpath, "grpc": self._grpc}.get(key.body)

    def read(self, request: Request, *, recorded: bool) -> tuple[Base, Parts]:
        """`recorded`: others must have these parts."""
        key = self.key
        base: list[Hashable] = [*self._plain(request)]
        if key.path:
            base.append(spell_path(request.path))
        parts: Parts = {}
        whole = None if key.body in ("ignore", "partial_json") else self._whole(request)
        if request.query and key.query != "ignore":
            pairs = split_pairs(request.query)
            if self._leaves_out:
                pairs = self._counting(pairs, request, whole)
            if key.query == "exact":
                base.append(tuple(sorted(pairs, key=_first)))
            else:
                for name, value in pairs:
                    at = ("query", name)
                    before = parts.get(at)
                    parts[at] = (value,) if before is None else (*before, value)  # type: ignore[misc]
        elif key.query == "exact":
            base.append(())
        for name in key.fields:
            base.append(request.field(name))
        if key.body == "partial_json":
            base.append(self._partial(request, parts, recorded))
        else:
            base.append(whole)
        return tuple(base), parts

    def pairs(self, request: Request) -> Pairs:
        """The pairs of the query that count."""
        return self._counting(
            split_pairs(request.query), request,
            self._whole(request) if self.key.body == "graphql" else None)

    def _counting(self, pairs: Pairs, request: Request, whole: Hashable) -> Pairs:
        if self._ignored or self._globs:
            pairs = [pair for pair in pairs if pair[0] not in self._ignored and not any(
                fnmatchcase(pair[0], glob) for glob in self._globs)]
        if self.key.body == "graphql" and request.method == "GET" and (
                isinstance(whole, tuple)):
            pairs = [pair for pair in pairs if pair[0] not in OF_GRAPHQL]
        return pairs

    def plain(self, request: Request) -> Request:
        """As `plain`, if this key reads bodies; the same if it cannot be undone."""
        if self.key.body in ("raw", "ignore"):
            return request
        try:
            return plain(request)
        except ValueError:
            return request

    def document(self, request: Request) -> Any:
        """The body without ignored values. Raises ValueError."""
        try:
            document = read_json(request.body)
        except ValueError:                   # it may have a coding; few have
            decoded = plain(request)
            if decoded is request:
                raise
            document = read_json(decoded.body)
        for path in self.key.ignored_paths:
            remove(document, path)
        return document

    def _whole(self, request: Request) -> Hashable:
        if self._body is not None:
            try:
                return self._body(request)
            except KeyMistake:
                raise
            except ValueError:
                pass
        body = self.plain(request).body
        return body if len(body) < 16 else digest(body)

    def _partial(self, request: Request, parts: Parts, recorded: bool) -> Hashable:
        try:
            values = flatten(self.document(request), whole=not recorded)
        except ValueError:
            return digest(self.plain(request).body)
        for path, value in values.items():
            parts["body", path] = value
        return "json"

    def _json(self, request: Request) -> Hashable:
        return "json", digest(canonical(self.document(request)).encode())

    def _jsonpath(self, request: Request) -> Hashable:
        document = self.document(request)
        return "jsonpath", *(canonical(select(document, path))
                             for path in self.key.paths)

    def _form(self, request: Request) -> Hashable:
        decoded = plain(request)
        form = read_form(decoded)
        if isinstance(form, bytes):
            if self.key.ignored_form:
                with contextlib.suppress(ValueError):    # it is compared as it is
                    form = read_parts_of(decoded, frozenset(self.key.ignored_form))
            return "multipart", digest(form)
        return "form", as_text([
            pair for pair in form if pair[0] not in self.key.ignored_form])

    def _regex(self, request: Request) -> Hashable:
        body = plain(request).body
        return "regex", *(captured(body, regex) for regex in self.key.regexes)

    def _graphql(self, request: Request) -> Hashable:
        return "graphql", *read_operations(plain(request))

    def _xml(self, request: Request) -> Hashable:
        return "xml", digest(repr([*spell(root_of(request))]).encode())

    def _grpc(self, request: Request) -> Hashable:
        assert self._messages is not None
        return "grpc", digest(self._messages.spell(request.path, request.body))

    def messages(self, request: Request) -> list[dict[str, Any]]:
        """Returns the messages of a call. Raises ValueError."""
        assert self._messages is not None
        return self._messages.documents(request.path, request.body)

    def _xpath(self, request: Request) -> Hashable:
        root = root_of(request)
        return "xpath", digest(repr([
            select_xml(root, path) for path in self.key.paths]).encode())


def compile_path_of(body: str) -> Callable[[str], Any]:
    """The reader of `paths` of this kind. It raises KeyMistake."""
    return compile_xpath if body == "xpath" else compile_path


def root_of(request: Request) -> Any:
    """The element of its body. Raises ValueError."""
    return read_xml(decode_xml(plain(request).body))


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def captured(body: bytes, pattern: str) -> tuple[str | None, ...] | None:
    """The groups of the first match, or the match if it has no group; None if there
    is no match. Raises KeyMistake and TooMuch."""
    match = compile_expression(pattern).search(body.decode(errors="replace"))
    if match is None:
        return None
    return tuple(match.groups()) or (match.group(),)


def as_text(pairs: list[tuple[str, str]]) -> str:
    """Pairs sorted by key; the order of the values of one key stays."""
    return "&".join(f"{quote(key, safe='')}={quote(value, safe='')}"
                    for key, value in sorted(pairs, key=_first))


def _first(pair: tuple[str, str]) -> str:
    return pair[0]
