"""The metrics: every name of docs/conventions.md, and no label from the wire (R38)."""

import re
import threading
from collections.abc import Mapping, Sequence

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cutthrough.admin import rule_metrics
from cutthrough.admin.metrics import Configuration, Reading, render
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.model.counters import (
    BUCKETS,
    FIELDS,
    PAGE_BYTES,
    PARENT_GAUGES,
    PARENT_TOTALS,
    TALLIES,
    Page,
    read_page,
)
from tests.support import starter
from tests.support.admin import Operator
from tests.support.client import CREDENTIALS, WRONG, Client, build_request
from tests.support.origin import Origin, echo
from tests.support.proxy import ROOT, Proxy, clean_environment
from tests.support.wait import wait_until

NAME = re.compile(r"`cutthrough_(\w+)`")


def promised() -> set[str]:
    text = (ROOT / "docs/conventions.md").read_text()
    section = text.partition("## Metrics\n")[2].partition("\n## ")[0]
    names = set(NAME.findall(section))
    assert len(names) > 20
    return names


def families(exposition: bytes | str) -> dict[str, list]:
    text = exposition if isinstance(exposition, str) else exposition.decode()
    found: dict[str, list] = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, []).extend(family.samples)
    return found


def names_in(exposition: bytes | str) -> set[str]:
    """As they are queried: counters with _total, histograms without their parts."""
    return {name.removeprefix("cutthrough_")
            for family, samples in families(exposition).items()
            for name in (family, *(sample.name for sample in samples))}


def reading(pages: Sequence[Mapping[str, int]],
            living: Mapping[int, Mapping[str, int]] = {},
            workers: Mapping[int, int] = {}) -> Reading:
    return Reading(pages, living, workers, deaths=dict.fromkeys(workers, 0),
                   configuration=Configuration(1, 0.0, {"ok": 0}))


# The page

def test_a_reader_changes_nothing():
    page = bytearray(PAGE_BYTES)
    Page(page).add("log_dropped", 7)
    page[FIELDS.index("live") * 8] = 3                   # a gauge of a living worker
    before = bytes(page)
    assert read_page(memoryview(page).toreadonly())["live"] == 3
    assert bytes(page) == before


def test_a_successor_goes_on_with_totals_and_begins_gauges_anew():
    page = bytearray(PAGE_BYTES)
    first = Page(page)
    first.add("dns_hit", 5)
    gauges = ("lag_us", "due_us", "upstream_idle", "dns_entries")
    for gauge in gauges:
        first.set(gauge, 9)
    second = Page(page).read()
    assert second["dns_hit"] == 5
    assert not any(second[name] for name in gauges)


def test_a_page_that_is_too_small_is_refused():
    for make in (Page, read_page):
        with pytest.raises(ValueError):
            make(bytearray(PAGE_BYTES - 1))


# The exposition

def test_every_promised_name_is_there_before_anything_happened():
    made = Page()
    made.add_listener("127.0.0.1:8888")
    made.write_parents([(name, [0] * len(PARENT_GAUGES), [0] * len(PARENT_TOTALS))
                        for name in ("corp", "api/127.0.0.1:80")])
    made.write_tallies((name, [0] * len(TALLIES)) for name in ("rule a", "group b"))
    page = made.read()
    text, _ = render(reading([page], {1: page}, {0: 1}))
    assert promised() <= names_in(text)


def test_every_name_is_promised():
    """A metric that docs/conventions.md did not list was noticed by no test."""
    page = Page().read()
    text = render(reading([page], {1: page}, {0: 1}))[0].decode()
    assert {family.name.removeprefix("cutthrough_")
            + ("_total" if family.type == "counter" else "")
            for family in text_string_to_metric_families(text)} <= promised()


