from cutthrough.log.lines import Line

class FormatLine(Line):
    def __init__(self, text: str, worker: int) -> None: ...
