from cutthrough.session.model.client import Journal

class Tee(Journal):
    def __init__(self, first: Journal, second: Journal) -> None: ...

class Tracer(Journal):
    def __init__(self, first: Journal, worker: int) -> None: ...
