from typing import Self

from cutthrough.capture.batch import Batch
from cutthrough.capture.taped import Taped
from cutthrough.recording.model.masking import Masker

class RowMaker:
    def __new__(cls, masker: Masker, batch: Batch) -> Self: ...
    def add(self, one: Taped) -> bool: ...
