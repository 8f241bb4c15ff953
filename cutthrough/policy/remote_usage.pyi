import mmap

from cutthrough.policy.shared_table import SharedTable

class RemoteUsage(SharedTable):
    def __init__(self, memory: mmap.mmap | None = None, slot: int = 0) -> None: ...
    def restart(self) -> None: ...
    def tag(self, name: bytes) -> bytes: ...
    def collect(
        self, begin: int, now_s: int
    ) -> tuple[int, list[tuple[bytes, int, int, int, int]]]: ...
    def book(
        self,
        tag: bytes,
        connections: int,
        tunnels: int,
        day_bytes: int,
        spent: int,
        now_us: int,
        now_s: int,
    ) -> None: ...
    def forget(self) -> None: ...
