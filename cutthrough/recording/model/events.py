"""Server-sent events of an answer, each with the time of its completion.

They are read by the HTML standard (section 9.2.6): an event is left out if it has no
data or is cut by the end of the stream. If a body has a coding, nothing of it is read.
"""

import re
from bisect import bisect_left
from itertools import accumulate

from cutthrough.recording.model.recording import Message, Response

_LINE = re.compile(rb"([^\r\n]*+)(\r\n|\n|\r|\Z)")
_MARK = b"\xef\xbb\xbf"


def read_events(response: Response) -> list[Message]:
    """[] if it is no stream of events."""
    kind = response.field("content-type").partition(";")[0].strip().lower()
    if kind != "text/event-stream" or response.field("content-encoding"):
        return []
    body = response.body
    ends = list(accumulate(len(chunk.data) for chunk in response.chunks))
    events: list[Message] = []
    data: list[bytes] = []
    event, identifier = "", ""
    at = len(_MARK) if body.startswith(_MARK) else 0
    for match in _LINE.finditer(body, at):
        if not match[2]:                     # a line without its end
            break
        name, _, value = match[1].partition(b":")
        value = value.removeprefix(b" ")
        if match[1]:
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode(errors="replace")
            elif name == b"id" and b"\0" not in value:
                identifier = value.decode(errors="replace")
            continue
        if data:
            # The end of the line's text: an LF behind a CR may come later
            at_us = response.chunks[bisect_left(ends, match.end(1) + 1)].at_us
            events.append(Message(at_us, False, "event", b"\n".join(data),
                                  event=event or "message", id=identifier))
        data, event = [], ""
    return events
