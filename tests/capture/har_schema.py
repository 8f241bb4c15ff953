"""HAR 1.2 as a JSON Schema, from the text of the specification.

http://www.softwareishard.com/blog/har-12-spec/ names each object's fields, their types,
and which are optional. A key of ours begins with an underscore, as it demands.
"""

from typing import Any

TEXT = {"type": "string"}
TRUTH = {"type": "boolean"}
COUNT = {"type": "integer", "minimum": -1}      # -1: the information is not available
# ISO 8601: YYYY-MM-DDThh:mm:ss.sTZD
DATE = {"type": "string", "pattern":
        r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+([+-]\d\d:\d\d|Z)$"}
MS = {"type": "number", "minimum": 0}
MAYBE_MS = {"type": "number", "minimum": -1}    # -1: the timing does not apply


def thing(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*required],
            "properties": {**required, **optional, "comment": TEXT},
            "patternProperties": {"^_": {}}, "additionalProperties": False}


def many(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one}


PAIR = thing({"name": TEXT, "value": TEXT})
COOKIE = thing({"name": TEXT, "value": TEXT}, path=TEXT, domain=TEXT, expires=DATE,
               httpOnly=TRUTH, secure=TRUTH)
POST = {**thing({"mimeType": TEXT}, text=TEXT, params=many(thing(
    {"name": TEXT}, value=TEXT, fileName=TEXT, contentType=TEXT))),
    "oneOf": [{"required": ["text"]}, {"required": ["params"]}]}
REQUEST = thing({
    "method": TEXT, "url": TEXT, "httpVersion": TEXT, "cookies": many(COOKIE),
    "headers": many(PAIR), "queryString": many(PAIR), "headersSize": COUNT,
    "bodySize": COUNT}, postData=POST)
CONTENT = thing({"size": COUNT, "mimeType": TEXT}, compression={"type": "integer"},
                text=TEXT, encoding=TEXT)
RESPONSE = thing({
    "status": {"type": "integer"}, "statusText": TEXT, "httpVersion": TEXT,
    "cookies": many(COOKIE), "headers": many(PAIR), "content": CONTENT,
    "redirectURL": TEXT, "headersSize": COUNT, "bodySize": COUNT})
TIMINGS = thing({"send": MS, "wait": MS, "receive": MS}, blocked=MAYBE_MS,
                dns=MAYBE_MS, connect=MAYBE_MS, ssl=MAYBE_MS)
ENTRY = thing({
    "startedDateTime": DATE, "time": MS, "request": REQUEST, "response": RESPONSE,
    "cache": thing({}), "timings": TIMINGS},
    pageref=TEXT, serverIPAddress=TEXT, connection=TEXT)
PROGRAM = thing({"name": TEXT, "version": TEXT})
SCHEMA = {"type": "object", "required": ["log"], "additionalProperties": False,
          "properties": {"log": thing(
              {"version": {"const": "1.2"}, "creator": PROGRAM, "entries": many(ENTRY)},
              browser=PROGRAM, pages={"type": "array"})}}
