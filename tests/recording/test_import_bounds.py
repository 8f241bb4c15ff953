"""The result of an import is bounded by the file's size (R70), and says so (R93)."""

import gzip
import json
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange import documents
from cutthrough.exchange.documents import read_file
from cutthrough.exchange.formats.har_reader import read_archive
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats import handlebars, hoverfly, hoverfly_delays
from cutthrough.recording.formats.foreign import fit_coding
from cutthrough.recording.formats.hoverfly import read_simulation
from cutthrough.recording.formats.replayproxy import Base, read_export
from cutthrough.recording.formats.vcr import read_cassette
from cutthrough.recording.model.yaml_documents import Loader, load
from cutthrough.recording.sessions.folder import read_folder
from tests.support.exports import document, export

INTERACTION = "{request: {method: GET, uri: 'http://a/', headers: {a: %s}}, " \
    "response: {status: {code: 200}, body: null}}"
# Bytes that a byte of a file may become, and bytes that any file may
FACTOR, LEAST = 100, 110 << 20


def made_by(read, data):
    """The most memory in use while it is read, and how it ends."""
    tracemalloc.start()
    try:
        result = read(data)
    except (NotImported, ValueError) as error:
        result = error
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most, result


def pairs(*found, **more):
    return json.dumps({"meta": {"schemaVersion": "v5.2"},
                       "data": {"pairs": found, **more}}).encode()


def pair(path="/", **response):
    return {"request": {"path": [{"matcher": "exact", "value": path}]},
            "response": {"status": 200, **response}}


def test_aliases_of_a_cassette_stand_for_no_more_than_its_length_times_a_factor():
    """R70: 220 KB took 36 s and 1.4 GB."""
    data = ("interactions:\n- " + INTERACTION % ("&a [" + "b," * 10_000 + "]") + "\n"
            + ("- " + INTERACTION % "*a" + "\n") * 500).encode()
    most, error = made_by(read_cassette, data)
    assert isinstance(error, NotImported)
    # R93: the place
    assert "line " in str(error) and "aliases stand for too much" in str(error)
    assert most < 50 << 20


def test_the_aliases_that_yaml_writers_make_are_read():
    data = ("interactions:\n- " + INTERACTION % "&a [b, c]" + "\n"
            + ("- " + INTERACTION % "*a" + "\n") * 500).encode()
    assert [len(one.request.fields) for one in read_cassette(data)] == [2] * 501


def test_an_alias_in_what_it_stands_for_is_refused():
    with pytest.raises(NotImported, match=r"line 1, .* an alias is in what it stands"):
        read_cassette(b"interactions: &a [*a]")


@st.composite
def with_aliases(draw):
    """A document of YAML; its values refer to earlier ones."""
    lines = []
    for number in range(draw(st.integers(1, 12))):
        inner = draw(st.lists(st.one_of(
            st.sampled_from("xyz"), st.integers(0, max(0, number - 1)).map(
                lambda at: f"*a{at}") if number else st.just("x")), max_size=12))
        lines.append(f"a{number}: &a{number} [{', '.join(inner)}]")
    return "\n".join(lines).encode()


def size_of(value):
    """Of the document, written out."""
    inner = (list(value.values()) + list(value) if isinstance(value, dict) else
             value if isinstance(value, list) else ())
    return 1 + sum(map(size_of, inner))


@settings(deadline=None, max_examples=100)
@given(with_aliases())
def test_whatever_aliases_say_what_is_made_is_bounded_by_the_text(data):
    """R70: the values, written out, against the bytes of the text."""
    try:
        made = load(data, Loader)
    except ValueError:
        return
    except Exception as error:
        assert "aliases stand for too much" in str(error)
        return
    # 16 bytes each are counted, and 4 for each of the text and 1 MiB are allowed
    assert size_of(made) <= (1 << 16) + 2 * len(data)


@pytest.mark.parametrize("unit", ["[],", "{},", "[[]],", '{"a":1},', "0,", "[0],"])
def test_no_json_becomes_much_more_than_its_text(unit):
    """R70: empty lists become 24 times their text."""
    data = f"[{unit * ((6 << 20) // len(unit))}0]".encode()
    most, error = made_by(read_file, data)
    assert most < LEAST + len(data) * 4 and isinstance(error, ValueError)
    assert "values, which is too many for its length" in str(error)


def test_archives_of_short_fields_are_read():
    """A value in some 6 bytes: shorter than any that a browser writes."""
    entry = {"startedDateTime": "2026-01-01T00:00:00Z", "time": 0,
             "request": {"method": "GET", "url": "http://a/", "headers": [
                 {"name": "a", "value": "b"}] * 60_000},
             "response": {"status": 200, "headers": []}}
    data = json.dumps({"log": {"entries": [entry] * 5}},
                      separators=(",", ":")).encode()
    assert documents.count_values(data, 1 << 30, 500) > documents.MOST_FILE_VALUES
    assert [len(one.request.fields) for one in read_archive(data)] == [60_000] * 5


