"""Reads a file of another program into the database: an HTTP Archive, or a dump of
mitmproxy. Its first bytes show its kind, and its compression.

An exchange with the begin and identifier of a row in the database is not added again,
so a file can be read twice. Imported rows are like captured ones: their words are
indexed, and the writer's bounds apply to them.
"""

import contextlib
import resource
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.formats.imported import (
    Exchange,
    NotImported,
    OtherProtocol,
    make_redactor,
    make_row,
)
from cutthrough.exchange.formats.reader import read
from cutthrough.exchange.formats.tnetstring import Readable
from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.storage.store import NoRoom, NotNow, Store, StoreError
from cutthrough.storage.stores import open_reader, open_store

# Rows of a transaction. They are few, because the writer of a running proxy waits for
# its end
BATCH = 100
# Reasons that are given
MOST_REASONS = 20
INDEX_ROWS = 500
# Bytes of address space of a program that imports files of MOST_FILE bytes
MOST_MEMORY = 4 << 30


@dataclass
class Result:
    added: int = 0
    known: int = 0                           # were there already
    refused: int = 0
    reasons: list[str] = field(default_factory=list)     # of the first ones
    notes: list[str] = field(default_factory=list)       # of entries not whole
    others: Counter[str] = field(default_factory=Counter)    # of no HTTP, by their kind
    most_reasons: int = MOST_REASONS


def import_file(file: Readable, path: str, name: str = "", client: str = "", *,
                keep_credentials: bool = False, keep: bool = False,
                most_reasons: int = MOST_REASONS) -> Result:
    """Adds the exchanges of `file` to the database at `path`, which is made if it does
    not exist, and logs the import in it: before the first row, and how many there are
    after each batch, so that one that is killed is logged too. `keep`: see open_reader.

    Raises NotImported if the file is of neither kind, or is too much for this process;
    and OSError, StoreError."""
    redactor = make_redactor(keep_credentials=keep_credentials)
    result = Result(most_reasons=most_reasons)
    rows = make_rows(read(file, redactor), redactor, result)
    try:
        batch = list(islice(rows, BATCH))    # a file of neither kind makes no database
        write(batch, rows, path, name, client, result, keep=keep)
    except MemoryError:
        raise NotImported(
            f"takes more memory than this process may have; {result.added} imported"
            ) from None
    return result


def bound_memory(most: int) -> None:
    """Bounds this process, for good, because an archive of empty lists, for one,
    becomes 24 times as large. If the process has more already, it stays as it is: a
    build with sanitizers maps terabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    if pages * resource.getpagesize() >= most:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def write(batch: list[tuple[Any, ...]], rows: Iterator[tuple[Any, ...]], path: str,
          name: str, client: str, result: Result, *, keep: bool) -> None:
    store = open_store(path, 0, 0, 0)
    try:
        store.open()
        with contextlib.closing(open_reader(path, keep=keep)) as reader:
            entry = reader.log("import", name, 0, client)
            while batch:
                add(store, batch, result)
                reader.correct(entry, result.added)
                batch = list(islice(rows, BATCH))
        while store.index(INDEX_ROWS):
            pass
    finally:
        store.close()


def add(store: Store, rows: list[tuple[Any, ...]], result: Result) -> None:
    """Together; row by row if the store refuses that, and one that it refuses then
    costs itself alone (R71)."""
    try:
        added = store.write(rows)
    except (NotNow, NoRoom):
        raise
    except StoreError:
        if len(rows) > 1:
            for row in rows:
                add(store, [row], result)
        else:
            refuse(result, "an exchange has what the database cannot hold")
        return
    result.added += added
    result.known += len(rows) - added


def show_result(result: Result) -> dict[str, Any]:
    """As the admin listener has it."""
    return {"imported": result.added, "known": result.known, "refused": result.refused,
            "reasons": result.reasons, "notes": result.notes,
            "others": dict(result.others)}


def show_others(others: Mapping[str, int]) -> str:
    """How many entries are no exchanges, by their kinds; "": none."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(others.items()))
    return f"{sum(others.values())} of other protocols ({kinds})" if kinds else ""


def refuse(result: Result, reason: str) -> None:
    result.refused += 1
    if len(result.reasons) < result.most_reasons:
        result.reasons.append(reason)


def make_rows(exchanges: Iterator[Exchange | NotImported], redactor: Redactor,
              result: Result) -> Iterator[tuple[Any, ...]]:
    """The rows; an exchange that cannot be one is counted."""
    for number, exchange in enumerate(exchanges):
        try:
            if isinstance(exchange, NotImported):
                raise exchange
            row = make_row(exchange, redactor)
        except OtherProtocol as error:
            result.others[error.kind] += 1
        except NotImported as error:
            place = "" if error is exchange else f"exchange {number}: "
            refuse(result, f"{place}{error}")
        except MemoryError:
            raise
        except Exception as error:           # whatever it is: of this exchange (R71)
            refuse(result, f"exchange {number}: {reason_of(error)}")
        else:
            for note in exchange.notes if isinstance(exchange, Exchange) else ():
                if len(result.notes) < result.most_reasons:
                    result.notes.append(f"exchange {number}: {note}")
            yield row
