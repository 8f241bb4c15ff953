WAYS: dict[str, int]
