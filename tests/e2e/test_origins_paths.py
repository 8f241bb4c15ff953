"""A rule with an origin that replaces a prefix of the path (`replace_path`)."""

import pytest

from tests.support.origins import HOST, RULE, named

pytestmark = pytest.mark.any_loop


@pytest.fixture
def start(start_policy):
    return lambda server, policy, **more: start_policy(policy, named(server, **more))


@pytest.mark.parametrize(("prefix", "other", "path", "sent"), [
    ("/api", "/", "/api/x?q=/api", "/x?q=/api"), ("/api", "/", "/api", "/"),
    ("/api", "/", "/api?q", "/?q"), ("/api/", "/v2/", "/api/x", "/v2/x"),
    ("/api", "/v2", "/api", "/v2"), ("/api", "/v2", "/api?q", "/v2?q"),
    ("/api/v1", "/", "/api/v1/x/", "/x/"), ("/", "/v2", "/x", "/v2/x"),
    ("/", "/v2", "/", "/v2/"), ("/api", "/longer/one", "/api/%20", "/longer/one/%20")])
def test_a_rule_replaces_a_prefix_of_the_path(
        start, make_origin, dial, prefix, other, path, sent):
    server = make_origin()
    glob = f"{prefix.removesuffix('/')}/**"
    for how in ("keep", "x"):
        proxy = start(server, forwarded=how, policy=RULE + (
            f'paths = ["{glob}"]\nreplace_path = ["{prefix}", "{other}"]\n'))
        assert dial(proxy).get(path, host=HOST).status == 200, how
        assert server.requests[-1].target == sent
        (line,) = proxy.wait_log(1)
        assert line["url"] == f"http://{HOST}{path}", "the client's"


@pytest.mark.parametrize("path", [
    "/apix", "/api/../admin", "/api/%2e%2e/admin", "/api//x", "/%61pi/x", "/api%2fx",
    "/API/x"])
def test_a_path_that_may_leave_the_prefix_is_not_replaced(
        start, make_origin, dial, path):
    """The rule does not match it: its globs match every reading, or none."""
    server = make_origin()
    proxy = start(server, policy=RULE + (
        'paths = ["/api/**"]\nreplace_path = ["/api", "/tenant"]\n'))
    assert dial(proxy).get(path, host=HOST).status == 403
    assert not server.requests
