"""Requests, keys and routes, as hypothesis makes them for the matcher."""

import contextlib
import gzip
import importlib.util
import json

import msgspec
from hypothesis import strategies as st

from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.recording import Request
from tests.recording.answers import recording

LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, "", "1", "a", "{}", "[1]"])
DOCUMENTS = st.recursive(LEAVES, lambda inner: st.one_of(
    st.lists(inner, max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "0", "é"]), inner, max_size=3)),
    max_leaves=6)
BODIES = st.one_of(
    st.sampled_from([b"", b"a", b"{", b"x" * 20]),
    DOCUMENTS.map(lambda value: json.dumps(value).encode()),
    DOCUMENTS.map(lambda value: json.dumps(
        value, indent=1, ensure_ascii=False).encode()))
QUERIES = st.lists(st.sampled_from(
    ["a=1", "a=2", "b=1", "b=", "c=1", "t=1", "t=2", "%61=1", "d=+"]), max_size=4
    ).map("&".join)
OPERATIONS = [one.encode() for one in (
    '{"query": "{ a(x: 1)  b }"}', '{"query": "{ a(x: 1), b # c\\n }"}',
    '{"query": "query A { a }", "variables": {}}', '{"query": "query A { a }"}',
    '{"operationName": "A", "query": "query A { a } query B { b }"}',
    '{"query": "{ a }", "variables": {"n": 1.0}}', '[{"query": "{ a }"}]', "[]",
    '{"query": "{ a }", "variables": {"n": 2}}',
    '{"variables": {"n": 1}, "query": "{a }"}', '{"query": 1}')]
FORMS = [b"a=1&b=2", b"a=1&b=3", b"b=2&a=%31", b"a=2&a=1", b"a=1&a=2", b"t=1&a=1",
         b"a=1", b"id=7 of 9", b"id=7 of 8", b"id=8"]
GZIP = ("Content-Encoding", "gzip")


@st.composite
def make_request(draw):
    method = draw(st.sampled_from(["GET", "POST"]))
    body, fields = draw(BODIES | st.sampled_from(OPERATIONS + FORMS)), draw(FIELDS)
    coding = draw(st.sampled_from(["", "", "gzip", "cut"]))
    if coding:
        whole = gzip.compress(body, mtime=0)
        body = whole[:-3] if coding == "cut" else whole
        fields = (*fields, GZIP)
    query = draw(QUERIES)
    if draw(st.booleans()):
        query = draw(st.sampled_from([
            "query={a}", "query={+a,+}", "query={a}&variables={%22n%22:1}&a=1",
            "query={a}&variables={", "query=query+A+{a}&operationName=A"]))
    return Request(
        method=method, scheme=draw(st.sampled_from(["http", "https"])),
        host=draw(st.sampled_from(["a", "b"])), port=draw(st.sampled_from([80, 81])),
        path=draw(st.sampled_from(["/", "/x"])), query=query, body=body, fields=fields)


FIELDS = st.sampled_from([(), (("Accept", "a"),), (("accept", "b"), ("x", "y"))])
REQUESTS = make_request()
# Without the extra `recording` there are no JSONPaths
PATHS = ([(), ("$.a",), ("$.a.b",), ("$.b[*]", "$.a")]
         if importlib.util.find_spec("jsonpath") else [()])
HOW = st.one_of(
    st.sampled_from([{"body": "raw"}, {"body": "ignore"}, {"body": "graphql"},
                     {"body": "form"}, {"body": "form", "ignored_form": ("t", "b")},
                     {"body": "regex", "regexes": ("id=(.)",)},
                     {"body": "regex", "regexes": ("a", "^(.)?1")}]),
    st.sampled_from(PATHS[1:]).map(lambda paths: {"body": "jsonpath", "paths": paths})
    if PATHS[1:] else st.nothing(),
    st.builds(lambda kind, paths: {"body": kind, "ignored_paths": paths},
              st.sampled_from(["json", "partial_json"]), st.sampled_from(PATHS)))
KEYS = st.builds(
    lambda how, **more: Key(**how, **more), HOW, method=st.booleans(),
    scheme=st.booleans(), host=st.booleans(), port=st.booleans(), path=st.booleans(),
    query=st.sampled_from(["exact", "subset", "ignore"]),
    ignored_query=st.sampled_from([(), ("t",), ("t", "*a"), ("%*", "*")]),
    fields=st.sampled_from([(), ("accept",)]))
ROUTES = st.builds(
    Route, key=KEYS, hosts=st.sampled_from([(), ("a",), ("*",)]),
    paths=st.sampled_from([(), ("/",), ("/*",)]),
    methods=st.sampled_from([(), ("POST",)]), lane=st.sampled_from(["", "", "accept"]),
    after=st.sampled_from(["repeat", "cycle", "miss", "newest"]))
STATES = st.dictionaries(st.sampled_from("st"), st.sampled_from("12"), max_size=2)


def fill(requests, key):
    made = [recording(number, one) for number, one in enumerate(requests, 1)]
    matcher = Matcher([Route(key=key)])
    for one in made:
        matcher.add(one)
    return matcher, made


def number_of(found):
    return found.recording.number if isinstance(found, Match) else None


PARTS = [("method",), ("scheme",), ("host",), ("port",), ("path",), ("query",),
         ("body", "fields")]


def mixed(one, other, names):
    """One request with these parts of the other."""
    return msgspec.structs.replace(one, **{name: getattr(other, name)
                                           for name in names})


def respelt(one):
    """The same in another order, and with another coding."""
    fields, body = one.fields, one.body
    query = "&".join(sorted(one.query.split("&"), reverse=True))
    if GZIP in fields:
        try:
            body = gzip.decompress(body)
        except EOFError:                     # cut
            return msgspec.structs.replace(one, query=query)
        fields = tuple(pair for pair in fields if pair != GZIP)
    with contextlib.suppress(ValueError):
        body = json.dumps(json.loads(body), sort_keys=True, indent=1).encode()
    return msgspec.structs.replace(
        one, query=query, fields=(*fields, GZIP), body=gzip.compress(body, mtime=0))
