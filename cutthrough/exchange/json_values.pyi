class Paths:
    def __new__(cls, paths: tuple[tuple[str, ...], ...]) -> Paths: ...

MOST_STEPS: int

def find_values(
    data: bytes, paths: Paths | None, most: int, all_escaped: bool = False
) -> list[tuple[int, int, bool]]: ...
