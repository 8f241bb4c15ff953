from mmap import mmap

def create(fd: int) -> mmap: ...

class TicketKeys:
    age: int
    names: list[bytes]
    def __init__(self, memory: mmap | bytearray | None = None) -> None: ...
    def rotate(self) -> None: ...

MAGIC: bytes
