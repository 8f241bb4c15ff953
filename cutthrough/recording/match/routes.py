"""Routes, and their keys: which parts of requests must be equal.

A route is chosen by host, path and method, for recordings and requests alike; the first
that applies counts. Without any of them `Key()` does.
"""

from collections.abc import Hashable
from typing import Literal

import msgspec

from cutthrough.recording.model.selection import Selection

Query = Literal["exact", "subset", "ignore"]
Body = Literal["raw", "json", "partial_json", "jsonpath", "form", "regex", "graphql",
               "xml", "xpath", "grpc", "ignore"]
# After the last recording of a sequence; "newest": there are no sequences
After = Literal["repeat", "cycle", "miss", "newest"]
# With which the last recording is the answer for good
SETTLED = ("repeat", "newest")
# The messages of a WebSocket that count. "server": the client's are read and ignored;
# "both": the client's must come as recorded
Messages = Literal["both", "server"]
PLAIN = ("method", "scheme", "host", "port", "path")

Base = tuple[Hashable, ...]
Parts = dict[Hashable, Hashable]


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names of fields are lower case. `ignored_query` may have *."""

    method: bool = True
    scheme: bool = True
    host: bool = True
    port: bool = True
    path: bool = True
    query: Query = "exact"
    ignored_query: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    body: Body = "raw"
    paths: tuple[str, ...] = ()              # of "jsonpath", "xpath": compared parts
    regexes: tuple[str, ...] = ()            # of "regex": likewise, their groups
    ignored_paths: tuple[str, ...] = ()      # of the kinds of JSON, and of "grpc"
    ignored_form: tuple[str, ...] = ()
    descriptors: str = ""                    # of "grpc": a file, and its digest
    descriptors_digest: bytes = b""


class Route(Selection, frozen=True, kw_only=True, omit_defaults=True):
    """`lane` names a field of requests: those with other values of it have sequences
    and state of their own. `refresh_ids`: fields and JSONPaths with values to be made
    anew."""

    name: str = ""
    key: Key = Key()
    after: After = "repeat"
    messages: Messages = "both"
    lane: str = ""
    refresh: tuple[str, ...] = ()            # "dates", "cookies"
    refresh_ids: tuple[str, ...] = ()