def test_a_listener_keeps_its_number_and_too_many_share_one():
    memory = bytearray(PAGE_BYTES)
    assert [Page(memory).add_listener(f"192.0.2.1:{port}") for port in (1, 2, 1)] == [
        0, 1, 0]
    page = Page(memory)
    numbers = [page.add_listener(f"192.0.2.2:{port}") for port in range(20)]
    assert numbers == [*range(2, 15), *[15] * 7]
    text = render(reading([page.read()]))[0].decode()
    assert text.count('cutthrough_connections_total{listener="192.0.2.') == 15
    assert 'cutthrough_connections_total{listener="others"} 0.0' in text


def test_a_parent_keeps_its_row_and_too_many_share_one():
    memory = bytearray(PAGE_BYTES)
    page = Page(memory)
    gauges = [1] * len(PARENT_GAUGES)
    for _ in range(2):
        page.write_parents((f"p{n}", gauges, [1] * len(PARENT_TOTALS))
                           for n in range(40))
    read = page.read()
    assert [read[f"parent:{name} requests"] for name in ("p0", "p30", "others")] == [
        2, 2, 18]
    assert "parent:p31 requests" not in read and read["parent:others state"] == 0
    assert Page(memory).read()["parent:p0 state"] == 0


def test_totals_of_the_dead_stay_and_their_gauges_go():
    dead, alive = Page(), Page()
    for page in (dead, alive):
        page.add("dns_hit", 5)
        page.set("dns_entries", 9)
    found = families(render(reading(
        [dead.read(), alive.read()], {2: alive.read()}, {0: 2, 1: 0}))[0])
    hits = [sample.value for sample in found["cutthrough_dns_queries"]
            if sample.labels == {"result": "hit"}]
    assert hits == [10]
    assert found["cutthrough_dns_cache_entries"][0].value == 9
    assert [(s.labels["worker"], s.value) for s in found["cutthrough_worker_up"]] == [
        ("0", 1), ("1", 0)]


def test_buckets_are_cumulative_and_in_seconds():
    page = Page()
    for name, count in (("1", 2), ("1000", 3), ("more", 1), ("sum_us", 2_500_000)):
        page.add(f"tunnel_ms:{name}", count)
    samples = families(render(reading([page.read()]))[0])[
        "cutthrough_tunnel_duration_seconds"]
    buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")}
    assert len(buckets) == len(BUCKETS) + 1
    assert (buckets["0.001"], buckets["0.5"], buckets["1.0"], buckets["+Inf"]) == (
        2, 2, 5, 6)
    ends = {s.name.rpartition("_")[2]: s.value for s in samples}
    assert (ends["count"], ends["sum"]) == (6, 2.5)


# With a proxy

@pytest.fixture(scope="module")
def forks():
    with starter.running(clean_environment(), str(ROOT)):
        yield


@pytest.fixture
def proxy(tmp_path, forks):
    path = tmp_path / "admin"
    with Proxy(tmp_path, "--admin", f"unix:{path}", "--workers", "2") as running:
        wait_until(path.exists, "the socket")
        yield running, Operator(str(path))


@pytest.mark.dials_out                      # .invalid: a name server is queried
def test_no_label_comes_from_the_wire(proxy):
    """The same series for any request, but for methods and codes of our tables."""
    running, operator = proxy
    evil = "evil-label"
    before = set(operator.metrics())
    with Origin() as origin, Origin(status_of_its_own) as strange:
        for head in (
            build_request("GET", f"http://{evil}.invalid/"),
            build_request(evil.upper(), origin.url()),
            build_request("GET", origin.url(f"/{evil}"), f"{evil}: {evil}"),
            build_request("GET", origin.url(), auth=f"Basic {evil}"),
            build_request("GET", origin.url(), auth=WRONG),
            build_request("CONNECT", f"{evil}.invalid:443"),
            build_request("GET", strange.url()),
            f"GET {origin.url()} HTTP/1.1\r\nHost: {evil}\r\n"
            f'Proxy-Authorization: {CREDENTIALS}\r\nX: "}} {evil}{{\r\n\r\n'.encode(),
        ):
            with Client(running.port) as client:
                client.send(head)
                client.read_response("CONNECT" if head[:3] == b"CON" else "GET")
    text = operator.get("/metrics")
    assert evil not in text.lower()
    more = set(operator.metrics()) - before
    assert all(name.startswith("requests_total{") for name in more), more
    assert 'requests_total{code="200",method="OTHER"}' in more
    assert 'requests_total{code="OTHER",method="GET"}' in more
    reasons = set(re.findall(r'reason="(\w+)"', text))
    assert reasons <= {row.label for row in OUTCOMES}


