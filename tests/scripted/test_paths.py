"""Rules about paths, in force: the judged path goes up, octet by octet (R56).

The meaning of a path is in tests/policy/test_acl_paths.py. tests/e2e/test_matrix.py
shows that every way in has these rules.
"""

import pytest

from tests.support.client import build_request
from tests.support.policies import LOCAL


@pytest.fixture
def start(keep_policy):
    return keep_policy

API = """
    [[rules]]
    name = "api"
    action = "allow"
    addresses = ["127.0.0.0/8"]
    paths = ["/api/**", "/health"]
"""

NO_ADMIN = """
    [[rules]]
    name = "no admin"
    action = "deny"
    paths = ["/admin/**"]
""" + LOCAL

UNCLEAR = (
    "/api/../admin", "/api/./x", "/api/%2e%2e/admin", "/api/.%2E/admin", "/api//x",
    "//api/x", "/api/..%2fadmin", "/api%2Fx", "/api/a%5cb", "/api/a\\b",
    "/api/..;/admin", "/api/%252e%252e/admin", "/api/%00", "/api/%0d%0aX:y",
    "/api/%c0%ae%c0%ae/admin", "/api/%", "/api/%zz", "/api;v=1/../x")



def test_only_the_named_paths_pass(start, make_origin, dial):
    proxy, origin = start(API), make_origin()
    for path in ("/api", "/api/", "/api/a.b/c?d=/../e", "/health?x"):
        assert dial(proxy).get(origin.url(path)).status == 200
    for path in ("/", "/apis", "/API/a", "/health/", "/?/api/"):
        reply = dial(proxy).get(origin.url(path))
        assert (reply.status, reply.error) == (403, "http_request_denied")
    lines = proxy.wait_log(9)
    assert [(line["reason"], line["rule"]) for line in lines[:4]] == [("ok", "api")] * 4
    assert {(line["reason"], line["rule"]) for line in lines[4:]} == {
        ("path_denied", "default")}
    assert len(origin.requests) == 4


def test_what_passes_goes_up_as_it_came(start, make_origin, dial):
    """RFC 9110 section 7.7: a proxy changes no path."""
    proxy, origin = start(API), make_origin()
    paths = ["/api/%7Euser", "/api/%c3%a9", "/api/a;v=1", "/api/%20a%22",
             "/api/{a}|[b]", "/api/a%3Ab?%2f=..//%00"]
    client = dial(proxy)
    assert [client.get(origin.url(path)).status for path in paths] == [200] * len(paths)
    assert [request.target for request in origin.requests] == paths


@pytest.mark.parametrize(("policy", "rule"), [(API, "default"), (NO_ADMIN, "no admin")])
def test_a_path_that_servers_differ_in_is_refused(
        start, make_origin, dial, policy, rule):
    """R56: by a rule that allows, and by one that denies."""
    proxy, origin = start(policy), make_origin()
    client = dial(proxy)
    passed = [path for path in UNCLEAR if client.get(origin.url(path)).status != 403]
    assert not passed
    lines = proxy.wait_log(len(UNCLEAR))
    assert {(line["reason"], line["rule"]) for line in lines} == {("path_denied", rule)}
    assert not origin.received


def test_a_spelling_that_some_servers_do_not_decode_is_not_allowed(
        start, make_origin, dial):
    proxy, origin = start(API), make_origin()
    assert dial(proxy).get(origin.url("/%61pi/x")).status == 403
    assert not origin.received


def test_without_a_rule_about_its_paths_every_path_of_a_host_passes(
        start, make_origin, dial):
    proxy, origin = start("""
        [[rules]]
        action = "deny"
        hosts = ["other.test"]
        paths = ["/admin/**"]
    """ + LOCAL), make_origin()
    paths = ["/a/../b", "/a%2Fb", "//", "/%zz"]
    for path in paths:
        assert dial(proxy).get(origin.url(path)).status == 200
    assert [one.target for one in origin.requests] == paths


