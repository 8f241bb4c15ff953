"""Values that an import cannot represent are named, entry by entry (R93)."""

import io
import json

import pytest

from cutthrough.capture.importing import import_file
from cutthrough.exchange.formats.har_reader import read_archive
from cutthrough.exchange.formats.imported import Altered, Exchange, NotImported
from cutthrough.recording.formats.vcr import read_cassette
from tests.recording.archives import archive, entry, imported


@pytest.mark.parametrize(("bad", "reason"), [
    (entry(1, {"method": "A B"}), "entry-1: the method 'A B' is none"),
    (entry(1, {"url": "ftp://a/"}), "entry-1: the URL 'ftp://a/' is none of HTTP"),
    (entry(1, response={"status": 0}), "entry-1: has no response"),
    (entry(1, {"bodySize": 12}), "entry-1: a body is not whole: absent"),
    (entry(1, {"postData": {"mimeType": "multipart/form-data; boundary=a",
                            "params": [{"name": "file"}]}}),
     "entry-1: a body is not whole: incomplete"),
    (entry(1, response={"content": {"size": 5}}),
     "entry-1: a body is not whole: absent"),
    (entry(1, response={"content": {"text": "a", "encoding": "rot13"}}),
     "log.entries[1]: the encoding 'rot13' is not known"),
    (entry(1, {"url": 1.5}), "entry-1: the URL '1.5' is none of HTTP"),
    ("none", "log.entries[1]: ")])
def test_an_entry_that_cannot_be_read_costs_itself_and_is_named(bad, reason):
    recordings, named = imported(entry(0), bad, entry(2))
    assert [one.request.path for one in recordings] == ["/0", "/2"]
    assert len(named) == 1 and str(named[0]).startswith(reason)
    assert not isinstance(named[0], Altered)


def test_what_a_recording_has_no_place_for_is_named():
    message = {"type": "send", "opcode": 1, "time": 1767225600, "data": "a"}
    recordings, named = imported(
        entry(0, {"_trailers": [{"name": "A", "value": "b"}]},
              {"_trailers": [{"name": "C", "value": "d"}]}),
        entry(1, _webSocketMessages=[message, {**message, "opcode": 3}]),
        entry(2, _webSocketMessages=[{**message, "_state": "truncated"}]))
    assert recordings[0].response.trailers == (("C", "d"),), "it was lost in silence"
    assert [str(one) for one in named] == [
        "entry-0: without its request's trailers: a recording has no place for them",
        "entry-1: without some of its messages: incomplete",
        "entry-2: with messages that are not whole: truncated"]
    assert all(isinstance(one, Altered) for one in named) and len(recordings) == 3


def test_a_body_of_a_request_that_a_file_lacks_is_not_empty():
    """Browsers leave out uploaded bytes, but not their length."""
    (found,) = read_archive(archive(entry(0, {"bodySize": 12})))
    assert isinstance(found, Exchange) and found.request.body is None
    (found,) = read_archive(archive(entry(0, {"bodySize": 0})))
    assert isinstance(found, Exchange) and found.request.body == ""


def test_each_of_many_is_named(tmp_path):
    data = archive(*(entry(number, {"method": "A B"}) for number in range(30)))
    result = import_file(io.BytesIO(data), str(tmp_path / "db"), most_reasons=100)
    assert result.refused == 30 and len({*result.reasons}) == 30
    result = import_file(io.BytesIO(data), str(tmp_path / "db"))
    assert result.refused == 30 and len(result.reasons) == 20, "of the admin listener"


def test_a_body_of_a_cassette_in_an_unknown_form_is_not_empty():
    one = {"request": {"method": "GET", "uri": "http://a/", "body": {"file": "b"}},
           "response": {"status": {"code": 200}, "body": {"string": "ok"}}}
    other = {"request": {"method": "GET", "uri": "http://a/", "body": None},
             "response": {"status": {"code": 200}, "body": {}}}
    refused, kept = read_cassette(json.dumps({"interactions": [one, other]}).encode())
    assert str(refused) == (
        "interaction 0: a body is in a form that is not known: file")
    assert not isinstance(kept, NotImported)
