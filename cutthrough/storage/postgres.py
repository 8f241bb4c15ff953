"""Connections to PostgreSQL, and the tables that programs of a fleet share there.

If the server cannot be reached, StoreAway is raised; the next call connects again. An
error has no more of the server's text than its first line, or the error's name: the
rest quotes rows (R37).
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from cutthrough.config.database import show_database
from cutthrough.storage.store import NoStore, NotNow, StoreAway, StoreError

# Defaults of the URL's parameters. The loss of a host is noticed in 30 s
DEFAULTS = {"connect_timeout": "5", "application_name": "cutthrough",
            "keepalives_idle": "15", "keepalives_interval": "5",
            "keepalives_count": "3", "tcp_user_timeout": "30000"}
# A program that is stopped within a transaction keeps its locks until the second bound;
# one of a lost host, in the middle of a COPY too, for 30 s
SESSION = ("SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '20s'; "
           "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; "
           "SET tcp_keepalives_count = 3")
# Most seconds of one answer: for the writer (a supervisor gives it 10 s to end), and
# for readers (a search may look at all rows)
ANSWER_S, READER_ANSWER_S = 8.0, 60.0
# Of the lock under which the tables are made and changed: any number
MAKING = 0x63757474


class Tables(NamedTuple):
    """`statements` make a schema of this name, with the table `state`, whose column
    `version` has this version. `missing`: the error for a database without them.
    `additions`: a statement that adds what programs of this version may lack.
    `migrations`: by an earlier version, the statements that make the next of it."""

    schema: str
    version: int
    statements: str
    missing: str
    additions: str = ""
    migrations: Mapping[int, str] = {}


class _Connection(psycopg.Connection[dict[str, Any]]):
    """Waits for a bounded time: a server that is stopped keeps connections open."""

    answer_s = ANSWER_S

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None
             ) -> Any:
        return super().wait(gen, interval, timeout or self.answer_s)


# Errors of rows, and not of the connection
REFUSED = (errors.DataError, errors.IntegrityError, UnicodeError)


class KnownRow(Exception):
    """A row is there already, or has a text that cannot be held."""


class Base:
    """A connection, made when it is needed and again after it broke."""

    def __init__(self, url: str, tables: Tables, answer_s: float, *, may_make: bool
                 ) -> None:
        self._url, self._tables = url, tables
        self.where = show_database(url)
        self._answer_s = answer_s
        self._may_make = may_make            # the tables
        self._connection = _kept.pop((url, tables.schema), None)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
        """Raises StoreError, and StoreAway; then nothing has changed, or after a
        connection that broke at the commit it is not known."""
        with self.cursor() as cursor:
            cursor.execute("BEGIN")
            yield cursor
            cursor.execute("COMMIT")

    @contextlib.contextmanager
    def cursor(self) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
        """Yields a cursor of an open connection. Raises StoreError, and StoreAway."""
        try:
            with (self._connection or self._connect()).cursor() as cursor:
                try:
                    yield cursor
                except BaseException as error:
                    if isinstance(error, (*REFUSED, KnownRow)):
                        cursor.execute("ROLLBACK")
                    else:                    # which also ends a transaction
                        self.close()
                    raise
        except REFUSED as error:
            raise StoreError(self._explain(error)) from None
        except psycopg.Error as error:
            self.close()
            raise StoreAway(self._explain(error)) from None

    def answer_within(self, seconds: float) -> None:
        """Each answer from now on."""
        self._answer_s = seconds
        if self._connection is not None:
            self._connection.answer_s = seconds

    def _connect(self) -> _Connection:
        try:
            parameters = conninfo_to_dict(self._url)
        except psycopg.ProgrammingError:     # its text has the URL
            raise NotNow(f"{self.where}: libpq cannot read the "
                         "parameters of the URL") from None
        ours = {name: value for name, value in DEFAULTS.items()
                if name not in parameters}
        connection = _Connection.connect(
            make_conninfo(self._url, **ours, client_encoding="UTF8"),
            autocommit=True, row_factory=dict_row, prepare_threshold=None)
        connection.answer_s = self._answer_s
        try:
            connection.execute(SESSION)
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _check(self, connection: _Connection) -> None:
        """Raises NotNow if the tables are not ours, or have another version."""
        if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            raise NotNow(f"{self.where}: its encoding is {encoding}, and not UTF8")
        tables = self._tables
        has_tables = _has_tables(connection, tables.schema)
        if not (has_tables or self._may_make):
            raise NoStore(f"{self.where}: {tables.missing}")
        if self._may_make and not (
                has_tables and _version_of(connection, tables) == tables.version):
            _make(connection, tables)
        version = _version_of(connection, tables)
        if version != tables.version:
            remedy = ("its next writer changes them" if version in tables.migrations
                      else f"rename the schema {tables.schema}")
            raise NotNow(f"{self.where}: has version {version} of the tables, and "
                         f"this program has {tables.version}; {remedy}")
        if self._may_make and tables.additions:
            connection.execute(tables.additions)

    def _explain(self, error: Exception) -> str:
        if isinstance(error, errors.OperationalError | errors.InternalError):
            text = error.diag.message_primary or (
                str(error).splitlines() or [""])[0].removeprefix("connection failed: ")
        else:                                # its first line may quote a value, too
            text = type(error).__name__
        return f"{self.where}: {text or 'no answer in time'}"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def keep(self) -> None:
        """Leaves the connection to the next Base of the same URL."""
        if self._connection is not None and not _kept and not self._connection.closed:
            _kept[self._url, self._tables.schema] = self._connection
            self._connection = None
        self.close()


# One connection at most: for readers of a process that answers one query after another.
# A page that shows flows as they come looks five times a second
_kept: dict[tuple[str, str], _Connection] = {}


def close_kept() -> None:
    while _kept:
        _kept.popitem()[1].close()


def _make(connection: _Connection, tables: Tables) -> None:
    """Makes the tables, or changes those of an earlier program. Of the programs that
    begin at once the first does it, and the others find it done."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
        if not _has_tables(connection, tables.schema):
            connection.execute(tables.statements)
        while statements := tables.migrations.get(_version_of(connection, tables)):
            connection.execute(statements)


def _version_of(connection: _Connection, tables: Tables) -> int:
    row = connection.execute(
        f"SELECT version FROM {tables.schema}.state").fetchone()
    return int(row["version"]) if row is not None else 0


def _has_tables(connection: _Connection, schema: str) -> bool:
    """Looks for the tables in the catalogue: to_regclass remembers a name that was not
    there a moment ago, even if another program has made it since."""
    return connection.execute(
        "SELECT FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON "
        "pg_namespace.oid = relnamespace WHERE nspname = %s AND relname = 'state'",
        (schema,)).fetchone() is not None
