"""The session of a request, if requests choose: by a field's value, or by the user.

If a request has neither, its session is the session in force.
"""

import hashlib
import re

import msgspec

from cutthrough.recording.sessions.session import check_name, is_name

_OTHER = re.compile(r"[^A-Za-z0-9._-]")
MOST_READABLE = 80


class Choice(msgspec.Struct, frozen=True):
    field: str = ""                          # in lower case; "": no field
    by_user: bool = False

    @property
    def is_free(self) -> bool:
        """Requests may choose."""
        return self.by_user or self.field != ""

    def of(self, head: str, user: str) -> str:
        """The session's name of a request with this head; "" if it is the session in
        force. Raises SessionError if the field has no name."""
        if self.field and (named := find_field(head, self.field)):
            return check_name(named)
        return name_of_user(user) if self.by_user and user else ""


def find_field(head: str, field: str) -> str:
    """The value of the first field of this name; "" if there is no such field."""
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == field:
            return value.strip(" \t")
    return ""


def name_of_user(user: str) -> str:
    """A session's name, different for each user."""
    if is_name(user):
        return user
    mark = hashlib.blake2b(user.encode(), digest_size=8).hexdigest()
    readable = _OTHER.sub("_", user[:MOST_READABLE]).lstrip(".-")
    return f"{readable or '_'}-{mark}"
