from cutthrough.session.client import Journal

class Tracer(Journal):
    def __init__(self, first: Journal, worker: int) -> None: ...
