"""Files of other programs in the database: HAR 1.2 of ours and theirs, and dumps."""

import gzip
import io
import json
import sqlite3
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.capture import importing
from cutthrough.capture.importing import Result, import_file
from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats import har_reader, imported
from cutthrough.exchange.formats.har import make_archive
from cutthrough.exchange.formats.har_reader import read_archive
from cutthrough.exchange.formats.imported import (
    Exchange,
    NotImported,
    make_redactor,
    make_row,
)
from cutthrough.storage.sqlite_store import SqliteStore
from cutthrough.storage.store import StoreError
from cutthrough.storage.stores import open_reader
from tests.capture.dumps import dump, state
from tests.capture.dumps import request as dumped_request
from tests.capture.flows import flow
from tests.capture.har_flows import ALL
from tests.support.archives import archive, entry, request, response

REDACTOR = make_redactor(keep_credentials=False)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "flows.db")


def row(one, creator="WebInspector"):
    (found,) = read_archive(archive(one, creator=creator))
    if isinstance(found, NotImported):
        raise found
    return dict(zip(COLUMNS, make_row(found, REDACTOR), strict=True))


def exported(path):
    reader = open_reader(path)
    try:
        return make_archive(map(Flow, reader.flows()))
    finally:
        reader.close()


# Our own files


def test_what_is_exported_imported_and_exported_again_is_equal(path):
    first = json.dumps(make_archive(ALL))
    assert import_file(io.BytesIO(first.encode()), path, keep_credentials=True) == (
        Result(added=len(ALL)))
    assert json.dumps(exported(path)) == first


TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xff,
                             exclude_characters="\x7f"), max_size=20)


@given(st.tuples(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7e,
                          exclude_characters="#"), max_size=30),
    st.lists(st.tuples(st.from_regex(r"[A-Za-z-]{1,10}", fullmatch=True), TEXT),
             max_size=5),
    st.binary(max_size=50) | st.text(st.characters(exclude_categories=["Cs"],
                                                   exclude_characters="\0"),
                                     max_size=50),
    st.lists(st.none() | st.integers(0, 1 << 50), min_size=6, max_size=6),
    st.lists(st.none() | st.integers(0, 10**12), min_size=8, max_size=8),
    st.sampled_from([None, "truncated", "incomplete", "encoded", "redacted"])))
def test_any_flow_of_ours_is_equal_after_an_import(parts):
    url, fields, body, sizes, times, why = parts
    names = [f"{name}_us" for name in ("head", "auth", "hook", "dns", "connect", "send",
                                       "wait", "receive")]
    head = "".join(f"{name}: {value.strip()}\r\n" for name, value in fields
                   if name.lower() != "content-type")
    one = flow(
        url=f"http://a.test/{url}", request_head=f"GET /{url} HTTP/1.1\r\n{head}\r\n",
        response_head=f"HTTP/1.1 200 OK\r\n{head}\r\n", request_body=body,
        response_body=body if isinstance(body, str) else b"\xff" + body,
        request_body_state=why if body else None, response_body_state=why,
        **dict(zip(names, times, strict=True)),
        **{f"{side}_{what}_bytes": size for (side, what), size in zip(
            [(side, what) for side in ("request", "response")
             for what in ("head", "body", "content")], sizes, strict=True)})
    first = make_archive([one])
    found = list(read_archive(json.dumps(first).encode()))
    assert isinstance(found[0], Exchange), found
    values = make_row(found[0], make_redactor(keep_credentials=True))
    again = Flow(dict(zip(("id", *COLUMNS), (1, *values), strict=True)))
    assert json.dumps(make_archive([again])) == json.dumps(first)


def test_a_file_is_imported_once(path):
    data = json.dumps(make_archive(ALL)).encode()
    import_file(io.BytesIO(data), path)
    assert import_file(io.BytesIO(data), path) == Result(known=len(ALL))


