"""The filter language, operator by operator."""

import sys
import time
from datetime import UTC, datetime

import pytest

from cutthrough.capture.filters import MOST_DEPTH, FilterError, parse_filter
from cutthrough.exchange import expressions
from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.flow import Flow
from cutthrough.outcome import TABLE
from cutthrough.storage.stores import open_store
from cutthrough.tools.flow_source import ByDatabase
from tests.capture.flows import flow, row
from tests.capture.har_flows import WEBSOCKET

POST = flow(
    2, method="POST", url="http://api.b.test:8080/items/7", host="api.b.test",
    port=8080, status=404, request_head="POST /items/7 HTTP/1.1\r\n"
    "Content-Type: application/json\r\nX-Tag: up\r\n\r\n",
    request_body='{"name": "Zoë"}', response_head="HTTP/1.1 404 Not Found\r\n"
    "Content-Type: text/html\r\nX-Tag: down\r\n\r\n", response_body=b"\x89PNG\xff")
FAILED = flow(3, status=502, reason="connection_refused", response_head=None,
              response_body=None, url="http://c.test/", host="c.test")


@pytest.mark.parametrize("text", [
    "~d b\\.test", "~d API", "~m post", "~u items/[0-9]", "items", "~c 404", "~t json",
    "~tq json", "~ts html", "~h x-tag", "~h 'x-tag: up'", "~hq 'X-Tag: up'",
    "~hs 'x-tag: down'", "~b zoë", "~bq name", "~bs png", "~s", "!~q", "!~c 200",
    "~m POST ~c 404", "~m POST & ~c 404", "~m GET | ~c 404", "(~m GET | ~m POST) & ~s",
    "!(~m GET | ~c 200)", "!!~m POST", '~u "items/7"', "!~m GET&!~c 200", "",
    "~m GET & ~c 200 | ~c 404", "~hq '^x-tag: up$'",
])
def test_it_passes(text):
    assert parse_filter(text)(POST)


@pytest.mark.parametrize("text", [
    "~d ^b", "~m get", "~c 40", "~tq html", "~ts json", "~hq down", "~hs up$", "~q",
    "!~s", "~b absent", "~bq png", "~bs name", "~c 404 ~m GET", "!~m POST",
    "~m GET | ~m PUT", "~c 404 & (~m GET | ~m PUT)",
])
def test_it_does_not_pass(text):
    assert not parse_filter(text)(POST)


def test_a_websocket_is_one_whether_its_messages_are_kept_or_not():
    assert parse_filter("~websocket")(WEBSOCKET)
    assert parse_filter("~websocket & ~bq hello & ~bs hi")(WEBSOCKET)
    assert not parse_filter("~bs hello")(WEBSOCKET)
    assert parse_filter("!~websocket")(flow(kind="tunnel", response_head=None))
    assert not parse_filter("~websocket")(POST)


def test_a_program_is_that_of_a_shared_database():
    def of(program):
        return Flow(dict(zip(("program", *COLUMNS), (program, *row()), strict=True)))

    for text in ("~program edge1", "~program ^EDGE1$ & ~d a.test", "!~program edge2"):
        assert parse_filter(text)(of("edge1")), text
    assert parse_filter("~program ^$")(of("")), "imported"
    assert not parse_filter("~program edge1")(of("edge2"))
    in_a_file = flow()
    assert not parse_filter("~program edge")(in_a_file)
    assert parse_filter("!~program edge")(in_a_file)


def test_and_binds_closer_than_or():
    both = parse_filter("~c 200 & ~m GET | ~c 404 & ~m POST")
    assert both(POST) and both(flow())
    assert not parse_filter("~c 404 & (~m GET | ~c 200)")(POST)


def test_a_request_without_a_response_is_q():
    assert parse_filter("~q")(FAILED) and not parse_filter("~s")(FAILED)
    assert parse_filter("~s")(flow(kind="tunnel", response_head=None))


@pytest.mark.parametrize(("text", "reason"), [
    ("~x a", "none of"), ("~d", "takes an argument"), ("~c abc", "takes a status"),
    ("~c", "takes an argument"), ("(~c 200", "not closed"), ("~c 200)", "no place"),
    ("& ~c 200", "no term before"), ("~c 200 |", "ends where"), ("!", "ends where"),
    ("~program", "takes an argument"),
    ("~u (", "takes an argument"), ('~u "("', "no regular expression"),
    ('~u "abc', "cannot be read"), ("~d & ~c 200", "takes an argument"),
])
def test_what_cannot_be_read_is_refused_with_its_reason(text, reason):
    with pytest.raises(FilterError, match=reason):
        parse_filter(text)


