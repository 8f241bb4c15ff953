from cutthrough.session.model.client import Client as Client

class Line:
    worker: int
    @property
    def remembered(self) -> int: ...

class JsonLine(Line):
    def __init__(self, worker: int) -> None: ...
