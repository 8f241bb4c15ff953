"""`share_credentials`: what one program has verified, others know (R23). A hash of cost
10 takes 50 ms and `auth_timeout` is shorter: a request that needs one is 503."""

import contextlib
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.admin import DOOR, operator_of
from tests.support.client import Client
from tests.support.proxy import Proxy
from tests.support.redis import PROGRAM, Redis
from tests.support.successors import end, successor_of
from tests.support.users import basic, hash_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

NAME = "{cutthrough}:known"
RIGHT, WRONG = basic("ann:one"), basic("ann:two")


@pytest.fixture
def redis(directory):
    if PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with contextlib.closing(Redis(directory("redis"))) as running:
        yield running


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.write_text(f"ann:{hash_of('one', 10)}\n")
    return file


@pytest.fixture
def text(redis, users_file, tmp_path):
    (tmp_path / "url").write_text(redis.url + "\n")
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    return (f'users_file = "{users_file}"\nuser = ""\npassword = ""\n'
            f'auth_timeout = "10ms"\nfleet_url_file = "{tmp_path / "url"}"\n'
            f'share_credentials = true\ncredentials_key_file = "{tmp_path / "key"}"\n'
            + DOOR)


@pytest.fixture
def join(loop_name, directory, opened, text):
    def start(config: str = text) -> Proxy:
        proxy = opened.enter_context(
            Proxy(directory("sharing"), loop=loop_name, config=config))
        if "share_credentials" in config:
            wait_until(lambda: re.search("credentials are shared through Redis$",
                                         proxy.stderr(), re.M), proxy.stderr)
        return proxy
    return start


def ask(proxy: Proxy, url: str, auth: str = RIGHT) -> int:
    with Client(proxy.port) as client:
        return client.get(url, auth=auth).status


def verify(proxy: Proxy, redis: Redis, url: str) -> None:
    wait_until(lambda: ask(proxy, url) == 200, "verified", 60)
    wait_until(lambda: redis.ask("ZCARD", NAME) >= 1, "an entry in Redis")


def hashes(proxy: Proxy) -> float:
    return operator_of(proxy).metrics()["auth_hashes_total"]


def test_another_program_needs_no_hash(join, redis, make_origin, users_file):
    url = make_origin().url()
    first = join()
    verify(first, redis, url)
    second = join()
    assert ask(second, url) == 200 and hashes(second) == 0
    assert ask(second, url, WRONG) in (407, 503)
    redis.kill()
    assert ask(second, url) == 200, "it is on the page"
    users_file.write_text(f"ann:{hash_of('new', 10)}\n")
    second.hup()
    assert ask(second, url) in (407, 503), "R23: a new password ends the old one"


def test_a_program_without_the_key_hashes(join, redis, text, tmp_path, make_origin):
    url = make_origin().url()
    verify(join(), redis, url)
    (tmp_path / "other").write_text("another-key-of-the-same-length-or-more\n")
    other = join(text.replace(str(tmp_path / "key"), str(tmp_path / "other")))
    assert ask(other, url) == 503
    alone = join(re.sub("(share|credentials)_.*\n", "", text))
    assert ask(alone, url) == 503


def test_an_upgrade_goes_on_with_the_page(join, redis, make_origin):
    url = make_origin().url()
    proxy = join()
    verify(proxy, redis, url)
    redis.kill()
    successor = successor_of(proxy)
    try:
        assert ask(proxy, url) == 200
    finally:
        end(successor)


def test_a_change_of_the_key_is_refused_by_a_reload_and_taken_by_an_upgrade(
        join, redis, tmp_path, make_origin):
    url = make_origin().url()
    proxy = join()
    verify(proxy, redis, url)
    (tmp_path / "key").write_text("another-key-of-the-same-length-or-more\n")
    assert "share_credentials: cannot change" in proxy.hup()
    assert ask(proxy, url) == 200
    redis.ask("FLUSHALL")
    successor = successor_of(proxy)
    try:
        assert "each is verified again" in proxy.stderr()
        # The old program's workers accept until they have read that they drain
        wait_until(lambda: ask(proxy, url) == 503, "the new program")
    finally:
        end(successor)


def test_a_redis_that_hangs_holds_up_neither_requests_nor_a_stop(
        join, redis, make_origin):
    url = make_origin().url()
    proxy = join()
    verify(proxy, redis, url)
    redis.pause()
    assert ask(proxy, url) == 200
    proxy.signal(signal.SIGTERM)
    psutil.Process(proxy.process.pid).wait(60)
    redis.resume()
