"""A stream of endings: lines of the access log, as server-sent events."""

import asyncio
import re

# Between two signs of life
HEARTBEAT_S = 15.0
# A quotation mark in a value is escaped, so this is no part of one
_URL = re.compile(rb'(,"url":"https://[^/?#"]*)[^"]*')


async def next_batch(queue: "asyncio.Queue[bytes]", with_paths: bool) -> bytes:
    try:
        lines = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
    except TimeoutError:
        return b": keep-alive\n\n"
    return b"".join(b"data: %s\n\n" % (line if with_paths else without_path(line))
                    for line in lines.splitlines())


def without_path(line: bytes) -> bytes:
    """A line of the log; of an opened request the URL has host and port alone (R81)."""
    if b',"intercepted":true' not in line:
        return line
    return _URL.sub(rb"\1", line, count=1)