def test_the_database_is_its_owners_alone_and_can_be_searched(path, tmp_path):
    import_file(io.BytesIO(archive(entry())), path)
    assert stat.S_IMODE((tmp_path / "flows.db").stat().st_mode) == 0o600
    reader = open_reader(path)
    assert [found["host"] for found in reader.flows(words='"hello"')] == ["a.test"]
    reader.close()


def test_a_dump_is_seen_from_its_first_byte(path):
    assert import_file(io.BytesIO(dump(state())), path) == Result(added=1)
    assert exported(path)["log"]["entries"][0]["request"]["url"] == (
        "http://a.test:8080/a?b=c")


def test_credentials_are_redacted_before_they_are_written(path, tmp_path):
    # R59
    one = entry(request=request(headers=[{"name": "Authorization", "value": "s3cret"}]))
    import_file(io.BytesIO(archive(one)), path)
    assert not any(b"s3cret" in file.read_bytes() for file in tmp_path.iterdir())
    kept = str(tmp_path / "kept.db")
    import_file(io.BytesIO(archive(one)), kept, keep_credentials=True)
    base = sqlite3.connect(kept)
    assert "s3cret" in base.execute("SELECT request_head FROM flows").fetchone()[0]
    base.close()


# Theirs


def test_an_entry_has_what_the_file_says():
    one = row(entry(serverIPAddress="[2001:db8::1]"))
    assert one["begun_us"] == 1_772_362_800_250_000
    assert (one["method"], one["url"], one["host"], one["port"], one["status"]) == (
        "GET", "https://a.test/x?y=1", "a.test", 443, 200)
    assert (one["send_us"], one["wait_us"], one["receive_us"], one["total_us"]) == (
        500, 10_000, 5000, 15_500)
    assert one["dns_us"] is None and one["connect_us"] is None
    assert (one["peer"], one["user"], one["client"]) == ("2001:db8::1", None, "")
    assert one["request_head"] == "GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\n\r\n"


@pytest.mark.parametrize(("text", "line", "number"), [
    ("HTTP/1.1", "HTTP/1.1", "1.1"), ("h2", "HTTP/2", "2"), ("http/2.0", "HTTP/2", "2"),
    ("HTTP/2", "HTTP/2", "2"), ("h3", "HTTP/3", "3"), ("unknown", "unknown", None),
    ("", "HTTP/1.1", None)])
def test_versions_are_read_as_browsers_write_them(text, line, number):
    one = row(entry(response=response(httpVersion=text)))
    assert one["origin_http"] == number and one["client_http"] is None
    assert one["response_head"].startswith(f"{line} 200 ")


def test_the_handshake_is_a_part_of_connecting():
    one = row(entry(timings={"connect": 30, "ssl": 20, "send": 1, "wait": 1,
                             "receive": 1}))
    assert (one["connect_us"], one["origin_tls_us"]) == (10_000, 20_000)
    one = row(entry(timings={"connect": 30, "send": 1, "wait": 1, "receive": 1}))
    assert (one["connect_us"], one["origin_tls_us"]) == (30_000, None)


def test_chromium_has_pseudo_fields_and_joined_ones():
    one = row(entry(
        request=request(httpVersion="http/2.0", headers=[
            {"name": ":method", "value": "GET"}, {"name": "accept", "value": "*/*"}]),
        response=response(httpVersion="http/2.0", statusText="", headers=[
            {"name": "vary", "value": "a\nb"}])))
    assert one["request_head"] == "GET /x?y=1 HTTP/2\r\naccept: */*\r\n\r\n"
    assert one["response_head"] == "HTTP/2 200 \r\nvary: a\r\nvary: b\r\n\r\n"


def test_chromium_says_why_there_is_no_answer():
    one = row(entry(response=response(
        status=0, httpVersion="", statusText="", headers=[], _error="net::ERR_FAILED",
        content={"size": 0, "mimeType": "x-unknown"}, headersSize=-1, bodySize=-1)))
    assert (one["status"], one["reason"], one["response_head"]) == (
        None, "net::ERR_FAILED", None)


