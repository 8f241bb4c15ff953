from collections.abc import Iterable
from typing import Any

from cutthrough.capture.batch import Batch
from cutthrough.capture.redaction import Redactor
from cutthrough.capture.taped import Taped

COLUMNS: tuple[str, ...]
END: int

class Assembly:
    evicted: int
    taped: list[Taped]
    def __init__(self, redactor: Redactor) -> None: ...
    def rows(self, records: Iterable[Any]) -> Batch: ...
    def parts(self, worker: int, request: int, whole: bool
              ) -> tuple[int, list[tuple[int, bytes]]] | None: ...
