"""The time to find one of 100 000 recordings: `bench micro recording`.

All are of one host and path, the worst case for an index. The queries are asked in
random order, so that what they touch is not in the cache.
"""

from __future__ import annotations

import functools
import json
import random
import time

from bench.micro import Micro
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Recording, Request, Response

COUNT = 100_000
ASKED = 20_000


def make_request(query: str = "", body: bytes = b"") -> Request:
    return Request(method="POST" if body else "GET", scheme="https",
                   host="api.example.com", port=443, path="/v1/items", query=query,
                   body=body, fields=(("Accept", "*/*"), ("User-Agent", "bench/1")))


def by_query(number: int, more: str = "") -> Request:
    """Three keys; their names come in 30 sets."""
    return make_request(
        f"page={number % 977}&user={number // 977}&f{number % 30}=x{more}")


def by_body(number: int, more: str = "") -> Request:
    """A question to a model, of some 430 bytes."""
    return make_request(body=json.dumps({
        "model": "a-model-of-some-size", "temperature": 0.2,
        **({"seed": 7} if more else {}),
        "messages": [{"role": "system", "content": "You answer briefly. " * 10},
                     {"role": "user", "content": f"What is {number}?"}]}).encode())


KEYS = {
    "exact": (by_query, Key(), ""),
    "subset": (by_query, Key(query="subset"), "&trace=1&at=2"),
    "partial-json": (by_body, Key(body="partial_json"), "more"),
    "json": (by_body, Key(body="json"), ""),
}


@functools.cache
def _filled(name: str) -> tuple[Matcher, list[Request]]:
    make, key, more = KEYS[name]
    matcher = Matcher([Route(key=key)])
    answer = Response(status=200)
    for number in range(COUNT):
        matcher.add(Recording(number=number + 1, request=make(number), response=answer))
    draw = random.Random(1)
    requests = [make(draw.randrange(COUNT), more) for _ in range(ASKED)]
    assert all(isinstance(matcher.match(request), Match) for request in requests)
    return matcher, requests


def clock(name: str, n: int) -> float:
    matcher, requests = _filled(name)
    match = matcher.match
    taken, left = 0.0, n
    while left > 0:
        batch = requests[:left]
        begun = time.perf_counter()
        for request in batch:
            match(request)
        taken += time.perf_counter() - begun
        left -= len(batch)
    return taken


BENCHES = [
    Micro(f"recording-{name}", f"one of {COUNT} recordings found, by {name}",
          functools.partial(clock, name)) for name in KEYS]
