"""Recordings in the files of other programs, and in directories of their own."""

import io
import json
import stat

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats.exchanges import read_exchanges
from cutthrough.recording.formats.files import read_recordings
from cutthrough.recording.formats.vcr import read_cassette, write_cassette
from cutthrough.recording.model.masking import Redaction
from cutthrough.recording.model.recording import (
    Chunk,
    Message,
    Pattern,
    Recording,
    Response,
)
from cutthrough.recording.sessions.folder import (
    encode,
    pack,
    pack_bytes,
    read_folder,
    read_names,
    unpack,
    unpack_bytes,
    write_folder,
)
from cutthrough.recording.sessions.session import Manifest
from tests.capture.dumps import dump, state
from tests.recording.answers import request

FULL = Recording(
    number=7, created_us=1_700_000_000_000_000, tags=("t",),
    request=request("/v1/a?b=1", '{"a": [1, "é"]}', host="::1",
                    fields=(("Content-Type", "application/json"), ("A", "1"),
                            ("A", "2"))),
    response=Response(
        status=200, reason="OK", fields=(("Content-Type", "text/plain"),), head_us=5,
        chunks=(Chunk(6, b"ab"), Chunk(9, b"\xff\x00")), trailers=(("T", "x"),),
        messages=(Message(7, True, "text", b"hi"),
                  Message(8, False, "close", b"bye", 1000))),
    patterns=(Pattern(part="path", how="glob", value="/v1/*"),),
    requires={"s": "1"}, sets={"s": "2"}, removes=("r",), delay_us=3)
PLAIN = Recording(
    number=1, created_us=1_700_000_000_000_000, request=FULL.request,
    response=Response(status=201, reason="Made",
                      fields=(("Content-Type", "text/plain"),),
                      chunks=(Chunk(0, b"abc"),)))


def cassette(*recordings):
    file = io.StringIO()
    write_cassette(file, recordings)
    return file.getvalue().encode()


def bare(one):
    return msgspec.structs.replace(one, number=0, created_us=0, hits=0)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_directory_comes_back_as_it_was(tmp_path, form):
    manifest = Manifest(redaction=Redaction(json=("a",)), count=5, comment="c")
    write_folder(tmp_path / "x", manifest, [FULL, PLAIN, PLAIN], form)
    names = read_names(tmp_path / "x")
    assert names[2] == names[1].replace(f".{form}", f"-2.{form}")
    assert names[1].startswith("POST-1-v1-a-")
    assert read_folder(tmp_path / "x") == (
        manifest, [bare(FULL), bare(PLAIN), bare(PLAIN)])
    assert {stat.S_IMODE(path.stat().st_mode)
            for path in (tmp_path / "x").iterdir()} == {0o600}


def test_a_second_export_changes_only_what_has_changed(tmp_path):
    write_folder(tmp_path, Manifest(), [FULL, PLAIN])
    first = read_names(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in first}
    (tmp_path / "README").write_text("mine")
    again = msgspec.structs.replace(PLAIN, number=9, hits=3, created_us=5)
    write_folder(tmp_path, Manifest(), [again])
    assert read_names(tmp_path) == [first[1]]
    assert (tmp_path / first[1]).read_bytes() == before[first[1]]
    assert {path.name for path in tmp_path.iterdir()} == {
        first[1], "manifest.json", "README"}


@settings(max_examples=100, deadline=None)
@given(st.one_of(
    st.binary(max_size=40), st.text(max_size=40).map(str.encode), st.builds(
        lambda value, compact: json.dumps(
            value, separators=(",", ":") if compact else None,
            ensure_ascii=compact).encode(),
        st.lists(st.one_of(st.text(), st.floats(), st.booleans(), st.none())),
        st.booleans())))
def test_every_body_comes_back_byte_for_byte(body):
    for form in ("json", "yaml"):
        one = Recording(request=request(), response=Response(
            status=200, chunks=(Chunk(1, body),)))
        text = encode(pack(one), form)
        found = yaml.safe_load(text) if form == "yaml" else json.loads(text)
        assert unpack(found, "x").response.body == body
    if body:
        assert unpack_bytes(pack_bytes(body)) == body
    (back,) = read_cassette(cassette(one))
    assert back.response.body == body


@pytest.mark.parametrize("names", [["../a.json"], ["/etc/a.json"], [1], "a", ["a"]])
def test_a_manifest_names_files_of_its_directory_alone(tmp_path, names):
    (tmp_path / "manifest.json").write_text(json.dumps(
        {"version": 1, "recordings": names}))
    for verb in (lambda: read_folder(tmp_path),
                 lambda: write_folder(tmp_path, Manifest(), [])):
        with pytest.raises(NotImported):
            verb()


@pytest.mark.parametrize("change", [
    lambda table: table.pop("request"),
    lambda table: table["response"].update(status="x"),
    lambda table: table["request"].update(body={"base64": "!"}),
    lambda table: table["request"].update(body="x"),
])
def test_a_malformed_file_is_refused_by_its_name(change):
    table = pack(PLAIN)
    change(table)
    with pytest.raises(NotImported, match=r"^a\.json: "):
        unpack(table, "a.json")


BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n"
               for n in range(12))


def test_aliases_do_not_become_more_than_memory_holds(tmp_path):
    (tmp_path / "a.yaml").write_text(f"{BOMB}request: {{body: {{json: *a11}}}}\n")
    (tmp_path / "manifest.json").write_text('{"version": 1, "recordings": ["a.yaml"]}')
    with pytest.raises(NotImported, match="alias"):
        read_folder(tmp_path)
    for text in (f"{BOMB}interactions: []\nversion: *a11\n",
                 f"{BOMB}interactions: *a11\nversion: *a11\n"):
        with pytest.raises(NotImported):
            read_cassette(text.encode())
    for place in ("headers: {a: *a11}", "headers: {}, body: *a11"):
        with pytest.raises(NotImported, match=r"line 6, .* aliases stand for too much"):
            read_cassette(
                f"{BOMB}interactions: [{{request: {{method: GET, uri: 'http://a/', "
                f"{place}}}, response: {{status: {{code: 200}}}}}}]".encode())


def test_a_dump_is_read_and_its_secrets_are_in_it():
    (one,) = read_exchanges(io.BytesIO(dump(state())))
    assert one.request.method == "GET" and len(one.response.body) == 5
    assert not one.response.field("content-length")


def test_a_file_of_neither_kind_is_refused():
    with pytest.raises(NotImported):
        list(read_exchanges(io.BytesIO(b"x")))


def test_an_old_cassette_of_json_is_no_simulation(tmp_path):
    """It was refused for keys of a simulation, and without a remedy."""
    path = tmp_path / "old.json"
    path.write_text('[{"request": {}, "response": {}}]')
    with pytest.raises(NotImported, match=r"vcr\.migration"):
        list(read_recordings(path).items)
