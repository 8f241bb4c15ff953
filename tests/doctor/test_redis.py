"""`cutthrough doctor`: a fleet's Redis is queried, and its password never shown."""

import shutil

import pytest

from cutthrough.doctor.redis import check_fleet, is_near
from tests.doctor.hosts import make_case
from tests.support.redis import PASSWORD, PROGRAM, Redis

pytestmark = pytest.mark.skipif(not PROGRAM, reason="redis-server is not installed")


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    base = tmp_path_factory.mktemp("redis")
    server = Redis(base)
    yield server
    server.kill()
    shutil.rmtree(base)


def findings(url: str):
    found = list(check_fleet(make_case(fleet_url=url)))
    assert PASSWORD not in str(found)
    return found


def test_without_a_fleet_nobody_is_asked():
    assert not list(check_fleet(make_case()))


def test_a_redis_that_answers_is_all_right(redis):
    for url in (redis.url, redis.tls_url, redis.path_url):
        (found,) = findings(url)
        # On a busy machine even this one may be slow, and then that is reported
        assert found.name == "fleet" and found.verdict in ("ok", "note"), found
        assert found.seen.startswith("Redis answers in ")
        assert ("certificate is good" in found.seen) == (url == redis.tls_url)


def test_a_certificate_of_nobody_we_know_is_told(redis):
    (found,) = findings(redis.tls_url.partition("?")[0])
    assert found.verdict == "warn" and "ssl_ca_certs" in found.advice


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda url: url.replace(PASSWORD, "wrong"), "refuses our credentials"),
    (lambda url: "redis://127.0.0.1:1/0", "cannot be reached"),
])
def test_a_redis_that_is_not_to_be_had_is_a_warning(redis, spoil, said):
    (found,) = findings(spoil(redis.url))
    assert found.verdict == "warn" and said in found.seen


@pytest.mark.parametrize(("url", "near"), [
    ("redis://127.0.0.1:6379/0", True), ("redis://[::1]/0", True), ("unix:///a", True),
    ("redis://localhost", True), ("redis://192.0.2.1/0", False),
    ("redis://user:pass@redis.example/0", False)])
def test_plain_text_is_all_right_on_this_host_only(url, near):
    assert is_near(url) == near