def status_of_its_own(conn) -> None:
    conn.note(conn.read_head())
    conn.send(b"HTTP/1.1 666 Whatever\r\nContent-Length: 0\r\n\r\n")


def test_what_happened_is_counted_once(proxy):
    running, operator = proxy
    with Origin() as origin, Origin(echo) as other:
        with Client(running.port) as client:
            for _ in range(3):
                assert client.get(origin.url()).status == 200
            assert client.get(origin.url(), auth=WRONG).status == 407
        tunnels = [Client(running.port).tunnel(other.authority) for _ in range(4)]
        for tunnel in tunnels:
            tunnel.send(b"12345")
            assert tunnel.read_exact(5) == b"12345"
        now = operator.metrics()
        assert now["tunnels"] == now['connections{state="tunnel"}'] == 4
        for tunnel in tunnels:
            tunnel.close()
        running.wait_log(8)
    now = operator.metrics()
    assert now["tunnels"] == 0
    assert now['tunnels_total{reason="ok"}'] == 4
    assert now["tunnel_duration_seconds_count"] == 4
    listener = f'{{listener="127.0.0.1:{running.port}"}}'
    assert now[f"connections_total{listener}"] == 5
    assert 4 <= now["connections_peak"] <= 5
    assert now['requests_total{code="200",method="GET"}'] == 3
    assert now['requests_total{code="407",method="GET"}'] == 1
    assert now['requests_total{code="200",method="CONNECT"}'] == 4
    assert now['auth_total{result="ok"}'] == 7
    assert now['auth_total{result="auth_failed"}'] == 1
    assert now["first_byte_seconds_count"] == 3
    assert now["request_duration_seconds_count"] == 3, "no tunnel, nothing refused"
    assert now['connect_seconds_count{family="ipv4"}'] == (
        now['upstream_total{how="dialled"}']) == 5
    assert now['upstream_total{how="reused"}'] == 2
    assert now['worker_up{worker="0"}'] == now['worker_up{worker="1"}'] == 1
    assert now['bytes_total{direction="up",path="copy"}'] >= 20
    assert 'process_resident_memory_bytes{worker="supervisor"}' in now


def test_each_process_tells_its_limit_of_descriptors(proxy):
    """The alert compared with 1048576, which many a host or container has not."""
    running, operator = proxy
    now = operator.metrics()
    for slot, worker in enumerate(sorted(running.workers(), key=lambda one: one.pid)):
        most = worker.rlimit(psutil.RLIMIT_NOFILE)[0]
        assert now[f'process_max_fds{{worker="{slot}"}}'] == most
        assert now[f'process_open_fds{{worker="{slot}"}}'] < most


