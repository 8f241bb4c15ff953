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


def loaded(made):
    """A matcher with the recordings, which must be all."""
    matcher = Matcher()
    for number, one in enumerate(made, 1):
        assert isinstance(one, Recording), one
        matcher.add(msgspec.structs.replace(one, number=number))
    return matcher


def answers(data, *requests):
    """The bodies, and None for a miss."""
    matcher = loaded(read_simulation(data))
    found = [matcher.match(one) for one in requests]
    return [one.recording.response.body.decode() if isinstance(one, Match) else None
            for one in found]


def delay(pattern, ms, method=""):
    return {"urlPattern": pattern, "delay": ms, "httpMethod": method}


def globals_of(*fixed, random=()):
    return {"globalActions": {"delays": list(fixed), "delaysLogNormal": list(random)}}
