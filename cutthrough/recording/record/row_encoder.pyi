from typing import Self

from cutthrough.recording.model.masking import Masker
from cutthrough.tape.batch import Batch
from cutthrough.tape.ring_exchange import RingExchange

FAILED: str

class RowEncoder:
    def __new__(cls, masker: Masker, batch: Batch) -> Self: ...
    error: Exception | None
    def add(self, exchange: RingExchange) -> str | None: ...
