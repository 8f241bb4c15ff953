from collections.abc import Iterable
from typing import Any

from cutthrough.capture.batch import Batch
from cutthrough.capture.failures import Failures
from cutthrough.capture.taped import Taped
from cutthrough.exchange.redaction.redactor import Redactor

COLUMNS: tuple[str, ...]
END: int

class Assembly:
    evicted: int
    taped: list[Taped]
    failures: Failures
    def __init__(self, redactor: Redactor) -> None: ...
    def rows(self, records: Iterable[Any]) -> Batch: ...
    def give(self) -> Batch: ...
    def leave_out(self, records: list[Any]) -> Batch: ...
    def parts(self, worker: int, request: int, whole: bool
              ) -> tuple[int, list[tuple[int, bytes]]] | None: ...
