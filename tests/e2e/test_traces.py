"""Spans of captured requests, taken by a real collector; and the field traceparent."""

import contextlib
import re
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.support.admin import Operator
from tests.support.captures import database as database
from tests.support.captures import wait_rows
from tests.support.collector import Collector, values
from tests.support.inside import ask, config, enter, over_tls
from tests.support.inside_http2 import reach as reach
from tests.support.origin import Origin, answer
from tests.support.proxy import command_of
from tests.support.traces import SAMPLED, SPAN, TRACE, UNSAMPLED
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: id=s3cret-6\r\n\r\nok"
RULES = """
[headers.trace.request]
set = { traceparent = "{traceparent}" }
[[rules]]
name = "closed"
action = "deny"
ports = ["1"]
capture = "head"
[[rules]]
name = "begun"
action = "allow"
addresses = ["127.0.0.2/32"]
capture = "head"
headers = ["trace"]
[[rules]]
name = "seen"
action = "allow"
addresses = ["127.0.0.0/8"]
capture = "full"
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with contextlib.closing(Collector()) as running:
        yield running


@pytest.fixture
def start(start_policy, collector):
    def run(config="", **env):
        return start_policy(RULES, f'''trace_url = "{collector.url}"
admin = "127.0.0.1:0"
{config}''', env=env)
    return run


def counted(proxy) -> dict[str, int]:
    port = re.search(r"admin listener on 127\.0\.0\.1:(\d+)", proxy.stderr())[1]
    text = Operator(int(port)).ask("GET", "/metrics")[1]
    return {name: int(float(n)) for name, n in re.findall(
        r'^cutthrough_trace_exchanges_total\{result="(\w+)"\} (\S+)$', text, re.M)}


def wait_counted(proxy, **wanted: int) -> None:
    wait_until(lambda: counted(proxy).items() >= wanted.items(),
               lambda: f"{wanted}: {counted(proxy)} {proxy.stderr()}")


def exporter(proxy) -> psutil.Process:
    def find():
        return [child for child in psutil.Process(proxy.process.pid).children(True)
                if "span_process" in command_of(child)]
    return wait_until(find, "an exporter")[0]


def test_a_request_is_a_span_with_its_phases_and_no_secret(
        start, collector, make_origin, dial):
    proxy = start('redact_query = ["token"]')
    origin = make_origin(answer(OK))
    reply = dial(proxy).get(
        origin.url("/a?token=s3cret-1&b=c"), "Cookie: s3cret-2",
        "Authorization: Bearer s3cret-3", "X-Other: s3cret-4")
    assert reply.status == 200
    span, = collector.wait_exchanges()
    line = proxy.wait_log()[0]
    said = values(span.attributes)
    assert span.name == "GET" and span.status.code == span.status.STATUS_CODE_UNSET
    assert said.pop("cutthrough.request.id") == line["id"]
    assert said.pop("client.port")
    assert said == {
        "http.request.method": "GET", "http.response.status_code": 200,
        "url.full": origin.url("/a?token=[redacted]&b=c"),
        "server.address": "127.0.0.1", "server.port": origin.port,
        "network.peer.address": "127.0.0.1", "network.peer.port": origin.port,
        "client.address": "127.0.0.1", "network.protocol.name": "http",
        "network.protocol.version": "1.1", "http.response.body.size": 2,
        "cutthrough.reason": "ok", "cutthrough.rule": "seen"}
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
    phases = collector.phases(span)
    names = [phase.name for phase in phases]
    assert {"head", "connect", "send", "wait"} <= set(names) and len(set(names)) == len(
        names)
    at = span.start_time_unix_nano
    for phase in phases:
        assert at <= phase.start_time_unix_nano <= phase.end_time_unix_nano
        assert phase.trace_id == span.trace_id
        at = phase.end_time_unix_nano
    assert at <= span.end_time_unix_nano
    assert collector.resources[0]["service.name"] == "cutthrough"
    # R37, R79
    assert not any(b"s3cret" in body or b"pass:word" in body
                   for body in collector.bodies)
    wait_counted(proxy, exported=1, lost=0)


def test_a_user_is_named_if_that_is_allowed(start, collector, make_origin, dial):
    proxy = start("trace_users = true")
    dial(proxy).get(make_origin(answer(OK)).url())
    assert values(collector.wait_exchanges()[0].attributes)["user.name"] == "user"


def test_a_refusal_is_an_error_with_its_reason(start, collector, dial):
    proxy = start()
    assert dial(proxy).get("http://127.0.0.1:1/").status == 403
    span, = collector.wait_exchanges()
    said = values(span.attributes)
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert said["error.type"] == said["cutthrough.reason"] == "destination_denied"
    assert said["http.response.status_code"] == 403


def test_a_tunnel_is_a_span_without_a_url(start, collector, make_origin, dial):
    proxy, origin = start(), make_origin(answer(OK))
    client = dial(proxy)
    client.tunnel(origin.authority)
    client.close()
    span, = collector.wait_exchanges()
    said = values(span.attributes)
    assert span.name == "CONNECT" and "url.full" not in said
    assert said["server.port"] == origin.port


# Sampling, and the field


def test_the_flag_of_a_traceparent_decides_and_it_passes_as_it_came(
        start, collector, make_origin, dial):
    proxy, origin = start("trace_ratio = 0"), make_origin(answer(OK))
    client = dial(proxy)
    client.get(origin.url("/no"), f"traceparent: {UNSAMPLED}", "tracestate: a=b")
    client.get(origin.url("/none"))
    client.get(origin.url("/yes"), f"traceparent: {SAMPLED}", "tracestate: a=b")
    first, second, third = origin.requests
    assert (first.get("traceparent"), first.get("tracestate")) == (UNSAMPLED, "a=b")
    assert second.get("traceparent") is None
    assert (third.get("traceparent"), third.get("tracestate")) == (SAMPLED, "a=b")
    span, = collector.wait_exchanges()
    assert values(span.attributes)["url.full"].endswith("/yes")
    assert span.trace_id.hex() == TRACE and span.parent_span_id.hex() == SPAN
    assert span.span_id.hex() != SPAN
    wait_counted(proxy, exported=1, lost=0)


@pytest.mark.parametrize("field", [
    "X-None: 1", "traceparent: 00-1-2-01", f"traceparent: ff-{TRACE}-{SPAN}-01",
    f"traceparent: {SAMPLED}\r\ntraceparent: {SAMPLED}"])
def test_a_rule_begins_a_trace_that_origin_and_span_share(
        start, collector, database, make_origin, listening_at, dial, field):
    proxy = start(f'capture_file = "{database}"')
    origin = listening_at("127.0.0.2")
    dial(proxy).get(origin.url("/"), field)
    went, = origin.requests[0].all("traceparent")
    version, trace, parent, flags = went.split("-")
    assert (version, flags, len(trace), len(parent)) == ("00", "01", 32, 16)
    span, = collector.wait_exchanges()
    assert span.trace_id.hex() == trace and span.span_id.hex() == parent
    assert span.parent_span_id == b""
    assert f"traceparent: {went}\r\n\r\n" in wait_rows(database)[0]["request_head"]


def test_a_rule_leaves_a_valid_traceparent(start, collector, listening_at, dial):
    proxy = start()
    origin = listening_at("127.0.0.2")
    dial(proxy).get(origin.url("/"), f"Traceparent:  {SAMPLED} ")
    assert origin.requests[0].all("traceparent") == [SAMPLED]
    span, = collector.wait_exchanges()
    assert span.parent_span_id.hex() == SPAN


def test_a_ratio_of_nothing_begins_traces_that_nobody_samples(
        start, collector, listening_at, dial):
    proxy = start("trace_ratio = 0.0")
    origin = listening_at("127.0.0.2")
    client = dial(proxy)
    for _ in range(5):
        client.get(origin.url("/"))
    traces = [request.get("traceparent") for request in origin.requests]
    assert len(set(traces)) == 5 and all(trace.endswith("-00") for trace in traces)
    proxy.wait_log(5)
    wait_counted(proxy, exported=0, lost=0)


@pytest.fixture
def listening_at(opened):
    def listen(host):
        return opened.enter_context(Origin(answer(OK), host))
    return listen


OPENED = """
[headers.trace.request]
set = { traceparent = "{traceparent}" }
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
tls = "intercept"
capture = "head"
headers = ["trace"]
"""


def inner(collector) -> dict:
    """The span of the request inside the tunnel, by wait."""
    def find():
        return [span for span in collector.exchanges() if span.name == "GET"]
    return wait_until(find, "a span of the request inside")[0]


def test_a_request_inside_an_opened_tunnel_has_a_span_and_begins_a_trace(
        start_policy, collector, make_origin, dial):
    proxy = start_policy(OPENED, config(f'trace_url = "{collector.url}"'))
    origin = make_origin(over_tls(answer(OK)))
    client = enter(proxy, dial(proxy), origin.port)
    assert ask(client, "GET", "/a").status == 200
    span, went = inner(collector), origin.requests[0].get("traceparent")
    assert went == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"
    said = values(span.attributes)
    assert said["url.full"] == f"https://a.example:{origin.port}/a"
    assert said["cutthrough.intercepted"] is True


def test_a_field_of_http2_names_the_parent(start_policy, collector, make_origin, reach):
    pytest.importorskip("cutthrough.http2.transport")
    proxy = start_policy(OPENED, config(f'trace_url = "{collector.url}"'))
    origin = make_origin(over_tls(answer(OK)))
    peer = reach(proxy, origin.port)
    reply = peer.wait(peer.get("https://a.example/a", ("traceparent", SAMPLED)))
    assert reply.status == 200
    assert origin.requests[0].all("traceparent") == [SAMPLED]
    assert inner(collector).parent_span_id.hex() == SPAN


# Settings, and losses


def test_a_key_in_the_collector_s_url_is_sent_and_shown_nowhere(
        start_policy, collector, make_origin, dial, tmp_path):
    collector.status = 503                      # the exporter's line quotes its error
    file = tmp_path / "url"
    file.write_text(f"{collector.url}?api-key=s3cret-1\n")
    file.chmod(0o600)
    proxy = start_policy(RULES, f'trace_url_file = "{file}"\nadmin = "127.0.0.1:0"\n')
    assert dial(proxy).get(make_origin(answer(OK)).url("/")).status == 200
    wait_until(lambda: collector.requests, "it is sent")
    assert collector.requests[0][0] == "/v1/traces?api-key=s3cret-1"
    collector.close()
    wait_until(lambda: "/v1/traces?[redacted]" in proxy.stderr(), proxy.stderr)
    port = re.search(r"admin listener on 127\.0\.0\.1:(\d+)", proxy.stderr())[1]
    shown = Operator(int(port)).ask("GET", "/config")[1]
    assert "trace_url is set" in shown and "s3cret" not in shown + proxy.stderr()


def test_fields_and_resource_are_those_of_the_environment(
        start, collector, make_origin, dial):
    proxy = start(OTEL_EXPORTER_OTLP_HEADERS="api-key=s3cret",
                  OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
                  OTEL_SERVICE_NAME="edge", HTTP_PROXY="http://127.0.0.1:9")
    dial(proxy).get(make_origin(answer(OK)).url())
    collector.wait_exchanges()
    path, fields = collector.requests[0]
    assert path == "/v1/traces" and fields["api-key"] == "s3cret"
    assert collector.resources[0]["service.name"] == "edge"
    assert collector.resources[0]["deployment.environment.name"] == "test"
    assert "s3cret" not in proxy.stderr()


def test_a_collector_that_refuses_costs_spans_that_are_counted(
        start, collector, database, make_origin, dial):
    proxy = start(f'capture_file = "{database}"')
    collector.status = 400                   # which is not repeated
    assert dial(proxy).get(make_origin(answer(OK)).url()).status == 200
    wait_counted(proxy, exported=0, lost=1)
    wait_rows(database)


def test_a_collector_that_hangs_delays_no_capture_and_no_request(
        start, collector, database, make_origin, dial):
    proxy = start(f'capture_file = "{database}"', OTEL_EXPORTER_OTLP_TIMEOUT="120")
    collector.go_on.clear()
    client, origin = dial(proxy), make_origin(answer(OK))
    for _ in range(20):
        assert client.get(origin.url()).status == 200
    wait_rows(database, 20)
    assert not collector.exchanges()
    collector.go_on.set()
    collector.wait_exchanges(20)
    wait_counted(proxy, exported=20, lost=0)


def test_spans_are_lost_with_their_process_and_another_one_begins(
        start, collector, make_origin, dial, database):
    proxy = start(f'capture_file = "{database}"')
    client, origin = dial(proxy), make_origin(answer(OK))
    collector.go_on.clear()
    client.get(origin.url())
    exporter(proxy).send_signal(signal.SIGKILL)
    wait_counted(proxy, exported=0, lost=1)
    collector.go_on.set()

    def asks_again():
        client.get(origin.url("/again"))
        return any(values(span.attributes)["url.full"].endswith("/again")
                   for span in collector.exchanges())
    wait_until(asks_again, "spans of another process")


def test_what_is_left_is_exported_when_the_program_ends(
        start, collector, make_origin, dial):
    proxy, origin = start(), make_origin(answer(OK))
    with contextlib.closing(dial(proxy)) as client:
        client.get(origin.url())
        collector.wait_exchanges()           # its process has started
        for _ in range(10):
            client.get(origin.url())
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.process.wait(60) == 0
    assert len(collector.wait_exchanges(11)) == 11


def test_a_reload_begins_and_ends_traces(start_policy, collector, make_origin, dial,
                                         database):
    proxy = start_policy(RULES, f'capture_file = "{database}"\nredact_query = ["x"]')
    client, origin = dial(proxy), make_origin(answer(OK))
    client.get(origin.url("/before"))
    # A writer that a reload replaces while it begins writes what comes meanwhile, too
    wait_rows(database, 1)
    text = proxy.config_file.read_text()
    proxy.config_file.write_text(f'trace_url = "{collector.url}"\n{text}')
    assert "generation" in proxy.hup()
    asked = 0

    def traced():
        nonlocal asked
        asked += 1
        assert client.get(origin.url("/traced")).status == 200
        return collector.exchanges()

    wait_until(traced, "a span")             # by the writer that comes after the reload
    wait_rows(database, 1 + asked)
    proxy.config_file.write_text(text)
    assert "generation" in proxy.hup()
    client.get(origin.url("/after"))
    wait_rows(database, 2 + asked)
    assert {values(span.attributes)["url.full"].rpartition("/")[2]
            for span in collector.exchanges()} == {"traced"}