def test_the_messages_of_other_programs_websockets_are_read():
    one = row(entry(
        _resourceType="websocket", response=response(status=101),
        _webSocketMessages=[
            {"type": "send", "time": 1_772_362_801.5, "opcode": 1, "data": "hi"},
            {"type": "receive", "time": 1_772_362_802.25, "opcode": 2, "data": "/w=="},
            {"type": "error", "time": 1_772_362_803, "opcode": -1, "data": "broken"}]))
    assert one["kind"] == "tunnel"
    assert json.loads(one["messages"]) == [
        {"at_us": 1_772_362_801_500_000, "side": "request", "kind": "text", "bytes": 2,
         "text": "hi"},
        {"at_us": 1_772_362_802_250_000, "side": "response", "kind": "binary",
         "bytes": 1, "base64": "/w=="}]


@pytest.mark.parametrize("message", [
    {"type": "send", "time": -1, "opcode": 1, "data": ""},
    {"type": "send", "time": 1e300, "opcode": 1, "data": ""},
    {"type": "sent", "time": 1, "opcode": 1, "data": ""},
    {"type": "send", "time": 1, "opcode": 2, "data": "?"},
    {"type": "send", "time": 1, "opcode": "1", "data": ""}])
def test_a_message_that_nobody_sent_is_refused(message):
    with pytest.raises(NotImported):
        row(entry(_webSocketMessages=[message]))


def test_imported_messages_are_bounded(monkeypatch):
    """R58."""
    monkeypatch.setattr(imported, "MOST_BODY", 25)
    one = row(entry(_webSocketMessages=[
        {"type": "send", "time": 1, "opcode": 1, "data": "x" * 10}] * 3))
    assert len(json.loads(one["messages"])) == 2
    assert one["messages_state"] == "truncated"


def test_firefox_has_no_text_of_images():
    one = row(entry(response=response(
        content={"mimeType": "image/png", "size": 43, "comment": "not included"})))
    assert one["response_body"] is None and one["response_content_bytes"] == 43
    assert one["response_body_state"] is None


def test_mitmproxy_has_the_transferred_length_and_no_content():
    one = row(entry(response=response(content={
        "size": 3, "compression": 2, "mimeType": "", "text": "hello"}, bodySize=3)),
        creator="mitmproxy")
    assert (one["response_content_bytes"], one["response_body_bytes"]) == (5, 3)
    gone = row(entry(response=response(status=0, content={}, _error=None, headers=[],
                                       httpVersion="")), creator="mitmproxy")
    assert (gone["status"], gone["reason"], gone["response_body"]) == (
        None, "failed", "")


@pytest.mark.parametrize(("post", "body"), [
    ({"mimeType": "a/b", "text": "x", "params": []}, "x"),
    ({"mimeType": "a/b", "text": None, "params": None}, ""),
    ({"mimeType": "a/b", "params": [{"name": "a b", "value": "ü"}, {"name": "c"}]},
     "a+b=%C3%BC&c=")])
def test_the_body_of_a_request_is_text_or_parameters(post, body):
    assert row(entry(request=request(postData=post)))["request_body"] == body


def test_bytes_of_a_text_become_text():
    content = {"size": 9, "mimeType": "text/plain", "text": "aGVsbG8=",
               "encoding": "base64"}
    one = row(entry(response=response(content=content)))
    assert (one["response_body"], one["response_content_bytes"]) == ("hello", 9)
    content = content | {"text": "/w=="}
    assert row(entry(response=response(content=content)))["response_body"] == b"\xff"


# Hostile


