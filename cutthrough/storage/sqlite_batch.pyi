import sqlite3
from typing import Self

from cutthrough.tape.batch import Batch

class BatchTable:
    def __new__(cls, base: sqlite3.Connection, width: int) -> Self: ...
    def insert(self, statement: str, batch: Batch) -> int: ...

def names_of(width: int) -> list[str]: ...
