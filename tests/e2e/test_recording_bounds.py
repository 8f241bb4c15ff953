"""Bounds of replay and recording: limits of rules, and room for new recordings."""

import itertools
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from cutthrough.recording.sessions.directory import Sessions
from tests.support.admin import Operator
from tests.support.client import build_request
from tests.support.origin import answer
from tests.support.recordings import RULE, fill, made, recorded, writer
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.stream import chunked
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_a_replayed_request_beyond_its_rule_s_rate_is_429_with_the_time_to_wait(
        start_policy, folder, dial):
    """Whether it is answered at hand or not: the rate is that of the rule's limits."""
    fill(folder, made(9))
    proxy = start_policy(
        "[limits.slow]\nrequests_per_second = 0.02\nburst = 4"
        + RULE.format(mode="replay", keys='limits = "slow"'),
        f'recording_directory = "{folder}"\nworkers = 2')
    for _ in range(4):
        assert dial(proxy).get("http://127.0.0.1:9/a").body == b"hello"
    client = dial(proxy)
    for _ in range(2):
        reply = client.get("http://127.0.0.1:9/a")
        assert reply.status == 429 and 1 <= int(reply.get("Retry-After")) <= 51
    # Of two workers: in any order
    reasons = sorted(line["reason"] for line in proxy.wait_log(6))
    assert reasons == ["rate_limited"] * 2 + ["replayed"] * 4


def test_a_body_that_is_read_for_its_recording_has_its_pace_and_comes(
        start_policy, folder, make_origin, dial):
    """There is no origin yet, which had the timer of the pace: behind the burst nothing
    of the body was read, until `body_timeout`."""
    body, origin = b"x" * 300_000, make_origin()
    proxy = start_policy(
        "[limits.slow]\nbytes_per_second = 200_000"
        + RULE.format(mode="cache", keys='limits = "slow"'),
        f'recording_directory = "{folder}"')
    reply = dial(proxy).ask("POST", origin.url("/a"), f"Content-Length: {len(body)}",
                            body=body)
    assert reply.body == b"ok"
    assert [request.body for request in origin.requests] == [body]


def test_misses_are_explained_in_a_tenth_of_the_time(start, folder, dial):
    """A search takes some 0.5 ms: the requests of one client took all of the time."""
    fill(folder, *[made(9, f"/{number}") for number in range(3000)])
    client = dial(start(config='workers = 1\nrecording_misses = "nearest"'))
    replies = []
    for _ in range(30):
        client.send(b"".join(build_request("GET", f"http://127.0.0.1:9/x{number}")
                             for number in range(100)))
        replies += [client.read_response("GET") for _ in range(100)]
    assert {reply.status for reply in replies} == {502}
    assert b"the nearest is recording" in replies[0].body
    assert any(b"is not looked for" in reply.body for reply in replies)
    time.sleep(1.1)                          # the next second
    assert b"the nearest is recording" in client.get("http://127.0.0.1:9/y").body


# Room for new recordings


class Load:
    """Threads that send requests with bodies, each of another URL, until `end`."""

    def __init__(self, proxy, origin, dial, threads=8):
        self.proxy, self.origin, self.dial = proxy, origin, dial
        self.statuses = Counter()
        self.words = Counter()
        self.is_over = threading.Event()
        self.numbers = itertools.count()
        self.pool = ThreadPoolExecutor(threads)
        self.runs = [self.pool.submit(self.run) for _ in range(threads)]

    def run(self):
        client = self.dial(self.proxy)
        while not self.is_over.is_set():
            number = next(self.numbers)
            reply = client.ask("POST", self.origin.url(f"/{number}"),
                               f"Content-Length: {len(BODY)}", body=BODY)
            self.statuses[reply.status] += 1
            if reply.status != 200:
                self.words[reply.body.split(b":")[0].split()[-1]] += 1
            if reply.get("Connection") == "close":
                client.close()
                client = self.dial(self.proxy)

    def wait(self, status, count):
        wait_until(lambda: self.statuses[status] >= count, lambda: str(self.statuses))

    def end(self):
        self.is_over.set()
        for run in self.runs:
            run.result(60)
        self.pool.shutdown()


ADMIN = 'workers = 1\nadmin = "127.0.0.1:0"'
BODY = b"q" * 30_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"a" * 20_000


def refusing(queue=2, timeout="300ms"):
    return (f'unrecorded = "refuse"\nrecording_queue = {queue}\n'
            f'recording_queue_timeout = "{timeout}"')


