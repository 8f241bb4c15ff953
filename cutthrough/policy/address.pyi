NOT_PUBLIC_V4: tuple[str, ...]
NOT_PUBLIC_V6: tuple[str, ...]

def is_public_address(text: str) -> bool: ...