def test_a_path_is_denied_in_every_spelling(start, make_origin, dial):
    proxy, origin = start(NO_ADMIN), make_origin()
    client = dial(proxy)
    paths = ("/admin", "/admin/", "/admin/x", "/%61dmin/x", "/admin;v=1/x",
             "/admin%3bv", "/admin?q", "/adm%69n")
    assert [path for path in paths if client.get(origin.url(path)).status != 403] == []
    assert client.get(origin.url("/administer")).status == 200
    *refused, passed = proxy.wait_log(len(paths) + 1)
    assert {(line["reason"], line["rule"]) for line in refused} == {
        ("path_denied", "no admin")}
    assert passed["rule"] == "here"


def test_each_request_of_a_connection_is_judged_by_its_own_path(
        start, make_origin, dial):
    proxy, origin = start(API), make_origin()
    client = dial(proxy)
    asked = ("/api/1", "/admin", "/api/2", "/api/../admin", "/api/3")
    assert [client.get(origin.url(path)).status for path in asked] == [
        200, 403, 200, 403, 200]
    assert [one.target for one in origin.requests] == ["/api/1", "/api/2", "/api/3"]
    assert len(origin.connections) == 1


def test_requests_sent_at_once_are_judged_one_by_one(start, make_origin, dial):
    proxy, origin = start(API), make_origin()
    client = dial(proxy)
    client.send(b"".join(build_request("GET", origin.url(path))
                         for path in ("/api/1", "/admin", "/api/2")))
    assert [client.read_response().status for _ in range(3)] == [200, 403, 200]


def test_every_form_of_target_has_its_path(start, make_origin, dial):
    """An absolute form without a path is `/`; OPTIONS of a whole server has no path."""
    proxy, origin = start("""
        [[rules]]
        action = "deny"
        paths = ["/"]
    """ + LOCAL), make_origin()
    for path in ("", "/", "?q", "/?q"):
        reply = dial(proxy).get(origin.url(path), host=origin.authority)
        assert reply.status == 403
    assert dial(proxy).ask("OPTIONS", origin.url("")).status == 200
    assert dial(proxy).ask("OPTIONS", origin.url("/")).status == 403
    assert [one.target for one in origin.requests] == ["*"]


def test_userinfo_and_fragment_are_refused_before_any_path(start, make_origin, dial):
    proxy, origin = start(API), make_origin()
    urls = ("http://user@{}/api/x", "http://{}/api/x#/admin", "http://{}\\@a.test/api/x")
    for url in urls:
        reply = dial(proxy).ask(
            "GET", url.format(origin.authority), host=origin.authority)
        assert reply.status == 400
    assert {line["reason"] for line in proxy.wait_log(len(urls))} == {"bad_target"}


def test_the_host_of_the_target_is_judged_and_not_that_of_the_field(
        start, network, make_origin, dial):
    network.names.table |= {"a.test": ("127.0.0.1",), "b.test": ("127.0.0.1",)}
    proxy = start("""
        [[rules]]
        action = "allow"
        hosts = ["a.test"]
        addresses = ["127.0.0.1"]
        paths = ["/api/**"]
    """)
    origin = make_origin()
    for target, field, status in ("a.test", "b.test", 200), ("b.test", "a.test", 403):
        reply = dial(proxy).ask(
            "GET", f"http://{target}:{origin.port}/api/x", host=field)
        assert reply.status == status


def test_a_tunnel_has_no_path(start, make_origin, dial):
    """A rule about paths neither opens nor closes it."""
    proxy, origin = start(API), make_origin()
    assert dial(proxy).connect(origin.authority).status == 403
    assert proxy.wait_log(1)[0]["reason"] == "destination_denied"
    proxy = start(NO_ADMIN)
    client = dial(proxy).tunnel(origin.authority)
    client.send(b"GET /admin HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.read_response().status == 200


def test_a_limit_or_a_method_may_hang_on_the_path(start, make_origin, dial):
    proxy, origin = start("""
        [limits.slow]
        requests_per_second = 0.01
        burst = 1
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        methods = ["POST"]
        paths = ["/upload/*"]
        limits = "slow"
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
        methods = ["GET"]
    """), make_origin()
    assert dial(proxy).ask("POST", origin.url("/upload/a")).status == 200
    assert dial(proxy).ask("POST", origin.url("/upload/a")).status == 429
    assert dial(proxy).ask("POST", origin.url("/upload/a/b")).status == 403
    assert dial(proxy).get(origin.url("/upload/a/b")).status == 200
