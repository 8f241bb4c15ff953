"""Identity and destination belong to a request, never to the connection (R21, R23)."""

import pytest

from tests.support.client import CREDENTIALS, WRONG
from tests.support.stream import chunked

pytestmark = pytest.mark.any_loop


def test_each_request_of_a_connection_reaches_its_own_origin(proxy, make_origin, dial):
    a, b = make_origin(), make_origin()
    client = dial()

    assert client.get(a.url("/one")).status == 200
    post = client.ask(
        "POST",
        b.url("/two"),
        "Transfer-Encoding: chunked",
        body=chunked([b"first ", b"second"]),
    )
    assert post.status == 200
    head = client.ask("HEAD", a.url("/three"))
    assert (head.status, head.body) == (200, b"")
    refused = client.get(b.url("/four"), auth=WRONG)
    assert (refused.status, refused.error) == (407, "http_request_denied")
    assert refused.get("Connection") != "close" or client.at_eof()

    assert [(r.method, r.target) for r in a.requests] == [
        ("GET", "/one"),
        ("HEAD", "/three"),
    ]
    assert [(r.method, r.target, r.body) for r in b.requests] == [
        ("POST", "/two", b"first second")
    ]
    for secret in (CREDENTIALS.split()[1].encode(), WRONG.split()[1].encode()):
        assert secret not in a.received + b.received
    assert b"proxy-authorization" not in (a.received + b.received).lower()

    by_url = {record["url"]: record for record in proxy.wait_log(4)}
    assert [
        by_url[o.url(p)]["reason"] for o, p in ((a, "/one"), (b, "/two"), (a, "/three"))
    ] == ["ok"] * 3
    assert by_url[b.url("/four")]["reason"] == "auth_failed"
