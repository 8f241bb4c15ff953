NUMBERS: dict[str, int]