@pytest.mark.parametrize(("text", "passes"), [
    ("~user ^ann$", True), ("~user bob", False), ("~rule here", True),
    ("~reason ^ok$", True), ("~reason denied", False), ("~src ^127.0.0.1:5000$", True),
    ("~dst 192.0.2.1:80", True), ("~dst 5000", False), ("~sni a.test", True),
    ("~ja4 ^t13d", True), ("~tag ^odd$", False), ("~comment .", False),
    ("~client_ja4 ^t13d15", True), ("~client_ja4 ^t12", False),
    ("~client_ja3 .", False),
    ('~http2_fingerprint "[|]m,a,s,p$"', True), ("~http2_fingerprint m,p", False),
    ("~c 4xx", False), ("~c 2XX", True)])
def test_decision_addresses_and_tls(text, passes):
    one = flow(sni="a.test", ja4="t13d1516h2_8daaf6152771_b186095e22b6",
               client_ja4="t13d1516h2_8daaf6152771_b186095e22b6",
               http2_fingerprint="1:65536;4:6291456|15663105|0|m,a,s,p")
    assert parse_filter(text)(one) is passes


def test_marks_and_absent_facts():
    marked = Flow({"tag": "odd", "comment": "see 4712", "client": None, "status": None,
                   "peer": "::1", "peer_port": 443, "client_port": None})
    for text in ("~tag ^odd$ & ~comment 4712", "~src ^$", "~dst ^.::1]:443$",
                 "!~c 4xx"):
        assert parse_filter(text)(marked), text


JA4 = "t13d1516h2_8daaf6152771_b186095e22b6"
ROWS = [
    row(1, sni="a.test", ja4=JA4),
    row(2, user=None, rule="Übung", reason="path_denied", status=404, client="::1",
        client_port=5001, peer=None, peer_port=None),
    row(3, user="bob", rule=None, reason="connection_refused", status=503,
        peer="2001:db8::1", peer_port=443, sni="b.test"),
    row(4, kind="tunnel", user="Ann", status=None, response_head=None, client=None,
        client_port=None, sni="", ja4=JA4.upper())]
MARKS = [(1, "odd", None), (2, "Odd; two", "see 4712"), (3, None, "one\nTwo lines")]
#: The flows that pass, newest first
FOUND = {
    "~tag odd": [2, 1], "~tag ^odd$": [1], "!~tag .": [4, 3], "~comment 4712": [2],
    "~comment '^two lines$'": [3], "~user ^ann$": [4, 1], "!~user .": [2],
    "~rule übung": [2], "~rule ^$": [3], "~reason ^ok$": [4, 1], "~reason denied": [2],
    "~src ^127.0.0.1:5000$": [3, 1], "~src '^.::1]:5001$'": [2], "~src ^$": [4],
    "~dst :80$": [4, 1], "~dst '^.2001:db8::1]:443$'": [3], "~dst ^$": [2],
    "~sni test": [3, 1], "~sni ^$": [4, 2], "~ja4 ^t13d": [4, 1], "!~ja4 .": [3, 2],
    "~c 4xx": [2], "~c 5XX": [3], "!~c 2xx": [4, 3, 2],
    "~c 2xx ~tag odd | ~comment lines & ~user bob": [3, 1]}


@pytest.fixture(params=["sqlite", "postgres"])
def source(request, tmp_path):
    """The same flows of either store, as an operator reads them."""
    where = str(tmp_path / "flows.db") if request.param == "sqlite" else (
        request.getfixturevalue("postgres").make())
    store = open_store(where, 100, 0, 0.0, "here")
    store.write(ROWS)
    store.close()
    made = ByDatabase(where)
    yield made
    made.close()


def test_both_stores_have_the_same_answers(source):
    for number, tag, comment in MARKS:
        source.mark(number, tag, comment)
    found = {text: [one["id"] for one in source.list(
        filter=text, words="", before=0, limit=10)["flows"]] for text in FOUND}
    assert found == FOUND


@pytest.mark.parametrize(("text", "passes"), [
    ("~bs first.*third", True), ("~b 'first.+^third'", True),
    ("~bq first.*third", False), ("~hs 'text/plain.*Location'", False),
    ("~bs 'caf\\u00e9'", True),
    ("~bs 'caf\\\\u00e9'", False)])
def test_a_dot_crosses_the_lines_of_bodies_alone(text, passes):
    """As in mitmproxy."""
    assert parse_filter(text)(
        flow(response_body="first\nsecond\r\nthird café")) is passes


def at(text):
    return round(datetime.fromisoformat(text).timestamp() * 1e6)


