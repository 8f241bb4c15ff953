"""Any archive of ours is equal after an import and another export, byte by byte."""

import base64
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutthrough.exchange.columns import COLUMNS
from cutthrough.exchange.flow import Flow
from cutthrough.exchange.formats.har import make_archive
from cutthrough.exchange.formats.har_reader import read_archive
from cutthrough.exchange.formats.imported import make_redactor, make_row
from tests.capture.flows import flow
from tests.capture.har_flows import UPGRADED

REDACTOR = make_redactor(keep_credentials=True)
NAMES = st.from_regex(r"X-[A-Za-z0-9]{1,6}", fullmatch=True)
# Valid in a head: latin-1, without controls and without blanks at an end
VALUES = st.text([chr(code) for code in (*range(0x20, 0x7f), *range(0xa0, 0x100))],
                 max_size=15).map(str.strip)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
                max_size=30)
BODIES = TEXTS | st.binary(min_size=1, max_size=30).map(lambda data: b"\xff" + data)
SIZES = st.none() | st.integers(0, 1 << 40)
TIMES = st.none() | st.integers(0, 10**10)
STATES = st.sampled_from([None, "truncated", "incomplete", "encoded", "redacted"])
PHASES = ("head", "auth", "hook", "held", "dns", "connect", "client_tls", "origin_tls",
          "send", "wait", "receive")
# Status, and the method if the answer has no body because of it
ANSWERS = st.sampled_from([(200, "GET"), (200, "POST"), (200, "HEAD"), (304, "GET"),
                           (204, "DELETE"), (206, "GET"), (404, "get"), (599, "M-X")])


def head(line, fields, *more):
    return "".join(f"{one}\r\n" for one in (
        line, *(f"{name}: {value}" for name, value in fields), *more, ""))


@st.composite
def requests(draw, number=1):
    """Captures that a rule may make, with each number and text drawn by itself."""
    status, method = draw(ANSWERS)
    target = draw(st.text([chr(code) for code in range(0x21, 0x7f) if code != 35],
                          max_size=20))
    answered = draw(st.booleans() | st.just(True))
    kind = draw(st.sampled_from(["", "text/plain", "image/png", "application/json"]))
    typed = [f"Content-Type: {kind}"] if kind else []
    length = [f"Content-Length: {draw(st.integers(0, 10**9))}"] if draw(
        st.booleans()) else []
    coding = ["Content-Encoding: gzip"] if draw(st.booleans()) else []
    has_body = method != "HEAD" and status not in (204, 304) and answered
    return flow(
        number, method=method, url=f"http://a.test/{target}",
        begun_us=draw(st.integers(0, 4 * 10**15)),
        status=status if answered else draw(st.sampled_from([None, 502])),
        reason=draw(st.sampled_from(["ok", "origin_reset"])) if answered else "failed",
        request_head=head(f"{method} /{target} HTTP/1.1", draw(FIELDS)),
        response_head=head(f"HTTP/1.1 {status} {draw(VALUES)}", draw(FIELDS), *typed,
                           *length, *coding) if answered else None,
        request_body=draw(BODIES | st.just("")), request_body_state=None,
        response_body=draw(BODIES) if has_body else None,
        response_body_state=draw(STATES) if has_body else None,
        peer=draw(st.sampled_from([None, "192.0.2.1", "2001:db8::1"])),
        user=draw(st.sampled_from([None, "ann"])),
        **{f"{name}_us": draw(TIMES) for name in PHASES},
        **{f"{side}_{what}_bytes": draw(SIZES) for side in ("request", "response")
           for what in ("head", "body", "content")})


@st.composite
def websockets(draw, number=1):
    def message():
        text = draw(TEXTS)
        return {"at_us": draw(st.integers(0, 4 * 10**15)), "bytes": len(text.encode()),
                "side": draw(st.sampled_from(["request", "response"])),
                "kind": draw(st.sampled_from(["text", "binary"])), "text": text}

    made = [message() for _ in range(draw(st.integers(0, 3)))]
    for one in made:
        if draw(st.booleans()):
            data = b"\xff" + one.pop("text").encode()
            one |= {"base64": base64.b64encode(data).decode(), "bytes": len(data)}
    return flow(number, kind="tunnel", status=101, response_head=UPGRADED,
                request_body=None, response_body=None, messages=json.dumps(made),
                begun_us=draw(st.integers(0, 4 * 10**15)),
                **{f"{side}_{what}_bytes": None for side in ("request", "response")
                   for what in ("body", "content")})


@st.composite
def captures(draw):
    """With the CONNECT of an interception, and a tunnel."""
    made = [draw(st.one_of(requests(number), requests(number), websockets(number)))
            for number in range(draw(st.integers(1, 3)))]
    return [*made, flow(90, method="CONNECT", url="a.test:443"),
            flow(91, kind="tunnel", method="CONNECT", url="a.test:443")]


@settings(max_examples=500, deadline=None,
          suppress_health_check=[HealthCheck.too_slow])
@given(captures())
def test_an_archive_is_equal_after_an_import_and_an_export(flows):
    first = make_archive(flows)
    assert len(first["log"]["entries"]) == len(flows) - 2
    text = json.dumps(first)
    rows = [make_row(one, REDACTOR) for one in read_archive(text.encode())]
    assert json.dumps(make_archive(
        Flow(dict(zip(("id", *COLUMNS), (number, *row), strict=True)))
        for number, row in enumerate(rows))) == text
