from cutthrough.log.jsonline import Line

class FormatLine(Line):
    def __init__(self, text: str, worker: int) -> None: ...
