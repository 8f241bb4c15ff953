"""Users do not see each other's exchanges: misses (R74), answers of a cache (R75)."""

import contextlib
import itertools
import json
import re

import msgspec
import pytest

from cutthrough.recording.sessions.directory import Sessions
from tests.support.admin import TOKEN, TOLD, Operator
from tests.support.recordings import fill, made, recorded
from tests.support.recordings import folder as folder
from tests.support.recordings_page import get
from tests.support.users import basic, hash_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

ANN, EVE = basic("ann:one"), basic("eve:one")
USERS = "".join(f'[users.{name}]\npassword = "{hash_of("one")}"\n'
                for name in ("ann", "eve"))
REPLAYS = USERS + """
[[rules]]
action = "deny"
users = ["eve"]
hosts = ["b.example"]
[[rules]]
action = "deny"
users = ["eve"]
paths = ["/private/*"]
[[rules]]
action = "allow"
hosts = [".example"]
recording = "replay"
"""
SECRET = "card=4111111111111111"


@pytest.fixture
def start(start_policy, folder):
    """Starts a proxy with this policy, and an operator of it."""
    def run(policy=REPLAYS, config=""):
        proxy = start_policy(policy, f'admin = "127.0.0.1:0"\nadmin_token = "{TOKEN}"\n'
                             f'recording_directory = "{folder}"\n{config}')
        told = wait_until(lambda: TOLD.findall(proxy.stderr()), proxy.stderr)
        return proxy, Operator(int(told[-1]))
    return run


def test_a_miss_tells_the_client_the_reason_and_a_number(start, folder, dial):
    """R74. The reply had the URL, the query and the body of another user's request."""
    fill(folder, made(80, "/pay", host="a.example", query=SECRET))
    proxy, operator = start()
    reply = dial(proxy).get("http://a.example/pay?card=1", auth=EVE)
    (line,) = proxy.wait_log(1)
    told = f"no recording matches (request {line['id']})"
    assert reply.body.decode().startswith(
        f"502 recording_missed: {told}; the mode new_episodes, of a rule cache, "
        "records it\nrequest ")
    assert line["hook"] == told
    (missed,) = get(operator, "/replays")["misses"]
    assert missed["id"] == line["id"] and missed["nearest"] == 1
    assert missed["differences"] == [
        "query key card: '1', recorded '4111111111111111'"]


def test_only_recordings_that_the_user_s_rules_admit_are_compared(start, folder, dial):
    """R74. A miss showed Eve a host that is denied to her."""
    fill(folder, made(80, "/x", host="b.example"), made(80, "/far/from/it",
         host="c.example"), made(80, "/private/x", host="a.example"))
    proxy, operator = start(config='recording_misses = "nearest"\nworkers = 1')
    for auth in (EVE, ANN):
        dial(proxy).get("http://d.example/x", auth=auth)
        dial(proxy).get("http://a.example/private", auth=auth)
    proxy.wait_log(4)
    misses = [(one["url"], one.get("nearest_url"))
              for one in get(operator, "/replays")["misses"]]
    private, other = "http://a.example/private", "http://d.example/x"
    assert misses == [
        (private, "http://a.example/private/x"), (other, "http://b.example/x"),
        (private, None), (other, "http://c.example/far/from/it")]


def test_no_hash_of_a_guess_stands_beside_a_stored_one(start, folder, dial):
    """R74. Hashes are keyed, but equal ones show a right guess."""
    fill(folder, made(80, "/pay", host="a.example", query="card=[redacted:" + "a" * 16
                      + "]"))
    proxy, operator = start(config='recording_misses = "nearest"\n'
                            'recording_redact_query = ["card"]')
    reply = dial(proxy).get("http://a.example/pay?card=[redacted:" + "b" * 16 + "]",
                            auth=EVE)
    proxy.wait_log(1)
    told = reply.body.decode() + json.dumps(get(operator, "/replays"))
    assert "query key card: '[redacted]', recorded '[redacted]'" in told
    assert not re.search("redacted:[0-9a-f]", told)


CACHES = USERS + """
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
recording = "cache"
{keys}
"""


def tell_account(conn):
    """The answer depends on a field that no key has, and /cookie sets one."""
    while True:
        asked = conn.read_request()
        body = (asked.get("X-Account") or "nobody").encode()
        cookie = b"Set-Cookie: id=1\r\n" if asked.target == "/cookie" else b""
        conn.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b"
                  % (cookie, len(body), body))


def ask_as(proxy, dial, url, auth, *fields):
    name = "ann" if auth == ANN else "eve"
    return dial(proxy).get(url, f"X-Account: {name}", *fields, auth=auth).body.decode()


