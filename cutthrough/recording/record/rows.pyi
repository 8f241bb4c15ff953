from typing import Self

from cutthrough.recording.model.masking import Masker
from cutthrough.tape.batch import Batch
from cutthrough.tape.taped import Taped

class RowMaker:
    def __new__(cls, masker: Masker, batch: Batch) -> Self: ...
    def add(self, exchange: Taped) -> bool: ...
