from cutthrough.config.origins import Origin as Row

class Origin:
    name: str
    def __init__(self, source: Row) -> None: ...
