"""The queries of the admin listener, and how their answers travel.

    Query  ──>  a process of its own (query_process)  ──>  Answer, pieces, b""

Each is a frame: four bytes of length, little endian, and a payload. A query and an
Answer are JSON; the pieces of the content are bytes; an empty piece ends it. The bytes
of a file to be imported follow their query without frames, because it has their number.
"""

from typing import Annotated, Literal

import msgspec

from cutthrough.storage.settings import Settings

# Bytes of a frame; so many, because a request's body in base64 is the longest query
MOST_FRAME = 16 << 20
# Rows of one answer
MOST_ROWS = 5000
# Bytes of a file to be imported. The process that reads it took 281 MiB for a HAR of 57
# with 2900 entries, 500 MiB for one with 94 191. `cutthrough flows import` takes more
MOST_IMPORT = 64 << 20
# Bytes of address space of that process
MOST_MEMORY = 1 << 30

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class QueryError(Exception):
    """A query without an answer: the reason, and the status of HTTP."""

    def __init__(self, reason: str, status: int = 503) -> None:
        super().__init__(reason)
        self.status = status


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to be sent through the proxy, as a client of it."""

    url: str
    method: str = "GET"
    fields: tuple[tuple[str, str], ...] = ()
    body: bytes = b""                        # in JSON: base64
    user: str = ""                           # of the proxy; "": no credentials
    password: str = ""


class Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`verb` says which of the other fields count."""

    verb: Literal["list", "watch", "show", "request", "response", "messages", "har",
                  "delete", "mark", "send", "import", "copy", "diff", "open", "tail",
                  "ended", "reads", "hosts", "slowest", "failures", "statistics",
                  "curl"]
    database: str                            # a path, or a URL with its password
    client: str = ""                         # the reader, for the log of reads
    filter: str = ""
    all: bool = False                        # of "delete": without number and filter
    words: str = ""                          # full-text search, or a command of curl
    number: Number = 0                       # of one flow; 0: all that pass
    other: Number = 0                        # of the flow to compare with
    form: Literal["curl", "fetch", "httpx", "json"] = "curl"     # of a copy
    view: str = ""                           # of a body or messages; "": as they are
    before: Number = 0                       # flows below this one, newest first
    after: Number | None = None              # flows above this one, oldest first
    limit: int = 100
    tag: str | None = None
    comment: str | None = None
    # Of a file, or of the exchanges in hand that are meant, and not the database's
    size: Annotated[int, msgspec.Meta(ge=0, le=MOST_IMPORT)] = 0
    name: str = ""                           # of the file or of the exchange
    settings: Settings | None = None         # by which these are redacted
    proxy: tuple[str, int] = ("", 0)
    authorities: str = ""                    # in PEM, beside the system's
    request: Request | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The head of an answer; its content follows."""

    status: int = 200                        # of HTTP
    kind: str = "application/json"           # media type
    name: str = ""                           # of a file to be saved; "": none
    last: int = 0                            # of "watch": the last flow looked at
    found: int = 0                           # flows in the content
