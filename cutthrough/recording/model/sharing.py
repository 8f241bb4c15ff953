"""A recording's owner, and the requests that it may answer in mode `cache` (R75).

A cache knows nothing of a request but its key: the answer may be for its sender alone.
So a recording answers its own user, as a private cache does (RFC 9111 section 1). A
rule with `shared` is a shared cache: there, too, an answer stays its user's if the
request had credentials (section 3.5; squid), if it sets a cookie (Varnish), or if it
says so (`private`, `no-store`). Imported recordings are everybody's.
"""

from typing import NamedTuple

from cutthrough.exchange.redaction.redactor import CREDENTIALS
from cutthrough.recording.model.recording import Recording

# Of requests without a user: no name has a colon
ANONYMOUS = ":"
# Before the owner's name: nobody else's, whatever the rule says
PRIVATE = "!"
# Of an answer that no line of a request finds in `cache`
NOBODYS = PRIVATE + ANONYMOUS
_PRIVATE = {"private", "no-store"}


class Reader(NamedTuple):
    """The asker, and whether the rule is a shared cache."""

    owner: str
    shares: bool


def owner_of(user: str) -> str:
    return user or ANONYMOUS


def is_private(recording: Recording) -> bool:
    """Whether the answer may be meant for its user alone."""
    for name, _ in recording.request.fields:
        if name.lower() in CREDENTIALS:
            return True
    for name, value in recording.response.fields:
        match name.lower():
            case "set-cookie" if value:
                return True
            case "cache-control" if not _PRIVATE.isdisjoint(
                    directive.partition("=")[0].strip()
                    for directive in value.lower().split(",")):
                return True
    return False


def mark_of(recording: Recording) -> str:
    """The owner for `may_read`; "": it is everybody's."""
    owner = recording.owner
    return PRIVATE + owner if owner and is_private(recording) else owner


def may_read(mark: str, reader: Reader) -> bool:
    is_kept = mark.startswith(PRIVATE)
    owner = mark.removeprefix(PRIVATE)
    if is_kept and owner == ANONYMOUS:       # the user is unknown
        return False
    return not mark or owner == reader.owner or (reader.shares and not is_kept)
