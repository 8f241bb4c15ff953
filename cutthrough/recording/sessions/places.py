"""Opens the sessions that the configuration, or an operator, names."""

from pathlib import Path

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.session import AnySessions
from cutthrough.storage.store import StoreError
from cutthrough.storage.stores import MISSING


def open_sessions(directory: str | Path, url: str = "", *, may_make: bool = True
                  ) -> AnySessions:
    """`url`: of a PostgreSQL that has them; "": they are files of the directory, which
    is made if it does not exist. `may_make`: the database's tables. Raises OSError and
    StoreError."""
    if not url:
        return Sessions(directory)
    # Imported here, because most sessions are files
    try:
        from cutthrough.recording.sessions.postgres import PostgresSessions
    except ImportError:
        raise StoreError(MISSING) from None
    return PostgresSessions(url, directory, may_make=may_make)
