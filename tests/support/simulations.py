"""Simulations of Hoverfly, and the answers that are imported of them."""

import json

import msgspec

from cutthrough.recording.formats.hoverfly import read_simulation
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.model.recording import Recording


def simulation(*pairs, schema="v5.2", **more):
    return json.dumps({"data": {"pairs": list(pairs), **more},
                       "meta": {"schemaVersion": schema}}).encode()


def pair(request, **response):
    return {"request": request, "response": {"status": 200, "body": "ok", **response}}


def exact(value, **more):
    return [{"matcher": "exact", "value": value, **more}]


def loaded(recordings):
    """A matcher with the recordings, which must be all."""
    matcher = Matcher()
    for number, recording in enumerate(recordings, 1):
        assert isinstance(recording, Recording), recording
        matcher.add(msgspec.structs.replace(recording, number=number))
    return matcher


def answers(data, *requests):
    """The bodies, and None for a miss."""
    matcher = loaded(read_simulation(data))
    matches = [matcher.match(request) for request in requests]
    return [match.recording.response.body.decode() if isinstance(match, Match) else None
            for match in matches]


def delay(pattern, ms, method=""):
    return {"urlPattern": pattern, "delay": ms, "httpMethod": method}


def globals_of(*fixed, random=()):
    return {"globalActions": {"delays": list(fixed), "delaysLogNormal": list(random)}}