@pytest.mark.parametrize("read", [read_cassette, read_simulation,
                                  lambda data: list(read_archive(data))])
def test_a_file_of_too_many_values_is_refused_with_the_reason(read):
    data = b'{"log":{"entries":[' + b"[]," * (1 << 20) + b"0]}}"
    with pytest.raises(NotImported, match="values, which is too many for its length"):
        read(data)


def test_a_file_of_a_folder_is_bounded_alike(tmp_path):
    (tmp_path / "manifest.json").write_text('{"version": 1, "recordings": ["a.json"]}')
    (tmp_path / "a.json").write_text('{"request": [' + "[]," * (1 << 20) + "0]}")
    with pytest.raises(NotImported, match=r"a\.json: has more than .* values"):
        read_folder(tmp_path)


def test_halves_of_characters_and_utf_16_are_read_as_before():
    assert read_file(b'["\\ud800"]') == ["\ud800"]
    assert read_file('{"a": "\u2200\u2022"}'.encode("utf-16")) == {"a": "\u2200\u2022"}


def test_the_bodies_that_pairs_share_count_each_time(tmp_path, monkeypatch):
    """R70: a session has a copy for each pair."""
    monkeypatch.setattr(hoverfly, "MOST_BODIES", 3500)
    (tmp_path / "b").write_bytes(b"x" * 1000)
    made = read_simulation(
        pairs(*(pair(f"/{at}", bodyFile="b") for at in range(5))), tmp_path)
    assert [isinstance(one, NotImported) for one in made] == [False] * 3 + [True] * 2
    assert str(made[3]).startswith("pair 3: with its body, 'b', those in files")


def test_the_literals_that_pairs_share_count_each_time(monkeypatch):
    """R70: 1.2 MB with a literal of 1 MiB became 1 GB."""
    monkeypatch.setattr(handlebars, "MOST_TOGETHER", 3500)
    found = [pair(f"/{at}", templated=True, body="{{Literals.a}}") for at in range(4)]
    found.append(pair("/4", templated=True, headers={"A": ["{{Literals.a}}"]}))
    made = read_simulation(pairs(
        *found, literals=[{"name": "a", "value": "x" * 1000}]))
    assert [isinstance(one, NotImported) for one in made] == [False] * 3 + [True] * 2
    assert str(made[3]).startswith("pair 3: its template: with its literals, those")


def test_a_file_that_an_export_names_often_is_read_once(tmp_path):
    """R70: a session has a copy for each name."""
    folder = export(tmp_path, "json", document(1, uri="/a"), document(2, uri="/b"))
    index = json.loads((folder / "index.json").read_text())
    index["recordings"] += index["recordings"]
    (folder / "index.json").write_text(json.dumps(index))
    made = [*read_export(folder, Base("http", "a"))]
    assert [isinstance(one, NotImported) for one in made] == [False] * 2 + [True] * 2
    assert "is named twice" in str(made[2])


def test_rules_times_pairs_are_bounded(monkeypatch):
    """R70: they are left out, and that is reported."""
    monkeypatch.setattr(hoverfly_delays, "MOST_WORK", 100)
    rules = [{"urlPattern": f"a{at}", "delay": 5} for at in range(10)]
    found = {"globalActions": {"delays": rules}}
    few = read_simulation(pairs(pair("/1"), pair("/2"), **found))
    assert not any(isinstance(one, NotImported) for one in few)
    *made, told = read_simulation(pairs(*(pair(f"/{at}") for at in range(20)), **found))
    assert len(made) == 20 and "for the patterns of so many pairs" in str(told)
    *_, told = read_simulation(pairs(pair(), globalActions={"delays": rules * 26}))
    assert "more than 256" in str(told)


def test_a_malformed_pair_costs_itself_alone():
    """R71: a table in place of a list ended the import with a traceback."""
    broken = {"request": {"headersWithMatchers": [1]}, "response": {}}
    data = json.dumps({"meta": {"schemaVersion": "v3"}, "data": {"pairs": [
        broken, {"request": {"path": {"exactMatch": "/b"}}, "response": {}}]}}).encode()
    bad, good = sorted(read_simulation(data), key=lambda one: not isinstance(
        one, NotImported))
    assert str(bad).startswith("pair 0: ") and good.request.path == "/b"


def test_a_bomb_is_inflated_only_so_far_that_its_coding_is_seen():
    """R70: 16 MiB for each of many bodies; gzip's members are one text."""
    bombs = [gzip.compress(b"\0" * (32 << 20)),
             b"".join([gzip.compress(b"")] * 4000 + [gzip.compress(b"x")])]
    fields = (("content-encoding", "gzip"),)
    for bomb in bombs:
        begun = time.process_time()
        most, found = made_by(lambda body: fit_coding(fields, body), bomb)
        assert found == fields and most < 4 << 20
        assert time.process_time() - begun < 2
    assert fit_coding(fields, b"plain") == ()
