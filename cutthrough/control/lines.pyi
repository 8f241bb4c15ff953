from cutthrough.session.client import Client as Client

class Line:
    worker: int

class JsonLine(Line):
    def __init__(self, worker: int) -> None: ...
