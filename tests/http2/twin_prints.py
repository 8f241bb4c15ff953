"""The obvious twin of `http2.fingerprint`: slices, and whole items if there is room."""

MOST_SETTINGS, MOST_PRIORITIES = 128, 96
ITEM_OF_SETTINGS, ITEM_OF_PRIORITIES = 17, 28      # as long as one can be


def take(items: list[str], mark: str, most: int, item: int) -> str:
    text = ""
    for one in items:
        if len(text) + item > most:
            break
        text += mark * bool(text) + one
    return text


def number(data: bytes) -> int:
    return int.from_bytes(data)


def read_print(data: bytes) -> str:
    data = data[24:]
    first, window, priorities = None, 0, []
    while len(data) >= 9:
        size, kind, flags = number(data[:3]), data[3], data[4]
        stream = number(data[5:9])
        payload, data = data[9:9 + size], data[9 + size:]
        if kind == 1:
            break
        if kind == 4 and first is None and not flags & 1:
            first = [f"{number(payload[i:i + 2])}:{number(payload[i + 2:i + 6])}"
                     for i in range(0, len(payload) // 6 * 6, 6)]
        if kind == 8 and size == len(payload) == 4 and stream == 0 and not window:
            window = number(payload) & 0x7fffffff
        if kind == 2 and size == len(payload) == 5:
            priorities.append(
                f"{stream & 0x7fffffff}:{payload[0] >> 7}:"
                f"{number(payload[:4]) & 0x7fffffff}:{payload[4] + 1}")
    return "|".join((
        take(first or [], ";", MOST_SETTINGS, ITEM_OF_SETTINGS), str(window or "00"),
        take(priorities, ",", MOST_PRIORITIES, ITEM_OF_PRIORITIES) or "0", ""))
