"""Events at Redis while two programs share a quota through it: each byte counts once,
and operators see the outage.

    event: it is killed, stands still, is slow, full, emptied, too old, or replaced

Redis holds counts alone: no exchange is lost. All run by `make chaos`, and one always.
More of Redis is in test_fleet.py.
"""

import contextlib
import os
import socketserver
import threading

import pytest

from tests.support.admin import TOKEN
from tests.support.fleet import Member
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.redis import PROGRAM, Redis
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")

ALL = bool(os.environ.get("CUTTHROUGH_CHAOS"))
PIECE = bytes(16384)
ANSWER = b"HTTP/1.1 200 Connection established\r\n\r\n"
POLICY = """
[limits.default]
bytes_per_day = "1GiB"

[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
"""


@pytest.fixture
def redis(directory):
    with contextlib.closing(Redis(directory("redis"))) as running:
        yield running


class Couple:
    """Two programs of a fleet, and the bytes that a user moves through them."""

    def __init__(self, directory, opened, redis, authority, dial):
        self.redis, self.authority, self.dial = redis, authority, dial
        secret = directory("secret") / "url"
        secret.write_text(redis.url + "\n")
        policy = secret.with_name("policy.toml")
        policy.write_text(POLICY)
        self.members = [Member(opened.enter_context(Proxy(
            directory("member"), "--policy", str(policy), "--fleet-url-file",
            str(secret), "--fleet-interval", "50ms", "--fleet-expiry", "1s",
            "--admin", "127.0.0.1:0", "--admin-token", TOKEN))) for _ in range(2)]
        self.moved = 0

    def move(self):
        """Through each, by a tunnel that ends."""
        for member in self.members:
            with self.dial(member.proxy) as client:
                tunnel = client.tunnel(self.authority)
                self.moved += len(ANSWER)    # counts, too
                for _ in range(4):
                    tunnel.send(PIECE)
                    assert tunnel.read_exact(len(PIECE)) == PIECE
                    self.moved += 2 * len(PIECE)

    def counted(self):
        """The bytes that Redis has counted, of all programs."""
        days = self.redis.ask("KEYS", "{cutthrough}:2:*:day:*")
        return sum(int(n) for day in days for n in self.redis.ask("HVALS", day))

    def wait_counted(self):
        wait_until(lambda: self.counted() == self.moved,
                   lambda: f"{self.moved}, and not {self.counted()}")

    def wait_seen(self, reason):
        """At an operator's place, by both."""
        for member in self.members:
            wait_until(lambda one=member: one.metric(
                f'steps_total{{result="{reason}"}}') > 0 and one.metric("up") == 0,
                member.proxy.stderr)
            member.wait_said("limits count this program alone")
            assert member.operator.ask("GET", "/readyz")[0] == 200

    def wait_back(self):
        for member in self.members:
            member.wait_instances(2)


# Events. Each is under way when it yields


@contextlib.contextmanager
def killed(couple):
    """And started again, empty."""
    couple.redis.kill()
    yield "connection"
    couple.redis.start()


@contextlib.contextmanager
def standing_still(couple):
    couple.redis.pause()
    yield "timeout"
    couple.redis.resume()


@contextlib.contextmanager
def slow(couple):
    """Each answer takes longer than a step may."""
    over = threading.Event()

    def delay():
        while not over.is_set():
            couple.redis.ask("CLIENT", "PAUSE", 2000, "ALL")
            over.wait(1)

    thread = threading.Thread(target=delay)
    thread.start()
    try:
        yield "timeout"
    finally:                                 # also of a test that failed
        over.set()
        thread.join()
    couple.redis.ask("CLIENT", "UNPAUSE")


@contextlib.contextmanager
def full(couple):
    """Redis still takes a script's writes behind a deletion."""
    couple.redis.ask("CONFIG", "SET", "maxmemory", "1")
    yield ""
    couple.redis.ask("CONFIG", "SET", "maxmemory", "0")


@contextlib.contextmanager
def without_scripts(couple):
    """As a server that is too old."""
    couple.redis.ask("ACL", "SETUSER", "default", "-eval", "-evalsha")
    yield "refused"
    couple.redis.ask("ACL", "SETUSER", "default", "+eval", "+evalsha")


@contextlib.contextmanager
def replaced(couple):
    """By a server that is no Redis."""
    class Stranger(socketserver.StreamRequestHandler):
        def handle(self):
            self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    couple.redis.kill()
    with Server(("127.0.0.1", couple.redis.port), Stranger) as server:
        threading.Thread(target=server.serve_forever).start()
        yield "error"
        server.shutdown()
    couple.redis.start()


@contextlib.contextmanager
def emptied(couple):
    couple.redis.ask("FLUSHALL")
    yield ""


EVENTS = (killed, standing_still, slow, full, without_scripts, replaced, emptied)
ALWAYS = (full,)


@pytest.mark.parametrize("event", EVENTS if ALL else ALWAYS,
                         ids=lambda event: event.__name__)
def test_each_byte_counts_once(
        directory, opened, redis, make_origin, dial, event):
    couple = Couple(directory, opened, redis, make_origin(echo).authority, dial)
    couple.wait_back()
    couple.move()
    couple.wait_counted()
    with event(couple) as reason:
        couple.move()
        if reason:
            couple.wait_seen(reason)
        couple.move()                        # without a wait for Redis
    couple.wait_back()
    couple.move()
    couple.wait_counted()
    print(f"{event.__name__} | Redis | moved {couple.moved} | counted "
          f"{couple.counted()}")