@pytest.mark.parametrize("count, path", [(1000, "copy"), (8 << 20, "splice")])
def test_bytes_of_a_tunnel_are_counted_while_it_runs(proxy, count, path):
    """They were at its end: of a tunnel that ran for a day nothing was to be seen."""
    running, operator = proxy
    with Origin(echo) as origin, Client(running.port) as client:
        client.tunnel(origin.authority)
        sender = threading.Thread(target=client.send, args=(bytes(count),))
        sender.start()
        client.read_exact(count)
        sender.join()

        def moved(metrics, way):
            return [metrics[f'bytes_total{{direction="{way}",path="{name}"}}']
                    for name in (path, "splice" if path == "copy" else "copy")]

        # The worker counts bytes after it has sent them
        before = wait_until(
            lambda: (seen := operator.metrics()) and all(
                sum(moved(seen, way)) == count for way in ("up", "down")) and seen,
            "all bytes")
        assert all(moved(before, way)[0] > count / 2 for way in ("up", "down"))
    running.wait_log(1)
    after = operator.metrics()
    assert after["tunnels"] == 0
    assert {name: after[name] for name in after if name.startswith("bytes_total")} == {
        name: before[name] for name in before if name.startswith("bytes_total")}


def test_bytes_of_a_download_are_counted_while_it_runs(proxy):
    running, operator = proxy
    with Origin(half) as origin, Client(running.port) as client:
        client.send(build_request("GET", origin.url()))
        assert client.read_head().status == 200
        client.read_exact(100_000)
        wait_until(lambda: operator.metrics()[
            'bytes_total{direction="down",path="copy"}'] > 100_000, "half of it")


def half(conn) -> None:
    conn.note(conn.read_head())
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + bytes(100_000))
    conn.stall()


def test_each_listener_counts_its_own(tmp_path):
    path = tmp_path / "admin"
    with Proxy(tmp_path, "--admin", f"unix:{path}", "--listen", "[::1]:0") as running:
        wait_until(path.exists, "the socket")
        first, second = running.ports
        operator = Operator(str(path))
        for port, host in ((first, "127.0.0.1"), (second, "::1"), (second, "::1")):
            with Client(port, host) as client:
                client.send(b"\r\n\r\n:")
                client.read_response()
        now = operator.metrics()
        assert now[f'connections_total{{listener="127.0.0.1:{first}"}}'] == 1
        assert now[f'connections_total{{listener="[::1]:{second}"}}'] == 2


def test_the_beat_tells_of_names_and_idle_connections(proxy):
    running, operator = proxy
    with Origin() as origin, Client(running.port) as client:
        assert client.get(f"http://localhost:{origin.port}/").status == 200
        wait_until(
            lambda: operator.metrics()['dns_queries_total{result="answered"}'] == 1,
            "one answer")
        now = operator.metrics()
        assert now["dns_cache_entries"] == 1
        assert now['upstream_pool{state="idle"}'] == 1
        assert 0 <= now['loop_lag_seconds{worker="0"}'] < 15, "in seconds"


def test_a_worker_that_died_leaves_its_totals(proxy):
    running, operator = proxy
    with Origin() as origin:
        for _ in range(20):
            with Client(running.port) as client:
                assert client.get(origin.url()).status == 200
    running.wait_log(20)
    before = {worker.pid for worker in running.workers()}
    for worker in running.workers():
        worker.kill()
    wait_until(lambda: len(running.workers()) == 2 and not before & {
        worker.pid for worker in running.workers()}, "two others")
    wait_until(lambda: operator.metrics()['worker_up{worker="1"}'] == 1
               and operator.metrics()['worker_up{worker="0"}'] == 1, "ready")
    now = operator.metrics()
    assert now['requests_total{code="200",method="GET"}'] == 20
    assert sum(value for name, value in now.items()
               if name.startswith("connections{")) == 0


def test_rules_beyond_the_rows_are_others():
    """R38: the labels are bounded, whatever a policy has."""
    made = Page()
    made.write_tallies((f"rule {n}", [1, 2, n, 0, n]) for n in range(200))
    made.write_tallies([("rule 3", [1, 0, 0, 0, 0])])
    found = rule_metrics.read_tallies(reading([made.read(), made.read()]))
    assert len(found) == 96 and found["others"]["passed"] == 2 * (200 - 95)
    assert found["rule 3"] == {
        "passed": 4, "refused": 4, "id": 3, "worker": 0, "at_ms": 3}
