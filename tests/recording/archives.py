"""Archives of HTTP that name a request, and what is imported of them."""

import io
import json

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats.exchanges import read_exchanges


def entry(number, request=None, response=None, **more):
    return {"startedDateTime": "2026-01-01T00:00:00Z", "_id": f"entry-{number}",
            "request": {"method": "POST", "url": f"http://a.example/{number}",
                        **(request or {})},
            "response": {"status": 200, "content": {"text": "ok"}, **(response or {})},
            **more}


def archive(*entries):
    return json.dumps({"log": {"entries": entries}}).encode()


def imported(*entries):
    """The recordings, and the named losses."""
    found = list(read_exchanges(io.BytesIO(archive(*entries))))
    return ([one for one in found if not isinstance(one, NotImported)],
            [one for one in found if isinstance(one, NotImported)])
