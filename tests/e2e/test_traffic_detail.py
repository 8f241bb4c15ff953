"""The page "Traffic" in a real browser: the phases of a flow, and views of bodies."""

import base64
import json

import pytest

from tests.capture.flows import row
from tests.support.browser import needs_chromium
from tests.support.traffic import HOSTILE
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
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
    """Before, the page did not show them, and the API had no trailers."""
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


def test_a_long_text_is_whole_though_only_lines_in_view_are_laid_out(page):
    text = "".join(f"line {n}\n" for n in range(50_000))
    page.fill(row(1, response_body=text))
    page.enter()
    page.wait_rows(1)
    page.open()
    page.tab("response")
    shown = "document.querySelector('#response-body pre')"
    wait_until(lambda: page.browser.run(f"!!{shown}?.textContent"), "the text")
    more = "document.querySelector('#response-body .shown button')"
    assert page.browser.run(f"{shown}.textContent.length") <= 300_000
    while page.browser.run(f"!{more}.hidden"):
        page.browser.run(f"{more}.click()")
    assert page.browser.run(f"{shown}.textContent") == text
    assert page.browser.run(f"{shown}.children.length") > 100


def test_grpc_and_forms_are_shown_without_a_definition(page):
    form = ("POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n")
    page.fill(row(
        1, request_head=form, request_body=b"--b\r\nContent-Disposition: form-data; "
        b"name=up; filename=f\r\n\r\n\xff\r\n--b--",
        response_head="HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n\r\n",
        response_body=b"\0\0\0\0\7\x0a\5hello\0\0\0\0\2\x10\1"))
    page.enter()
    page.wait_rows(1)
    page.open()
    assert page.view("request", "form").startswith(
        'up: (file "f", 1 bytes)\n    00000000  ff')
    page.tab("response")
    assert page.view("response", "grpc") == (
        'frame 1: 7 bytes\n1: "hello"\nframe 2: 2 bytes\n2: 1\n')
    assert page.view("response", "protobuf").startswith("(is not a message of protobuf")
    assert page.browser.faults == []


def test_html_is_previewed_without_scripts_and_without_the_network(page, make_origin):
    """Everything that a page could load by itself would ask this origin."""
    origin = make_origin()
    there = origin.url("/leak")
    body = "".join((
        f"<link rel=preconnect href={there}><link rel=stylesheet href={there}>",
        f"<base href={there}><meta http-equiv=refresh content='0;url={there}'>",
        f"<h1 style='background:url({there})'>Head</h1><script src={there}></script>",
        f"<script>pwned=1</script><img src={there} onerror=pwned=1>",
        f"<iframe src={there}></iframe><object data={there}></object>",
        f"<video src={there} autoplay></video>",
        f"<form action={there}><button autofocus>go</button></form>",
        f"<a href={there} ping={there}>a link</a>"))
    page.fill(row(1, response_body=body, response_head="HTTP/1.1 200 OK\r\n"
                  "Content-Type: text/html\r\n\r\n"))
    page.enter()
    page.wait_rows(1)
    page.open()
    page.tab("response")
    assert page.view("response", "html").startswith("<link rel=preconnect")
    page.view("response", "preview")
    assert page.browser.run("document.querySelector('iframe').sandbox.value") == ""
    assert page.browser.run("document.querySelector('iframe').contentDocument") is None
    shown = wait_until(page.browser.frame_text, "the preview")
    assert "Head" in shown and "a link" in shown
    assert origin.connections == []
    assert page.browser.run("typeof pwned") == "undefined"
    assert not any("/leak" in url for url in page.browser.requested)
    assert page.browser.faults == []


def test_even_a_page_that_is_not_cleaned_loads_and_runs_nothing_in_the_preview(
        page, make_origin):
    """The frame and the policy alone are enough: without the proxy's part, too."""
    origin = make_origin()
    page.enter()
    hostile = (f"<link rel=stylesheet href={origin.url('/a')}>"
               f"<img src={origin.url('/b')}>"
               f"<script>top.pwned=1</script><script src={origin.url('/c')}></script>"
               f"<meta http-equiv=refresh content='0;url={origin.url('/d')}'>bare")
    page.browser.run(
        "loaded = false; VIEWS.preview({show: async () => " + json.dumps(hostile) + "})"
        ".then(nodes => { nodes[0].onload = () => { loaded = true; };"
        " document.body.append(...nodes); })")
    wait_until(lambda: "bare" in page.browser.frame_text(), "the frame")
    wait_until(lambda: page.browser.run("loaded"), "all that it would load")
    assert page.browser.run("typeof pwned") == "undefined"
    assert origin.connections == []
