"""The admin listener and other sites: bounds of a page in an operator's browser, and
its requests that reach the workers (R31, R39)."""

import contextlib
import json

import pytest

from cutthrough.admin.endings import MOST_WATCHERS, MOST_WATCHERS_EACH
from tests.support.admin import AUTHORIZED, Operator, some_tunnels
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

ASKED = ("/", "/metrics", "/config", "/connections", "/connections/0-1/trace",
         "/events", "/healthz", "/nothing")


@pytest.fixture
def start(keep_administered):
    return keep_administered


@contextlib.contextmanager
def watching(operator: Operator, **fields: str):
    """The answer to a watcher of endings, while it watches."""
    with contextlib.closing(operator.connection()) as made:
        made.request("GET", "/events", headers=fields)
        yield made.getresponse()


# Questions

@pytest.mark.parametrize("query", [
    "older=inf", "older=-inf", "older=1e400", "bytes=1e400", "id=x",
    "user=" + "u" * 2000])
def test_what_cannot_be_selected_is_refused_before_a_worker_hears_of_it(
        start, make_origin, dial, query):
    """`older=inf`, which took no token, was a traceback in every worker, and all of
    them were `unanswered`; so it was for a DELETE."""
    proxy, operator = start("workers = 2\n")
    some_tunnels(proxy, make_origin(echo), dial, 1)
    for method in ("GET", "DELETE"):
        status, text = operator.ask(method, f"/connections?{query}", **AUTHORIZED)
        assert status == 400 and query.partition("=")[0] in text, text
    assert "rror" not in proxy.stderr() and "cannot be read" not in proxy.stderr()
    found = json.loads(operator.get("/connections"))
    assert found["unanswered"] == [] and len(found["connections"]) == 1


def test_a_trace_of_what_is_no_identifier_is_refused(start):
    """The worker that made a selector of it had the traceback."""
    proxy, operator = start()
    assert operator.ask("GET", "/connections/x/trace")[0] == 400
    assert operator.ask("GET", "/connections/0-1/trace")[0] == 404
    assert "rror" not in proxy.stderr()


# Callers

@pytest.mark.parametrize("fields", [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://a.test"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
     "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Site": "none, cross-site"}, {"Sec-Fetch-Site": ""},
    {"Origin": "https://a.test"}, {"Origin": "null"}, {"Origin": ""},
    {"Origin": "http://127.0.0.1:1"}, {"Origin": "http://localhost"},
], ids=str)
def test_what_another_site_asks_is_refused(start, fields):
    """A page anywhere could ask on behalf of its reader."""
    proxy, operator = start()
    for path in ASKED:
        status, text = operator.ask("GET", path, **fields)
        assert status == 403 and "site" in text, (path, text)
    for method, path in (("DELETE", "/connections?all=true"), ("POST", "/drain"),
                         ("OPTIONS", "/connections")):
        assert operator.ask(method, path, **fields, **AUTHORIZED)[0] == 403
    assert operator.get("/readyz") and "rror" not in proxy.stderr()


def test_its_own_page_and_programs_are_answered(start):
    """curl, Prometheus and a kubelet's probes send no field that a browser adds."""
    _, operator = start()
    host = f"127.0.0.1:{operator.where}"
    for fields in (
            {}, {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
            {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
            {"Origin": f"http://{host}"}, {"Origin": f"HTTP://{host.upper()}"},
            {"Sec-Fetch-Site": "same-origin", "Origin": f"http://{host}"},
            # Behind a proxy that speaks TLS and has its own name
            {"Sec-Fetch-Site": "same-origin", "Origin": "https://ops.example"}):
        for path in ("/", "/metrics", "/connections", "/healthz"):
            assert operator.ask("GET", path, **fields)[0] == 200, (fields, path)
        status, text = operator.ask("DELETE", "/connections?all=true", **fields,
                                    **AUTHORIZED)
        assert (status, json.loads(text)["cut"]) == (200, 0)


def test_a_link_on_another_site_leads_to_the_page(start):
    """A wiki links to it. But a link to /events takes a place there."""
    _, operator = start()
    fields = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
              "Sec-Fetch-Dest": "document"}
    for path in ("/", "/metrics", "/config"):
        assert operator.ask("GET", path, **fields)[0] == 200
    assert operator.ask("GET", "/events", **fields)[0] == 403
    assert operator.ask("POST", "/drain", **fields, **AUTHORIZED)[0] == 403


def test_no_answer_may_be_framed_or_read_by_another_site(start):
    _, operator = start()
    for method, path in (*(("GET", path) for path in ASKED), ("POST", "/drain"),
                         ("GET", "/connections?older=inf"), ("PUT", "/")):
        with contextlib.closing(operator.connection()) as made:
            made.request(method, path)
            answer = made.getresponse()
            said = (answer.status, path)
            assert answer.getheader("X-Frame-Options") == "DENY", said
            assert "frame-ancestors 'none'" in answer.getheader(
                "Content-Security-Policy", ""), said
            assert answer.getheader(
                "Cross-Origin-Resource-Policy") == "same-origin", said
            assert answer.getheader("X-Content-Type-Options") == "nosniff", said
            assert answer.getheader("Access-Control-Allow-Origin") is None, said


# How many

def test_an_address_has_a_share_of_the_places_to_watch(start):
    """Sixteen tabs, or one page with sixteen requests, took all of them."""
    _, operator = start()
    assert MOST_WATCHERS >= 4 * MOST_WATCHERS_EACH
    with contextlib.ExitStack() as taken:
        for _ in range(MOST_WATCHERS_EACH):
            assert taken.enter_context(watching(operator)).status == 200
        assert operator.ask("GET", "/events") == (
            503, f"too many watchers: {MOST_WATCHERS_EACH} from this address\n")
        assert operator.get("/healthz")
        with watching(Operator(operator.where, "127.0.0.2")) as other:
            assert other.status == 200
    for _ in range(2 * MOST_WATCHERS_EACH):
        assert is_free(operator), "a watcher that has left does not count"


def is_free(operator: Operator) -> bool:
    with watching(operator) as answer:
        return answer.status == 200


def test_the_share_over_a_unix_socket_is_a_users(loop_name, directory, opened):
    """All callers over it have the same, empty address."""
    path = directory("admin") / "socket"
    opened.enter_context(Proxy(
        directory("proxy"), "--admin", f"unix:{path}", loop=loop_name))
    operator = Operator(str(path))
    wait_until(operator.answers, "the socket")
    with contextlib.ExitStack() as taken:
        for _ in range(MOST_WATCHERS_EACH):
            assert taken.enter_context(watching(operator)).status == 200
        assert operator.ask("GET", "/events") == (
            503, f"too many watchers: {MOST_WATCHERS_EACH} from this user\n")
