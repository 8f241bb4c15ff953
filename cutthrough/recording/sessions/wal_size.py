"""How long SQLite's write-ahead log has become since the last checkpoint: an estimate,
because Python's sqlite3 does not say it."""

from cutthrough.storage.sqlite_store import PAGE_BYTES
from cutthrough.tape.batch import Batch

# The writer makes a checkpoint when the log is so long; if it does not come to that,
# SQLite does, in a transaction
CHECKPOINT_BYTES = 24 << 20
AUTOCHECKPOINT_PAGES = (64 << 20) // PAGE_BYTES
# Of each transaction: of the last row, of `turns`, of counts
PAGES_OF_TURN = 4


class WalSize:
    def __init__(self) -> None:
        self._pages = 0

    def add(self, pages: int, pruned: bool) -> None:
        """Counts the pages of a transaction. `pruned`: it has deleted about as much as
        it has written."""
        self._pages += PAGES_OF_TURN + (2 * pages if pruned else pages)

    def clear(self) -> None:
        self._pages = 0

    @property
    def is_long(self) -> bool:
        return self._pages * PAGE_BYTES >= CHECKPOINT_BYTES


def pages_of(rows: Batch) -> int:
    """The pages that these rows fill. Large rows leave a part of each unused."""
    count = len(rows)
    if not count:
        return 0
    each = rows.n_bytes // count + 1
    if each > PAGE_BYTES:
        return count * (each // PAGE_BYTES + 1)
    return count // (PAGE_BYTES // each) + 1
