"""Exports of replayproxy, in its two formats, as its documentation has them."""

import json

import pytest

from cutthrough.exchange.formats.imported import Altered, NotImported
from cutthrough.recording.formats.replayproxy import (
    HOST,
    Base,
    read_base,
    read_export,
)
from cutthrough.recording.model.recording import Chunk, Message, Recording
from tests.support.exports import document, export

BASE = Base("https", "api.example.com")


@pytest.fixture(params=["json", "yaml"])
def form(request):
    return request.param


@pytest.fixture
def read(tmp_path, form):
    def run(*documents, base=BASE, **more):
        items = [*read_export(export(tmp_path / "out", form, *documents, **more), base)]
        return ([item for item in items if isinstance(item, Recording)],
                [str(item) for item in items if not isinstance(item, Recording)])
    return run


def test_a_recording_comes_in_whole(read):
    """Before, its two formats were not read."""
    (one, other), faults = read(
        document(1, method="post", uri="/v1/chat?stream=true", sent=b'{"a":1}',
                 request=[("host", b"proxy:8080"), ("accept", b"*/*")],
                 response=[
                     ("content-type", b"application/json"), ("set-cookie", b"a=b"),
                     ("set-cookie", b"c=d"), ("transfer-encoding", b"chunked")],
                 status=201, body=bytes(range(256))),
        document(2, uri="/"))
    assert faults == []
    assert (one.request.method, one.request.url) == (
        "POST", "https://api.example.com/v1/chat?stream=true")
    assert one.request.port == 443 and one.request.body == b'{"a":1}'
    assert one.request.fields == (("accept", "*/*"),)
    assert one.response.status == 201 and one.response.body == bytes(range(256))
    assert one.response.fields == (
        ("content-type", "application/json"), ("set-cookie", "a=b"),
        ("set-cookie", "c=d"))
    assert one.created_us == 1_767_065_999_001_000
    assert (other.request.url, other.response.chunks) == (
        "https://api.example.com/", ())


def test_a_stream_has_its_times_and_a_websocket_its_messages(read):
    (stream, socket), faults = read(
        document(1, body=b"data: a\n\ndata: b\n\n", response_chunks=[
            {"chunk_index": 1, "offset_ms": 250, "chunk_body": [*b"data: b\n\n"]},
            {"chunk_index": 0, "offset_ms": 5, "chunk_body": [*b"data: a\n\n"]}]),
        document(2, status=101, websocket_frames=[
            {"frame_index": 0, "offset_ms": 0, "direction": "client-to-server",
             "message_type": "text", "payload": [*b"hi"]},
            {"frame_index": 1, "offset_ms": 7, "direction": "server-to-client",
             "message_type": "binary", "payload": [0, 255]}]))
    assert faults == []
    assert stream.response.chunks == (
        Chunk(5000, b"data: a\n\n"), Chunk(250_000, b"data: b\n\n"))
    assert stream.response.head_us == 5000
    assert socket.response.messages == (
        Message(0, True, "text", b"hi"), Message(7000, False, "binary", b"\0\xff"))


def test_version_1_has_neither(read):
    (one,), faults = read(document(1, body=b"x" * 5000), version=1)
    assert (one.response.body, faults) == (b"x" * 5000, [])


def test_without_a_base_the_field_host_counts_and_a_line_says_so(read):
    (one,), faults = read(document(1, request=[("Host", b"a.test:8443")]),
                          document(2, request=[]), base=None)
    assert one.request.url == "https://a.test:8443/a"
    assert faults == [HOST, "recording 1: has no field Host: give --base-url"]


def test_chunks_that_are_not_the_body_do_not_count(read):
    """The body was redacted, and its chunks were not."""
    (one,), _ = read(document(1, body=b"[REDACTED]", response_chunks=[
        {"chunk_index": 0, "offset_ms": 9, "chunk_body": [*b"s3cret"]}]))
    assert one.response.chunks == (Chunk(0, b"[REDACTED]"),)


def test_a_placeholder_in_a_request_is_named(read):
    (_, _, _), faults = read(document(1, uri="/?key=[REDACTED]"),
                             document(2, sent=b'{"k":"[REDACTED]"}'),
                             document(3, body=b"[REDACTED]"))
    assert [fault.partition(":")[0] for fault in faults] == [
        "recording 0", "recording 1"]
    assert all("placeholder" in fault for fault in faults)


