"""Calls of gRPC inside an interception: why they end is what their clients read."""

import pytest

from tests.support.http2 import CANCEL, ENHANCE_YOUR_CALM, INTERNAL_ERROR
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import HERE
from tests.support.scripted_http2 import ON, speak
from tests.support.scripted_http2 import reach as reach
from tests.support.scripted_http2 import start as start

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

URL = "https://a.example/t.T/Call"
CALL = ("content-type", "application/grpc+proto")
ALLOWED = (f'[[rules]]\nname = "outer"\naction = "allow"\nmethods = ["CONNECT"]\n{HERE}'
           'tls = "intercept"\n'
           f'[[rules]]\naction = "deny"\n{HERE}paths = ["/t.T/Secret"]\n'
           'message = "ask “us”: 100 %"\n'
           f'[[rules]]\naction = "allow"\n{HERE}paths = ["/t.T/*"]\n')


def resets(code: int, begun: bool):
    """An origin that resets each stream by this code, before or behind its head."""
    def answer(speaker: Speaker, stream: int) -> None:
        if begun:
            speaker.h2.send_headers(stream, [(":status", "200"), CALL])
            speaker.h2.send_data(stream, b"\0\0\0\0\1x")
        speaker.h2.reset_stream(stream, code)
    return speak(answer)


@pytest.mark.parametrize("begun", [False, True], ids=["before", "within"])
@pytest.mark.parametrize("code", [CANCEL, ENHANCE_YOUR_CALM])
def test_a_reset_that_says_why_goes_on(start, make_origin, reach, code, begun) -> None:
    """A server of gRPC ends a call behind its deadline by CANCEL, which is
    DEADLINE_EXCEEDED to the client. It was a 502, UNAVAILABLE, or INTERNAL_ERROR."""
    proxy, origin = start(), make_origin(resets(code, begun))
    peer = reach(proxy, origin.port)
    got = peer.wait(peer.get(URL, CALL, method="POST"))
    assert (got.reset, got.ended) == (code, False)
    assert len(got.heads) == begun
    assert proxy.wait_log(1, method="POST")[0]["reason"] == "origin_reset"


def test_a_reset_for_another_reason_is_the_proxys(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(resets(5, begun=True))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get(URL, CALL, method="POST")).reset == INTERNAL_ERROR


def test_other_requests_have_a_reply(start, make_origin, reach) -> None:
    proxy, origin = start(), make_origin(resets(CANCEL, begun=False))
    peer = reach(proxy, origin.port)
    for kind in ("application/grpc-web", "application/json", "text/application/grpc"):
        got = peer.wait(peer.get(URL, ("content-type", kind), method="POST"))
        assert got.status == 502 and got.body.startswith(b"502 origin_reset: ")


def status_of(got) -> tuple[str, str]:
    """Of trailers alone, as gRPC has them: an answer is a head, and ends with it."""
    fields = dict(got.fields)
    assert (got.status, got.body, got.ended) == (200, b"", True)
    assert fields["content-type"] == "application/grpc"
    assert fields["proxy-status"].startswith("cutthrough; error=")
    return fields["grpc-status"], fields["grpc-message"]


def test_a_refused_call_has_a_status_and_a_message(start, make_origin, reach) -> None:
    """Its client read no more of the reply than 403, or 502."""
    proxy = start(policy=ALLOWED)
    origin = make_origin(resets(2, begun=False))
    peer = reach(proxy, origin.port)
    got = [peer.wait(peer.get(f"https://a.example/t.T/{name}", (
        "content-type", kind), method="POST")) for name, kind in (
            ("Secret", "application/grpc"), ("Call", "application/grpc; a=b"))]
    lines = proxy.wait_log(2, method="POST")
    assert [(line["reason"], line["status"]) for line in lines] == [
        ("path_denied", 403), ("origin_reset", 502)]
    assert status_of(got[0]) == (
        "7", "403 path_denied: ask %E2%80%9Cus%E2%80%9D: 100 %25; request "
        + lines[0]["id"])
    assert status_of(got[1]) == (
        "14", "502 origin_reset: the origin reset the connection; request "
        + lines[1]["id"])


def test_a_page_for_browsers_is_no_message(
        start, make_origin, reach, directory) -> None:
    pages = directory("pages")
    (pages / "default.html").write_text("<p>$text")
    proxy = start(ON + f'error_pages = "{pages}"\n')
    peer = reach(proxy, make_origin(resets(2, begun=False)).port)
    got = peer.wait(peer.get(URL, CALL, method="POST"))
    assert status_of(got) == (
        "14", "502 origin_reset: the origin reset the connection")
    got = peer.wait(peer.get(URL, method="POST"))
    assert got.body == b"<p>the origin reset the connection"


def test_a_call_for_another_host_is_misdirected(start, make_origin, reach) -> None:
    """A status of HTTP that clients act upon."""
    proxy, origin = start(), make_origin(resets(CANCEL, begun=False))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get(
        "https://b.example/t.T/Call", CALL, method="POST")).status == 421
