from cutthrough.capture.batch import Batch
from cutthrough.capture.taped import Taped
from cutthrough.recording.masking import Masker

class RowMaker:
    def __init__(self, masker: Masker, batch: Batch) -> None: ...
    def add(self, one: Taped) -> bool: ...
