"""docs/accesslog.schema.json: the JSON line of the access log and of /events, as a JSON
Schema. Its words come from our own tables. `python -m cutthrough.tools.log_schema`
prints it; a test holds the committed file to it, and every line that a test reads.
"""

import json
from typing import Any

from cutthrough.outcome import TABLE as OUTCOMES

MS = {"type": "number", "minimum": 0}
COUNT = {"type": "integer", "minimum": 0}
# In the order in which they follow each other
PHASES = {
    "head_ms": "from the first byte of the request to the end of its head",
    "auth_ms": "until the credentials were known to be right or wrong; null: there "
               "were none, or the head was refused before",
    "dns_ms": "the look-up of the name, also from the cache; null: an address was "
              "asked for, or a pooled connection taken",
    "connect_ms": "until there was a connection; null: none was dialled",
    "first_byte_ms": "from the connection to the first byte of the response, the "
                     "request's body included; null: a tunnel, or no connection",
}
REQUIRED: dict[str, dict[str, Any]] = {
    "time": {"type": "string", "description": "the end, in UTC",
             "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
    "id": {"type": "string", "pattern": r"^\d+-\d+$",
           "description": "of the request; never given again"},
    "client": {"type": "string", "description": "its address; - for none"},
    "user": {"type": ["string", "null"], "maxLength": 256,
             "description": "whose credentials were right"},
    "kind": {"enum": ["request", "tunnel"],
             "description": "tunnel: bytes went both ways unread; a CONNECT that was "
                            "refused is a request"},
    "method": {"type": "string", "pattern": "^[!-~]{1,32}$",
               "description": "- where it could not be read"},
    "host": {"type": ["string", "null"],
             "description": "canonical; null: none was read"},
    "port": {"type": "integer", "minimum": 0, "maximum": 65535,
             "description": "0: none was read"},
    "url": {"type": "string", "description": "host:port of a CONNECT"},
    "status": {"type": "integer", "minimum": 0, "maximum": 999,
               "description": "that the client got; 0: no response was begun"},
    "reason": {"enum": [row.label for row in OUTCOMES],
               "description": "docs/endings.md says what each means"},
    "peer": {"type": ["string", "null"],
             "description": "the origin's address, or the last that was dialled"},
    "bytes_up": COUNT | {"description": "from the client to the origin"},
    "bytes_down": COUNT | {"description": "to the client"},
    **{name: {"description": text, "type": ["number", "null"], "exclusiveMinimum": 0}
       for name, text in PHASES.items()},
    "total_ms": MS | {"description": "from the first byte of the request to the end; "
                                     "of a tunnel it contains its life"},
    "path": {"enum": ["copy", "splice"]},
    "worker": COUNT,
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "tried_user": {"type": "string", "maxLength": 256,
                   "description": "the name in credentials that are wrong, or were not "
                                  "verified; user is null then"},
    "client_rtt_ms": MS | {"description": "of a tunnel, smoothed, at the end"},
    "client_retransmits": COUNT | {"description": "of a tunnel: segments sent again"},
    "origin_rtt_ms": MS, "origin_retransmits": COUNT,
    "rule": {"type": ["string", "null"],
             "description": "of the policy; default: none matched"},
    "report": {"const": True, "description": "a rule would have refused what passed"},
    "upgrade": {"const": True,
                "description": "it offered to upgrade: UPGRADE to rules"},
    "hook": {"type": "string", "description": "the words of the policy's hook"},
    "hook_ms": MS | {"description": "the wait for the hook, a phase after auth_ms; not "
                                    "there: its decision was remembered"},
}


def schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cutthrough: a line of the access log in JSON, an event of /events",
        "description": "Made by `make docs` from cutthrough/tools/log_schema.py. Times "
                       "are durations in milliseconds. A phase begins where the one "
                       "before it ends; a phase that was not begun is null. The phase "
                       "in which the request ended counts to that end.",
        "type": "object",
        "properties": REQUIRED | OPTIONAL,
        "required": list(REQUIRED),
        "additionalProperties": False,
        "if": {"required": ["tried_user"]},
        "then": {"properties": {"user": {"type": "null"}}},
    }


def render() -> str:
    """Returns the file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(render(), end="")
