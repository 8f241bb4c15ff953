"""Opens the store that the configuration, or an operator, names."""

import sys

from cutthrough.config.database import is_url
from cutthrough.exchange.packing import NoZstd, Packer
from cutthrough.storage.sqlite_store import SqliteReader, SqliteStore
from cutthrough.storage.store import Reader, Store, StoreError

MISSING = "the package psycopg is not installed: pip install 'cutthrough[postgres]'"


def close_kept() -> None:
    """Closes the readers that `keep` of `open_reader` left open."""
    if (module := sys.modules.get("cutthrough.storage.postgres")) is not None:
        module.close_kept()


def open_store(database: str, count: int, most_bytes: int, age_s: float,
               program: str = "", *, compress: bool = False) -> Store:
    """For the writer; made if it does not exist. `database`: a path, or a URL. Bounds
    of 0 are none. `program`: the owner of the rows; "": they are imported.
    `compress`: bodies, in zstd. Raises OSError and StoreError."""
    try:
        packer = Packer() if compress else None
    except NoZstd as error:
        raise StoreError(str(error)) from None
    if not is_url(database):
        return SqliteStore(database, count, most_bytes, age_s, packer)
    # Imported here, because most configurations have a file
    try:
        from cutthrough.storage.postgres_store import PostgresStore
    except ImportError:
        raise StoreError(MISSING) from None
    return PostgresStore(database, count, most_bytes, age_s, program, packer)


def open_reader(database: str, *, keep: bool = False) -> Reader:
    """`keep`: a connection to a server outlives the reader, for the next one. Raises
    StoreError; NoStore: nothing has been captured there yet."""
    if not is_url(database):
        return SqliteReader(database)
    try:
        from cutthrough.storage.postgres_store import PostgresReader
    except ImportError:
        raise StoreError(MISSING) from None
    return PostgresReader(database, keep=keep)