@pytest.mark.parametrize("workers", [1, 2])
def test_every_answered_request_is_recorded_though_the_writer_stood_still(
        start, folder, make_origin, dial, workers):
    """A ring of 32 MiB is full long before; a reload comes in the middle."""
    origin = make_origin(answer(ANSWER))
    proxy = start("record", refusing(), f"workers = {workers}")
    load = Load(proxy, origin, dial)
    load.wait(200, 50)
    stopped = writer(proxy)
    stopped.suspend()
    load.wait(503, 20)
    assert "generation 2" in proxy.hup()
    load.wait(503, 40)
    before = load.statuses[200]
    stopped.resume()
    load.wait(200, before + 50)
    load.end()
    assert {*load.words} == {b"recording_full"}
    wait_until(lambda: recorded(folder) == load.statuses[200],
               lambda: f"{recorded(folder)} of {load.statuses}")
    reasons = Counter(line["reason"] for line in proxy.wait_log(load.statuses.total()))
    assert reasons == {"ok": load.statuses[200],
                       "recording_full": load.statuses[503]}
    assert "is not recorded" not in proxy.stderr()


def test_requests_wait_for_the_writer_and_none_is_refused(
        start, folder, make_origin, dial):
    origin = make_origin(answer(ANSWER))
    proxy = start("record", refusing(100, "60s"), ADMIN)
    load = Load(proxy, origin, dial)
    load.wait(200, 10)
    stopped = writer(proxy)
    stopped.suspend()
    wait_until(lambda: counted(proxy)["waiting"] == 8, lambda: str(counted(proxy)))
    before = load.statuses[200]
    stopped.resume()
    load.wait(200, before + 200)
    load.end()
    assert {*load.statuses} == {200}
    wait_until(lambda: recorded(folder) == load.statuses[200], "all")


def metrics(proxy):
    port = re.search(r"admin listener on 127\.0\.0\.1:(\d+)", proxy.stderr())[1]
    return Operator(int(port)).metrics()


def counted(proxy):
    found = metrics(proxy)
    return {"waiting": found["recording_waiting"],
            "passed": found['recording_requests_total{result="passed"}']}


def test_a_request_that_has_waited_passes_unrecorded_if_its_rule_says_nothing(
        start, folder, make_origin, dial):
    origin = make_origin(answer(ANSWER))
    proxy = start("record", 'recording_queue = 2\nrecording_queue_timeout = "100ms"',
                  ADMIN)
    load = Load(proxy, origin, dial)
    load.wait(200, 10)
    stopped = writer(proxy)
    stopped.suspend()
    wait_until(lambda: counted(proxy)["passed"] >= 20, lambda: str(counted(proxy)))
    stopped.resume()
    load.end()
    assert {*load.statuses} == {200}
    passed = wait_until(lambda: load.statuses[200] - recorded(folder)
                        == counted(proxy)["passed"] and counted(proxy)["passed"],
                        lambda: f"{load.statuses} {recorded(folder)} {counted(proxy)}")
    assert passed >= 20 and "the writer is behind (16 so far)" in proxy.stderr()


def test_a_client_that_goes_leaves_its_place_in_the_queue(
        start, folder, make_origin, dial):
    origin = make_origin(answer(ANSWER))
    proxy = start("record", refusing(1, "2s"), ADMIN)
    stopped = writer(proxy)
    load = Load(proxy, origin, dial, 2)
    load.wait(200, 1)
    stopped.suspend()
    load.wait(503, 1)
    load.end()
    for number in range(3):
        first, second = dial(proxy), dial(proxy)
        first.send(build_request("GET", origin.url(f"/first{number}")))
        wait_until(lambda: metrics(proxy)['connections{state="held"}'] == 1, "held")
        assert second.get(origin.url("/second")).status == 503
        first.reset()
    assert len(proxy.wait_log(3, reason="client_reset")) == 3
    stopped.resume()
    wait_until(lambda: recorded(folder) == load.statuses[200], "all")
    assert dial(proxy).get(origin.url("/last")).status == 200
    wait_until(lambda: counted(proxy)["waiting"] == 0, "none")


# Bodies that are too long to be recorded


STRICT = 'unrecorded = "refuse"'
SMALL = f'recording_body = "10KiB"\n{ADMIN}'


def framed(how, length):
    body = b"x" * length
    if how == "length":
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + body
    if how == "close":
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
    return (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunked([body[:9000], body[9000:]]))


@pytest.mark.parametrize("how", ["length", "chunked", "close"])
def test_an_answer_beyond_the_bound_is_refused_if_its_rule_says_so(
        start, folder, make_origin, dial, how):
    """It came at once: no byte of it has been sent before its length was known."""
    origin = make_origin(answer(framed(how, 10_241)))
    proxy = start("record", STRICT, SMALL)
    client = dial(proxy)
    client.send(build_request("GET", origin.url("/a")))
    reply = client.read_response("GET")
    assert (reply.status, reply.error) == (502, "proxy_internal_response")
    assert reply.body.startswith(b"502 recording_too_large: ")
    assert proxy.wait_log(1)[0]["reason"] == "recording_too_large"
    assert recorded(folder) == 0


@pytest.mark.parametrize("how", ["length", "chunked", "close"])
def test_an_answer_of_the_bound_is_recorded(start, folder, make_origin, dial, how):
    def script(conn):
        conn.read_request()
        conn.send(framed(how, 10_200))

    origin = make_origin(script)
    proxy = start("record", STRICT, SMALL)
    assert dial(proxy).get(origin.url("/a")).body == b"x" * 10_200
    wait_until(lambda: recorded(folder) == 1, "one recording")
    assert proxy.wait_log(1)[0]["reason"] == "ok"