@pytest.mark.parametrize(("one", "reason"), [
    (entry(request=request(method="GET /")), "method"),
    (entry(request=request(url="https://a.test/\r\nX: y")), "URL"),
    (entry(request=request(url="data:,x")), "none of HTTP"),
    (entry(request=request(url="file:///etc/passwd")), "none of HTTP"),
    (entry(request=request(url="http://[::1/")), "URL"),
    (entry(request=request(url="http://a:99999/")), "URL"),
    (entry(request=request(url="http://a/\ud800")), "URL"),
    (entry(request=request(url="http://a/" + "x" * imported.MOST_URL)), "too long"),
    (entry(request=request(headers=[{"name": "a"}] * 100_000)), "longer"),
    (entry(response=response(content={"text": "x", "encoding": "rot13"})), "rot13"),
    (entry(response=response(content={"text": {"a": 1}})), "content.text is no text"),
    (entry(request=request(url=None)), "request.url: "),
    (entry(request=request(postData={"mimeType": "a/b", "text": [1]})), "no text"),
    (entry(startedDateTime="1969-12-31T00:00:00Z"), "time"),
    (entry(startedDateTime="9999-12-31T23:59:59-23:59"), "time"),
    ({}, "request: "), (None, "object")])
def test_what_is_no_exchange_is_refused_with_the_reason(one, reason):
    with pytest.raises(NotImported, match=reason):
        row(one)


@pytest.mark.parametrize("url", [
    "https://bob:s3cret@a.test/x?u=http://eve:s3cret@b.test/#http://eve:s3cret@c.test/",
    "https://bob:s3cret%40x@a.test/x?u=http%3A%2F%2Feve%3As3cret%40b.test",
    "https://s3cret:x@s3cret@a.test/x"])
def test_user_information_of_a_url_is_not_imported(path, url):
    """R80: it was in the column of URLs, and in `flows list`."""
    one = entry(request=request(url=url))
    assert "s3cret" not in repr(row(one))
    assert row(one)["url"].startswith("https://a.test/x")
    assert import_file(io.BytesIO(archive(one)), path, keep_credentials=True).added == 1
    reader = open_reader(path)
    assert "s3cret" not in json.dumps(make_archive(map(Flow, reader.flows())))
    reader.close()


@pytest.mark.parametrize("url", ["ftp://bob:s3cret@a.test/", "http://bob:s3cret@/x",
                                 "http://bob:s3cret\u2100@a.test\u2100/",
                                 "ftp://a.test/?http://bob:s3cret@b.test/"])
def test_a_reason_does_not_say_user_information(url):
    with pytest.raises(NotImported) as refused:
        row(entry(request=request(url=url)))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("data", [
    b"", b"x", b"{", b"{}", b"[]", b"null", b'{"log": {}}', b'{"log": {"entries": 5}}',
    b'{"log": {"entries": [' + b"[" * 100_000, b'{"log": "\xff"}'])
def test_a_file_of_neither_kind_makes_no_database(path, tmp_path, data):
    with pytest.raises(NotImported):
        import_file(io.BytesIO(data), path)
    assert not list(tmp_path.iterdir())


def test_one_bad_entry_does_not_cost_the_others(path):
    result = import_file(io.BytesIO(archive(entry(), {}, entry(time=None))), path)
    assert (result.added, result.refused) == (2, 1)
    assert result.reasons[0].startswith("log.entries[1]: ")


def test_a_value_cannot_become_a_line_of_a_head():
    one = row(entry(response=response(
        statusText="OK\r\nA: b", headers=[{"name": "x", "value": "a\r\nB: c\0\x1b"}])))
    assert one["response_head"] == (
        "HTTP/1.1 200 OK  A: b\r\nx: a\r\nx: B: c\r\n\r\n")
    again = row(entry(request=request(httpVersion="HTTP/1.1\r\nA: b")))
    assert again["request_head"].startswith("GET /x?y=1 HTTP/1.1\r\nHost")


