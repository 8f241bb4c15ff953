from collections.abc import Iterable
from typing import Any

from cutthrough.exchange.failures import Failures
from cutthrough.exchange.redaction.redactor import Redactor
from cutthrough.tape.batch import Batch
from cutthrough.tape.ring_exchange import RingExchange

END: int

class Assembly:
    evicted: int
    to_record: list[RingExchange]
    failures: Failures
    def __init__(self, redactor: Redactor) -> None: ...
    def rows(self, records: Iterable[Any]) -> Batch: ...
    def give(self) -> Batch: ...
    def leave_out(self, records: list[Any]) -> Batch: ...
    def parts(self, worker: int, request: int, whole: bool
              ) -> tuple[int, list[tuple[int, bytes]]] | None: ...