def test_a_cache_gives_no_answer_of_one_user_to_another(
        start, folder, make_origin, dial):
    """R75. Ann got the origin's answer to Eve's account."""
    origin = make_origin(tell_account)
    proxy, _ = start(CACHES.format(keys=""), "workers = 1")
    for number, (auth, name) in enumerate(((EVE, "eve"), (ANN, "ann")), 1):
        assert ask_as(proxy, dial, origin.url("/me"), auth) == name
        wait_until(lambda n=number: recorded(folder) == n, "a recording")
    for _ in range(3):
        wait_until(lambda: ask_as(proxy, dial, origin.url("/me"), EVE) == "eve"
                   and proxy.wait_log()[-1]["reason"] == "replayed", "Eve's own")
        assert ask_as(proxy, dial, origin.url("/me"), ANN) == "ann"


def test_a_shared_cache_gives_all_but_what_may_be_private(
        start, folder, make_origin, dial):
    """R75."""
    origin = make_origin(tell_account)
    proxy, _ = start(CACHES.format(keys="shared = true"), "workers = 1")
    token = "Authorization: Bearer EVETOKEN1"
    for path, fields in (("/me", ()), ("/cookie", ()), ("/token", (token,))):
        assert ask_as(proxy, dial, origin.url(path), EVE, *fields) == "eve"
    wait_until(lambda: recorded(folder) == 3, "three recordings")
    wait_until(lambda: ask_as(proxy, dial, origin.url("/me"), EVE) == "eve"
               and proxy.wait_log()[-1]["reason"] == "replayed", "they are read")
    assert ask_as(proxy, dial, origin.url("/me"), ANN) == "eve"
    for path in ("/cookie", "/token"):
        assert ask_as(proxy, dial, origin.url(path), ANN) == "ann", path


@pytest.mark.parametrize("keys", ["", "shared = true"])
def test_what_a_cache_has_at_hand_is_the_newest_of_its_user(
        start, folder, make_origin, dial, keys):
    """R75. The second hit is sent without Python."""
    origin = make_origin(tell_account)
    proxy, _ = start(CACHES.format(keys=keys), "workers = 1")
    numbers = itertools.count(1)

    def ask(auth):
        body = ask_as(proxy, dial, origin.url("/me"), auth)
        return body, proxy.wait_log(next(numbers))[-1]["reason"]

    def put(owner, body):
        recording = msgspec.structs.replace(
            made(origin.port, "/me", body.encode()), owner=owner, created_us=1)
        with contextlib.closing(Sessions(folder).open("default")) as session:
            session.put([recording])

    def owners():
        with contextlib.closing(Sessions(folder).open("default")) as session:
            return [recording.owner for recording in session.read_behind(0, 100)]

    ask(EVE)
    wait_until(lambda: ask(EVE) == ("eve", "replayed"), "Eve's own")
    assert [ask(EVE) for _ in range(3)] == [("eve", "replayed")] * 3
    assert ask(ANN) == (("eve", "replayed") if keys else ("ann", "ok"))
    wait_until(lambda: keys or "ann" in owners(), "Ann's own, which the writer brings")
    put("ann", "of ann")
    wait_until(lambda: ask(ANN) == ("of ann", "replayed"), "the newest")
    of_eve = "of ann" if keys else "eve"
    wait_until(lambda: ask(EVE) == (of_eve, "replayed"), "what she may read")
    put("eve", "of eve")
    wait_until(lambda: ask(EVE) == ("of eve", "replayed"), "the newest")
    assert [ask(EVE) for _ in range(3)] == [("of eve", "replayed")] * 3
    of_ann = "of eve" if keys else "of ann"
    assert [ask(ANN) for _ in range(3)] == [(of_ann, "replayed")] * 3


@pytest.mark.parametrize(("keys", "path", "owner_of_answer"), [
    ("", "/me", "ann"), ("shared = true", "/me", "eve"),
    ("shared = true", "/cookie", "ann")])
def test_an_answer_at_hand_has_the_same_readers(
        start, folder, make_origin, dial, keys, path, owner_of_answer):
    """R75. When a session comes into force, its answers are made before a request."""
    origin = make_origin(tell_account)
    rules = CACHES.format(keys=keys)
    proxy, _ = start(rules, "workers = 1")
    assert ask_as(proxy, dial, origin.url(path), EVE) == "eve"
    wait_until(lambda: recorded(folder) == 1, "a recording")
    proxy.stop()
    proxy, _ = start(rules, "workers = 1")
    assert ask_as(proxy, dial, origin.url(path), EVE) == "eve"
    assert proxy.wait_log(1)[-1]["reason"] == "replayed"
    assert ask_as(proxy, dial, origin.url(path), ANN) == owner_of_answer
