"""Settings of a recorder."""

from cutthrough.storage.settings import Recordings

SETTINGS = Recordings(
    directory="", session="a", session_field="x-session", count=0, age=0, fields=(),
    query=(), json=(), body=(), hooks="", code="", url="")