@pytest.mark.parametrize(("text", "passes"), [
    ("~time 2021-11-27", True), ("~time 2021-11-26", False), ("~time 2021-11", True),
    ("~time 2021-12", False), ("~time 2021-11-27T10:30", True),
    ("~time 2021-11-27T10:31", False), ("~time 2021-11-27T10", True),
    ("~time 2021-11-27T10:30:15Z", True), ("~time 2021-11-27T10:30:15.25", True),
    ("~time 2021-11-27T10:30:15.26", False), ("~time '2021-11-27 10:30:15'", True),
    ("~time 2021-11-27T11:30+01:00", True), ("~time >2021-11-27T10:30:15.25", True),
    ("~time <2021-11-27T10:30:15.25", False), ("~time <2021-11-27T10:30:15.26", True),
    ("~time >2021-11 & ~time <2022-01", True), ("~time >-10m", False),
    ("~dur >1.5s", True), ("~dur <1.5s", False), ("~dur >1501ms", False),
    ("~dur <1m", True), ("~dur >1500000us", True), ("~dur <1500001us", True),
    ("~size >64k", True), ("~size <64K", False), ("~size >65536", True),
    ("~size >65537", False), ("~size <1M", True), ("!~size >1MiB", True)])
def test_times_durations_and_sizes_are_compared(text, passes):
    one = flow(begun_us=at("2021-11-27T10:30:15.250+00:00"), total_us=1_500_000,
               bytes_up=536, bytes_down=65_000)
    assert parse_filter(text)(one) is passes


def test_a_time_of_day_is_of_today_and_one_ago_ends_now():
    now = datetime.now(UTC)
    one = flow(begun_us=at(now.isoformat()) - 90_000_000)
    assert parse_filter("~time >-10m & ~time <-1m & !~time >-1m")(one)
    today = flow(begun_us=at(f"{now:%Y-%m-%d}T12:34:56+00:00"))
    assert parse_filter("~time 12:34 & ~time >12:34:56 & ~time <12:34:57")(today)
    assert not parse_filter("~time 12:34")(one)


@pytest.mark.parametrize(("text", "reason"), [
    ("~dur 5s", "takes < or >"), ("~dur >5", "not a duration"), ("~size 5k", "< or >"),
    ("~size >5x", "not a size"), ("~time noon", "takes a time"), ("~time", "argument"),
    ("~time 2026-13", "month must be"), ("~time >-999999999999d", "calendar"),
    ("~time 9999-12", "calendar"), ("~time 25:00", "hour must be"),
    ("~time 2026-11-27+10", "takes a time")])
def test_what_cannot_be_compared_is_refused_with_its_reason(text, reason):
    with pytest.raises(FilterError, match=reason):
        parse_filter(text)


def test_an_ending_by_a_fault_is_an_error():
    """mitmproxy's ~e. By the table of endings, and not by its words."""
    for row_ in TABLE:
        assert parse_filter("~e")(flow(reason=row_.label)) is bool(row_.fault)
    assert parse_filter("~e")(flow(reason="net::ERR_ABORTED")), "another program's"
    assert not flow(reason="replayed").has_failed
    assert flow(reason="ok", status=404).has_failed


def test_no_expression_of_a_filter_takes_more_than_linear_time():
    """R66: `re` took more than a minute for 30 characters of this body."""
    hostile = flow(4, request_body="a" * 1_000_000 + "!", response_body=None)
    begun = time.process_time()
    assert not parse_filter("~bq '^(a|a)+$'")(hostile)
    assert not parse_filter("~bq '(a+)+$'")(hostile)
    assert time.process_time() - begun < 5


def test_an_expression_that_re2_has_not_is_refused_with_the_reason():
    with pytest.raises(FilterError, match=r"'a\(\?=b\)' is no regular expression"):
        parse_filter("~b 'a(?=b)'")


def test_a_text_that_is_too_long_for_its_expression_is_searched_as_far_as_it_may():
    long = flow(5, request_body="first" + "x" * 3_000_000 + "last", response_body=None)
    expression = "(ab?c?d?e?f?g?h?){12}"
    assert parse_filter(f"~b 'first|{expression}'")(long)
    assert not parse_filter(f"~b 'last|{expression}'")(long)


def test_halves_of_characters_are_searched():
    assert parse_filter("~b b$")(flow(6, request_body="\ud800b"))


def test_without_re2_what_repeats_is_refused_and_the_rest_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    expressions.compile_expression.cache_clear()
    try:
        assert parse_filter("~d b\\.test")(POST) and parse_filter("~b zo.")(POST)
        assert not parse_filter("~d ^b\\.test")(POST)
        with pytest.raises(FilterError, match=r"need RE2: pip install"):
            parse_filter("~b 'a*'")
        with pytest.raises(FilterError, match="is no regular expression"):
            parse_filter("~b [")
    finally:
        expressions.compile_expression.cache_clear()


@pytest.mark.parametrize("mark", ["(", "!", "!("])
def test_what_is_nested_deeply_is_refused(mark):
    """A reader's process ended with a traceback in the log, and so did `flows list`."""
    end = ")" if "(" in mark else ""
    most = MOST_DEPTH // len(mark) - 1
    assert parse_filter(mark * most + "~q" + end * most)
    for text in (mark * 5000, mark * 5000 + "~q" + end * 5000):
        with pytest.raises(FilterError, match="within each other"):
            parse_filter(text)
