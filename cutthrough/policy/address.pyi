SPECIAL_V4: tuple[tuple[str, str], ...]
SPECIAL_V6: tuple[tuple[str, str], ...]

def class_of(address: str | bytes) -> str: ...
