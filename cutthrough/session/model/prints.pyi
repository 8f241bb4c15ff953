from collections.abc import Container

from cutthrough.policy.source import Policy

NAMES: dict[str, int]

def prints_wanted(
    shown: bool, has_hook: bool, codes: Container[str], policy: Policy | None
) -> int: ...

class Prints:
    ja4: bytes | None
    ja3: bytes | None
    ja4_r: bytes | None
    ja4_o: bytes | None
    ja4_ro: bytes | None
    http2: bytes | None
    def texts(self) -> dict[str, str]: ...
