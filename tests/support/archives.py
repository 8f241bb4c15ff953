"""Archives of HTTP (HAR) as imports take them."""

import json


def entry(**fields):
    """The fields that every writer of HAR has."""
    return {
        "startedDateTime": "2026-03-01T12:00:00.250+01:00", "time": 15.5,
        "request": request(), "response": response(), "cache": {},
        "timings": {"send": 0.5, "wait": 10, "receive": 5}} | fields


def request(**fields):
    return {"method": "GET", "url": "https://a.test/x?y=1", "httpVersion": "HTTP/1.1",
            "cookies": [], "headers": [{"name": "Host", "value": "a.test"}],
            "queryString": [{"name": "y", "value": "1"}], "headersSize": 40,
            "bodySize": 0} | fields


def response(**fields):
    return {"status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [],
            "headers": [{"name": "Content-Type", "value": "text/plain"}],
            "content": {"size": 5, "mimeType": "text/plain", "text": "hello"},
            "redirectURL": "", "headersSize": 30, "bodySize": 5} | fields


def archive(*entries, creator="WebInspector"):
    return json.dumps({"log": {
        "version": "1.2", "creator": {"name": creator, "version": "1"}, "pages": [],
        "entries": entries}}).encode()