def test_characters_that_a_database_cannot_hold_become_bytes(path):
    one = entry(response=response(content={"text": "a\0b"}))
    assert row(one)["response_body"] == b"a\0b"
    other = entry(request=request(postData={"text": "\ud800"}))
    assert import_file(io.BytesIO(archive(one, other)), path).added == 2


def test_a_long_body_is_cut_and_a_long_file_refused(path, monkeypatch):
    monkeypatch.setattr(imported, "MOST_BODY", 4)
    one = row(entry())
    assert (one["response_body"], one["response_body_state"]) == ("hell", "truncated")
    monkeypatch.setattr("cutthrough.exchange.formats.reader.MOST_FILE", 100)
    with pytest.raises(NotImported, match="longer"):
        import_file(io.BytesIO(archive(entry())), path)
    assert har_reader.MOST_FILE > 1 << 20


PLACES = [("request",), ("response",), ("timings",), ("response", "content"),
          ("request", "headers", 0), ()]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10**20, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5)


@given(st.data())
def test_any_value_in_any_place_is_refused_or_becomes_a_row(draw):
    one = json.loads(json.dumps(entry()))
    part = one
    for step in draw.draw(st.sampled_from(PLACES)):
        part = part[step]
    part[draw.draw(st.sampled_from(sorted(part)))] = draw.draw(JSON)
    base = sqlite3.connect(":memory:")
    marks = ", ".join("?" * len(COLUMNS))
    try:
        base.execute(f"CREATE TABLE flows ({', '.join(f'[{c}]' for c in COLUMNS)})")
        values = tuple(row(one).values())
        base.execute(f"INSERT INTO flows VALUES ({marks})", values)
        make_archive([Flow(dict(zip(("id", *COLUMNS), (1, *values), strict=True)))])
    except NotImported:
        pass
    finally:
        base.close()


# Faults of an entry (R71)


@pytest.mark.parametrize("error", [RuntimeError, RecursionError, AttributeError])
def test_an_entry_that_fails_in_any_way_costs_itself_alone(path, monkeypatch, error):
    def fail(one, redactor):
        if one.url.endswith("y=2"):
            raise error("s3cret")
        return make_row(one, redactor)

    monkeypatch.setattr(importing, "make_row", fail)
    given = [entry(request=request(url=f"https://a.test/x?y={number}"))
             for number in (1, 2, 3)]
    result = import_file(io.BytesIO(archive(*given)), path)
    assert (result.added, result.refused) == (2, 1)
    assert error.__name__ in result.reasons[0] and "s3cret" not in result.reasons[0]


def test_a_row_that_the_database_refuses_costs_itself_alone(path, monkeypatch):
    def refuse(store, rows):
        if any("y=2" in row[COLUMNS.index("url")] for row in rows):
            raise StoreError("too big")
        return write(store, rows)

    write = SqliteStore.write
    monkeypatch.setattr(SqliteStore, "write", refuse)
    given = [entry(request=request(url=f"https://a.test/x?y={number}"))
             for number in (1, 2, 3)]
    result = import_file(io.BytesIO(archive(*given)), path)
    assert (result.added, result.known, result.refused) == (2, 0, 1)


@pytest.mark.parametrize("padding", [b"", b"\0" * 100_000])
def test_all_members_of_gzip_are_imported(path, padding):
    """R93. The flows behind the first member were not there, and nothing said so."""
    packed = padding.join(
        gzip.compress(dump(state(id=f"flow-{number}", request=dumped_request(
            timestamp_start=1700000000.0 + number)))) for number in range(3))
    result = import_file(io.BytesIO(packed + padding), path)
    assert (result.added, result.refused) == (3, 0)


def test_members_of_gzip_are_bounded(path, monkeypatch):
    """R70."""
    monkeypatch.setattr("cutthrough.exchange.formats.packed.MOST_MEMBERS", 10)
    with pytest.raises(NotImported, match="more than 10 members"):
        import_file(io.BytesIO(gzip.compress(b"") * 11), path)
