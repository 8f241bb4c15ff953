"""The page "Traffic" in a real browser: the phases of a flow, and views of bodies."""

import base64

import pytest

from tests.capture.flows import row
from tests.e2e.test_traffic_page import HOSTILE
from tests.e2e.test_traffic_page import page as page
from tests.support.browser import PROGRAM
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    # 270 MB to load: `make browser` installs it, and CI does not
    pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed"),
    pytest.mark.dials_out,                   # Chromium asks if IPv6 has a route
]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg==")


def waterfall(page):
    """Of each row: name, duration, begin and width in percent, class of the bar."""
    page.tab("timing")
    return page.browser.run(
        "[...document.querySelectorAll('#waterfall tr')].map(r => { const bar ="
        " r.querySelector('i'); return [r.cells[0].textContent, r.cells[1].textContent,"
        " Math.round(parseFloat(bar.style.marginLeft)),"
        " Math.round(parseFloat(bar.style.width)), bar.className]; })")


def test_handshakes_and_holding_are_phases(page):
    """Before, the page had no row for them. Of a request the client's handshake comes
    first, of an intercepted CONNECT last; when a message was held is not known."""
    without = dict.fromkeys(("auth_us", "dns_us", "send_us", "wait_us", "receive_us"))
    page.fill(
        row(1, **without, head_us=1000, connect_us=2000, origin_tls_us=3000,
            held_us=1000, client_tls_us=2000, total_us=8000),
        row(2, kind="tunnel", method="CONNECT", url="a.test:443", intercepted=1,
            **without, head_us=1000, connect_us=1000, origin_tls_us=3000,
            client_tls_us=5000, total_us=10_000, request_head=None, response_head=None,
            request_body=None, response_body=None),
        row(3, **without, head_us=1000, connect_us=None, total_us=1000))
    page.enter()
    page.wait_rows(3)
    page.open(2)
    assert waterfall(page) == [
        ["TLS with the client", "2.00 ms", 0, 20, ""],
        ["read the head", "1.00 ms", 20, 10, ""],
        ["connect", "2.00 ms", 30, 20, ""],
        ["TLS behind the proxy", "3.00 ms", 50, 30, ""],
        ["held by filters, breakpoints", "1.00 ms", 80, 10, "loose"]]
    assert page.text("#panel").rpartition("\n")[2].startswith(
        "8.00 ms in all, 1.00 ms of it in no phase. The client's handshake was before "
        "that. At which time a message was held is not known.")
    page.open(1)
    assert [line[::2] for line in waterfall(page)] == [
        ["read the head", 0, ""], ["connect", 10, ""], ["TLS behind the proxy", 20, ""],
        ["TLS with the client", 50, ""]]
    page.open(0)
    assert waterfall(page) == [["read the head", "1.00 ms", 0, 100, ""]]
    assert page.text("#panel").rpartition("\n")[2].startswith("1.00 ms in all. Phases")
    assert page.browser.faults == []


def test_versions_trailers_and_the_reason_of_a_refusal_are_shown(page):
    """Before, the page had none of them, and the API no trailers."""
    why = "unable to get local issuer certificate"
    page.fill(row(1, reason="origin_certificate", detail=why, client_http="2",
                  origin_http="1.1", request_trailers="X-Sum: 7\r\n",
                  response_trailers=f"grpc-status: 5\r\ngrpc-message: {HOSTILE}\r\n"))
    page.enter()
    page.wait_rows(1)
    page.open()
    assert page.text("#request-trailers") == "X-Sum: 7\n"
    page.tab("response")
    assert page.text("#response-trailers").splitlines() == [
        "grpc-status: 5", f"grpc-message: {HOSTILE}"]
    decision = page.tab("decision")
    for line in (f"why\t{why}", "HTTP with the client\t2",
                 "HTTP behind the proxy\t1.1"):
        assert line in decision
    assert page.browser.faults == []


def test_an_image_and_a_body_of_bytes_are_shown(page):
    def head(kind):
        return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n"

    page.fill(row(1, response_head=head("image/png"), response_body=PIXEL),
              row(2, response_head=head("image/png"), response_body=b"\x00none"),
              row(3, response_head=head("application/x-odd"),
                  response_body=bytes(range(256)) * 100))
    page.enter()
    page.wait_rows(3)
    page.open(2)
    page.tab("response")
    wait_until(lambda: "1 × 1" in page.view("response", "image"), "the picture")
    page.open(1)
    wait_until(lambda: "cannot be read as an image" in page.text("#panel"), "a word")
    page.browser.faults.clear()
    page.open(0)
    shown = page.view("response", "hex")
    assert shown.count("\n") == 1024 and "more: " in shown
    page.browser.click("#response-body .shown button")
    assert page.text("#response-body .shown").rstrip().splitlines()[-1].startswith(
        "000063f0  f0 f1")
    assert page.browser.faults == []
