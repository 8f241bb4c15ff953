"""Pages of flows that pass a filter: by some columns first, and by whole rows."""

import pytest

from cutthrough.capture import selection
from cutthrough.capture.filters import parse_filter, read_filter
from cutthrough.capture.query import Query
from cutthrough.storage.stores import open_reader, open_store
from tests.capture.flows import row

ROWS = [row(n, host=f"h{n % 7}.test", url=f"http://h{n % 7}.test/{n}",
            method="POST" if n % 5 == 0 else "GET", user=None if n % 3 else "ann",
            status=None if n % 11 == 0 else 200 + n % 300,
            reason="connect_refused" if n % 11 == 0 else "ok", sni=None,
            peer=None if n % 2 else "192.0.2.1")
        for n in range(1, 1300)]
NARROW = ["~d ^h3", "h5", '"h5.test/1"', "~m post & !~d h1", "~c 404 | ~c 2xx", "~e",
          "~user ann ~src 5000", "!(~dst 192.0.2.1:80 | ~rule here)", "~reason ^ok$",
          "~sni x", "!~ja4 ."]
WHOLE = ["~h accept", "~b hello & ~d ^h3", "~tag odd", "~comment a", "~q", "~dur >1ms",
         "~program x", "~time >2000-01-01", "", "  "]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("flows") / "flows.db")
    store = open_store(path, 0, 0, 0)
    store.write(ROWS)
    store.close()
    reader = open_reader(path)
    reader.mark(3, "odd", "a")
    yield reader
    reader.close()


@pytest.mark.parametrize("filter", NARROW + WHOLE)
@pytest.mark.parametrize("at", [{}, {"before": 900}, {"after": 0}, {"after": 1290}])
@pytest.mark.parametrize("limit", [1, 40, 5000])
def test_a_page_has_the_flows_that_pass_whichever_way_they_are_read(
        reader, monkeypatch, filter, at, limit):
    """Before, whole rows were read of all."""
    monkeypatch.setattr(selection, "PAGE_S", 60)
    query = Query(verb="list", database="", filter=filter, **at)
    flows, last = selection.select(reader, query, limit)
    test = parse_filter(filter)
    wanted = [flow for _, flow in selection.look(reader, query, test, limit) if flow]
    assert [flow.as_dict() for flow in flows] == [
        flow.as_dict() for flow in wanted[:limit]]
    if len(wanted) > limit:
        assert last and [flow.id for flow in flows] == [
            flow.id for flow in wanted[:limit]]
    elif len(wanted) < limit and "after" not in at:
        assert last == 0
    assert [flow.request_head for flow in flows[:3]] == [
        flow.request_head for flow in wanted[:limit][:3]]


def test_columns_are_enough_for_some_filters_alone():
    assert [read_filter(text)[1] for text in (
        "~d a", "a", "~d a ~c 404", "~src a", "!~d a | (~m b)")] == [
        ("host",), ("url",), ("status", "host"), ("client", "client_port"),
        ("host", "method")]
    assert {read_filter(text)[1] for text in WHOLE} == {()}
    assert all(read_filter(text)[1] for text in NARROW)


def test_no_more_rows_are_read_than_a_page_without_a_filter_has(reader, monkeypatch):
    asked = []
    page = reader.page
    monkeypatch.setattr(reader, "page", lambda at, most, **more: (
        asked.append(most), page(at, most, **more))[1])
    selection.select(reader, Query(verb="list", database=""), 45)
    assert asked == [46]
