def render(
    label: str,
    close: bool = True,
    body: bool = True,
    known_user: bool = False,
    retry_s: int = 0,
    hint: int = 0,
) -> bytes: ...
