from typing import Self

from cutthrough.recording.model.masking import Masker
from cutthrough.tape.batch import Batch
from cutthrough.tape.taped import Taped

FAILED: str

class RowMaker:
    def __new__(cls, masker: Masker, batch: Batch) -> Self: ...
    error: Exception | None
    def add(self, exchange: Taped) -> str | None: ...
