from typing import Any

Source = bytes | tuple[int, int]

def read_request(
    source: Source, seen: int = 0, **limits: int
) -> dict[str, Any] | str | None: ...
def read_response(
    source: Source, seen: int = 0, **limits: int
) -> dict[str, Any] | str | None: ...
def lists_token(source: Source, name: int, token: bytes) -> bool: ...