@pytest.mark.parametrize(("fields", "reason"), [
    ({"request_method": "BAD METHOD"}, "the method"),
    ({"request_uri": "http://a.test/"}, "no path"), ({"request_uri": 7}, "no path"),
    ({"request_headers": {}}, "no `request_headers`"),
    ({"request_body": [256]}, "request_body: is no list"),
    ({"request_body": ["a"]}, "request_body: is no list"),
    ({"request_body": "text"}, "request_body: is no list"),
    ({"request_body": None}, "request_body: is no list"),
    ({"response_status": 99}, "the status"), ({"response_status": "200"}, "the status"),
    ({"response_chunks": [{"chunk_index": "0"}]}, "response_chunks"),
    ({"response_chunks": [{"chunk_index": 0, "offset_ms": -1, "chunk_body": []}]},
     "offset_ms"),
    ({"response_chunks": 7}, "response_chunks"),
    ({"websocket_frames": [{"frame_index": 0, "direction": "up"}]}, "a frame is"),
    ({"created_at_unix_ms": 1 << 60}, "created_at"),
    ({"created_at_unix_ms": True}, "created_at")])
def test_a_broken_recording_costs_itself_alone(read, fields, reason):
    found, faults = read(document(1) | fields, document(2))
    assert len(found) == 1
    (fault,) = faults
    assert fault.startswith("recording 0: ") and reason in fault


@pytest.mark.parametrize(("file", "reason"), [
    ("../secret.json", "not below recordings/"), ("/etc/passwd", "not below"),
    ("recordings/../../secret.json", "not below"), ("recordings/.hidden", "not below"),
    ("recordings/a\0b", "not below"), (7, "not below"),
    ("recordings/link", "leads out"),
    ("recordings/none.json", "No such file")])
def test_no_file_outside_of_the_export_is_read(tmp_path, file, reason):
    folder = export(tmp_path / "out", "json", document(1))
    (tmp_path / "secret.json").write_text(json.dumps(document(9)))
    (folder / "recordings/link").symlink_to(tmp_path / "secret.json")
    index = json.loads((folder / "index.json").read_text())
    index["recordings"][0]["file"] = file
    (folder / "index.json").write_text(json.dumps(index))
    (item,) = read_export(folder, BASE)
    assert isinstance(item, NotImported) and reason in str(item)


@pytest.mark.parametrize(("change", "reason"), [
    (lambda folder: (folder / "index.json").unlink(), "has no index.json or"),
    (lambda folder: (folder / "index.yaml").write_text("{}"),
     "has index.json and index.yaml"),
    (lambda folder: (folder / "index.json").write_text("[]"), "is no table"),
    (lambda folder: (folder / "index.json").write_text("{"), "index.json: "),
    (lambda folder: (folder / "index.json").write_text('{"version": 3}'),
     "has the version 3, not 1 or 2"),
    (lambda folder: (folder / "index.json").write_text('{"version": 2}'),
     "has no list of `recordings`")])
def test_what_is_no_export_is_refused(tmp_path, change, reason):
    folder = export(tmp_path / "out", "json")
    change(folder)
    with pytest.raises(NotImported, match=reason):
        [*read_export(folder, BASE)]


def test_octets_in_yaml_are_read_as_they_are_and_in_time(tmp_path):
    """A line for each: by the reader of YAML alone it took 50 us for each octet."""
    body = bytes(range(256)) * 40
    folder = export(tmp_path / "out", "yaml", document(1, body=body))
    (item,) = read_export(folder, BASE)
    assert item.response.body == body
    path = next((folder / "recordings").iterdir())
    path.write_text(path.read_text().replace("\n- 255\n", "\n- 999\n"))
    (item,) = read_export(folder, BASE)
    assert isinstance(item, NotImported) and "list of octets" in str(item)


@pytest.mark.parametrize("text", [
    "api.example.com", "ftp://a.test", "http://", "http://a.test/path",
    "http://a.test?q", "http://a:b@a.test"])
def test_a_base_is_scheme_and_host(text):
    with pytest.raises(ValueError, match="http"):
        read_base(text)
    assert read_base("http://a.test:8080/") == Base("http", "a.test:8080")


def test_what_is_only_noted_is_no_failure():
    assert issubclass(Altered, NotImported)