def test_an_answer_that_grows_beyond_the_bound_is_cut(
        start, folder, make_origin, dial):
    """The client cannot take it for whole: its last chunk is missing."""
    begun = threading.Event()

    def script(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        conn.send(b"9\r\nfirst one\r\n")
        assert begun.wait(10)
        conn.send(chunked([b"x" * 9000, b"x" * 9000]))
        conn.stall()

    proxy = start("record", STRICT, SMALL)
    origin = make_origin(script)
    client = dial(proxy)
    client.send(build_request("GET", origin.url("/a")))
    assert b"first one" in client.read_until(b"first one")
    begun.set()
    assert not client.read_rest().endswith(b"0\r\n\r\n")
    line = proxy.wait_log(1)[0]
    assert (line["status"], line["reason"]) == (200, "recording_too_large")
    assert recorded(folder) == 0


def test_a_request_beyond_the_bound_is_refused_before_its_origin_is_dialled(
        start, folder, make_origin, dial):
    origin = make_origin()
    proxy = start("record", STRICT, SMALL)
    reply = dial(proxy).ask("POST", origin.url("/a"), "Content-Length: 10241",
                            body=b"x" * 10_241)
    assert reply.status == 502 and b" recording_too_large: " in reply.body
    assert not origin.connections
    reply = dial(proxy).ask("POST", origin.url("/a"), "Transfer-Encoding: chunked",
                            body=chunked([b"x" * 9000, b"x" * 9000]))
    assert reply.status == 502 and b" recording_too_large: " in reply.body
    reasons = [line["reason"] for line in proxy.wait_log(2)]
    assert reasons == ["recording_too_large"] * 2
    assert recorded(folder) == 0
    reply = dial(proxy).ask("POST", origin.url("/a"), "Content-Length: 10240",
                            body=b"x" * 10_240)
    assert reply.status == 200
    wait_until(lambda: recorded(folder) == 1, "one recording")


def test_a_killed_writer_loses_neither_what_was_answered_nor_what_is_under_way(
        start, folder, make_origin, dial):
    """It had read a half of an answer: its successor reads that again."""
    goes_on = threading.Event()

    def script(conn):
        while request := conn.read_request():
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
            if request.target == "/slow":
                assert goes_on.wait(30)
            conn.send(b", end")

    origin = make_origin(script)
    proxy = start("record", STRICT, ADMIN)
    slow, quick = dial(proxy), dial(proxy)
    slow.send(build_request("GET", origin.url("/slow")))
    slow.read_until(b"first")
    assert quick.get(origin.url("/a")).status == 200
    wait_until(lambda: recorded(folder) == 1, "it has read what came before")
    writer(proxy).kill()
    assert quick.get(origin.url("/b")).status == 200
    goes_on.set()
    assert slow.read_until(b", end")
    wait_until(lambda: recorded(folder) == 3, lambda: str(recorded(folder)))
    session = Sessions(folder).open("default")
    found = {one.request.path: one.response.body for one in session.recordings()}
    assert found == dict.fromkeys(("/a", "/b", "/slow"), b"first, end")
    session.close()


def test_no_answer_is_lost_or_doubled_when_the_writer_is_killed_under_load(
        start, folder, make_origin, dial):
    origin = make_origin(answer(ANSWER))
    proxy = start("record", refusing(100, "60s"), "workers = 2")
    load = Load(proxy, origin, dial)
    for count in (100, 200):
        load.wait(200, count)
        writer(proxy).kill()
    load.wait(200, 400)
    load.end()
    assert {*load.statuses} == {200}
    wait_until(lambda: recorded(folder) >= load.statuses[200],
               lambda: f"{recorded(folder)} of {load.statuses}")
    session = Sessions(folder).open("default")
    paths = sorted(one.request.path for one in session.recordings())
    session.close()
    assert paths == sorted(f"/{number}" for number in range(load.statuses[200]))


def test_requests_are_refused_while_their_session_cannot_be_written(
        start, folder, make_origin, dial):
    """Recordings of earlier answers are written when the session can be written."""
    origin = make_origin()
    (folder / "default.session").write_bytes(b"no session" * 1000)
    proxy = start("record", refusing(10, "300ms"), ADMIN)
    client = dial(proxy)
    answered = 0
    while (reply := client.get(origin.url(f"/{answered}"))).status == 200:
        answered += 1
    assert (reply.status, reply.get("Retry-After")) == (503, "1")
    assert b" recording_full: " in reply.body and answered
    assert "recordings cannot be written: " in proxy.stderr()
    (folder / "default.session").unlink()
    wait_until(lambda: dial(proxy).get(origin.url("/last")).status == 200, "again")
    wait_until(lambda: recorded(folder) == answered + 1, lambda: str(recorded(folder)))
    assert "recordings are written again" in proxy.stderr()
