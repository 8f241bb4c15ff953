"""Answers at hand: sent without the player, if it would answer the same again."""

import re

import msgspec
import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.client import build_request
from tests.support.inside import ask, shake
from tests.support.inside import config as inside
from tests.support.origin import answer
from tests.support.recordings import fill, made, run_verb, without_secrets
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_names_of_one_address_have_answers_of_their_own(start, folder, dial):
    """An answer at hand was found by the CONNECT's address: another name's, that is."""
    names = ("a.example", "b.example")
    fill(folder, *[made(9, scheme="https", host=name, body=name.encode())
                   for name in names])
    proxy = start(keys='tls = "intercept"', config="workers = 1\n" + inside())
    clients = [shake(dial(proxy).tunnel("127.0.0.1:9"), name) for name in names]
    for _ in range(2):
        for name, client in zip(names, clients, strict=True):
            assert ask(client, "GET", "/a", host=name).body == name.encode()


def test_answers_of_a_port_that_does_not_count_are_those_of_all(start, folder, dial):
    fill(folder, made(9, body=b"9"), made(10, body=b"10"), made(11, "/b", body=b"11"))
    proxy = start(config='workers = 1\n[recording_routes.a]\nignored = ["port"]\n')
    client = dial(proxy)
    ports, paths = (9, 12, 12, 9), ("/a", "/b", "/a", "/b")
    asked = [f"http://127.0.0.1:{port}{path}" for port, path in zip(
        ports, paths, strict=True)]
    assert [client.get(url).body for url in asked * 2] == [
        b"9", b"11", b"10", b"11", b"10", b"11", b"10", b"11"]
    assert client.get("http://127.0.0.2:9/b").status == 502


def test_a_304_and_a_206_answer_only_who_has_asked_for_them(start, folder, dial):
    """Also beside answers that are made beforehand."""
    whole, unchanged = made(9, "/b", body=b"abc"), made(
        9, "/a", status=304, body=b"", fields=(("ETag", '"x"'),))
    part = made(9, "/c", status=206, body=b"b", fields=(("Content-Range", "b 1-1/3"),))
    part = msgspec.structs.replace(part, request=msgspec.structs.replace(
        part.request, fields=(("Range", "bytes=1-1"),)))
    fill(folder, whole, unchanged, part)
    client = dial(start(config="workers = 1\n"))
    for _ in range(2):
        assert client.get("http://127.0.0.1:9/b").body == b"abc"
        for path, field, status in (
                ("/a", "", 502), ("/a", 'If-None-Match: "x"', 304),
                ("/c", "", 502), ("/c", "Range: bytes=1-1", 206),
                ("/c", "Range: bytes=2-2", 502)):
            client.send(build_request("GET", f"http://127.0.0.1:9{path}", *filter(
                None, [field])))
            assert client.read_response("GET").status == status, (path, field)


HOOKS = """
class Hooks:
    def on_replay(self, request, one):
        return None
"""


def test_answers_made_beforehand_are_those_of_the_player(start, folder, dial):
    """With a hook each answer is the player's own."""
    recordings = [
        made(9), made(9, "/q", query="b=2&a=%20x"), made(9, method="HEAD", body=b""),
        made(9, "/c", trailers=(("X-Sum", "1"),), fields=()),
        made(9, "/n", status=204, body=b"", fields=()),
        made(9, "/nolength", fields=()), made(9, "/e", body=b""),
        made(9, "/odd", fields=(("Content-Length", "7, 7"),)),
        made(9, "/latin", fields=(("X-Name", "caf\xe9"), ("Content-Length", "5"))),
        made(9, "/big", body=b"q" * 40_000),
        *[made(9, "/s", scheme="https", host=name, body=name.encode())
          for name in ("a.example", "b.example")]]
    fill(folder, *recordings)
    keys = 'tls = "intercept"'
    prepared = start(keys=keys, config="workers = 1\n" + inside())
    played = start(keys=keys, config="workers = 1\n" + inside(
        'recording_hooks = "kept:Hooks"\n'), modules={"kept": HOOKS})

    def ask_all(proxy):
        replies = []
        for recording in recordings[:-2]:
            client, request = dial(proxy), recording.request
            query = f"?{request.query}" if request.query else ""
            url = f"http://127.0.0.1:9{request.path}{query}"
            for text in (build_request(request.method, url),
                         build_request(request.method, url, "Accept: */*"),
                         build_request(request.method, url).replace(
                             b" HTTP/1.1", b" HTTP/1.0")):
                client.send(text)
                replies.append(client.read_response(request.method))
        for recording in recordings[-2:]:
            name = recording.request.host
            client = shake(dial(proxy).tunnel("127.0.0.1:9"), name)
            replies.append(ask(client, "GET", "/s", host=name))
        return [(reply.status, [line for line in without_secrets(reply.raw)
                                if not line.startswith(b"Via")],
                 reply.body, reply.trailers) for reply in replies]

    answers = ask_all(played)
    assert {answer[0] for answer in answers} == {200, 204}
    assert ask_all(prepared) == answers
    lines = played.wait_log(len(answers)), prepared.wait_log(len(answers))
    assert [[line["reason"] for line in some if line["method"] != "CONNECT"]
            for some in lines] == [["replayed"] * len(answers)] * 2


def test_sessions_and_modes_have_answers_of_their_own(start, folder, dial, make_origin):
    """An answer of one session or mode is not sent when another is in force."""
    origin = make_origin(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlive"))
    port = origin.port
    fill(folder, *[made(port, f"/{number}") for number in range(300)])
    fill(folder, made(port, "/1", body=b"other"), name="other")
    proxy = start(config="workers = 1")
    client = dial(proxy)
    for mode, session, body in [
            ("replay", "default", b"hello"), ("off", "", b"live"),
            ("replay", "other", b"other"), ("cache", "default", b"hello"),
            ("spy", "other", b"other"), ("rules", "default", b"hello"),
            ("record", "new", b"live")]:
        run_verb(folder, "mode", mode, *(["--session", session] if session else []))
        wait_until(lambda body=body: client.get(
            f"http://127.0.0.1:{port}/1").body == body, mode)
        for _ in range(3):
            assert client.get(f"http://127.0.0.1:{port}/1").body == body


def test_an_answer_is_the_same_whether_it_is_at_hand_or_not(start, folder, dial):
    """The second one is sent without Python: with any method, version and body."""
    fill(folder, made(9), made(9, method="HEAD", body=b""),
         made(9, "/c", trailers=(("X-Sum", "1"),), fields=()),
         made(9, "/n", status=204, body=b"", fields=()),
         made(9, "/p", method="POST", sent=b"x=1", body=b"one"),
         made(9, "/p", method="POST", sent=b"x=2", body=b"two"),
         made(9, "/big", body=b"q" * 30_000))
    proxy = start(config="workers = 1")

    def ask_all(client):
        url = "http://127.0.0.1:9"
        replies = [client.get(f"{url}/a"), client.ask("HEAD", f"{url}/a"),
                   client.get(f"{url}/c"), client.get(f"{url}/n"),
                   client.get(f"{url}/big")]
        for sent in (b"x=1", b"x=2", b"x=3"):
            replies.append(client.ask(
                "POST", f"{url}/p", "Content-Length: 3", body=sent))
        replies.append(client.ask("POST", f"{url}/p", "Transfer-Encoding: chunked",
                                  body=b"3\r\nx=2\r\n0\r\n\r\n"))
        # A miss has the number of its request
        return [(reply.status, without_secrets(reply.raw),
                 re.sub(rb"request [0-9-]+", b"", reply.body), reply.trailers)
                for reply in replies]

    client = dial(proxy)
    first = ask_all(client)
    assert [answer[0] for answer in first] == [
        200, 200, 200, 204, 200, 200, 200, 502, 200]
    assert [answer[2] for answer in first[5:7]] == [b"one", b"two"]
    for _ in range(3):
        assert ask_all(client) == first
    assert ask_all(dial(proxy)) == first
    reasons = [line["reason"] for line in proxy.wait_log(9 * 5)]
    assert reasons == (["replayed"] * 7 + ["recording_missed", "replayed"]) * 5


def test_requests_in_one_segment_are_each_answered(start, folder, dial):
    """Bodies of requests behind the first are taken off the same bytes."""
    fill(folder, *[made(9, "/p", method="POST", sent=b"n=%d" % number,
                        body=b"%d" % number) for number in range(3)])
    proxy = start()
    client = dial(proxy)
    texts = [build_request("POST", "http://127.0.0.1:9/p", "Content-Length: 3",
                           body=b"n=%d" % number) for number in range(3)]
    for _ in range(4):
        client.send(b"".join(texts))
        assert [client.read_response("GET").body for _ in texts] == [b"0", b"1", b"2"]
    for text in texts:
        for at in range(len(text) - 8, len(text)):
            client.send(text[:at])
            client.send(text[at:])
            assert client.read_response("GET").body == text[-1:]


def test_a_slow_reader_gets_all_of_an_answer_at_hand(start, folder, dial):
    fill(folder, made(9, body=b"q" * 32_000))
    client = dial(start())
    for _ in range(200):
        client.send(build_request("GET", "http://127.0.0.1:9/a"))
    for _ in range(200):
        assert len(client.read_response("GET").body) == 32_000


def test_hits_are_counted_and_an_edit_is_seen(start, folder, dial):
    fill(folder, made(9))
    proxy = start(config="workers = 1")
    client = dial(proxy)
    for _ in range(7):
        assert client.get("http://127.0.0.1:9/a").body == b"hello"
    session = Sessions(folder).open("default")
    wait_until(lambda: session.get(1).hits == 7, "seven hits")
    session.add([made(9, body=b"again")])
    wait_until(lambda: client.get("http://127.0.0.1:9/a").body == b"again", "again")
    session.close()


def test_hits_stay_with_their_session(start, folder, dial):
    """Hits of the old session were counted for the same numbers in the new one."""
    fill(folder, made(9))
    fill(folder, made(9, body=b"other"), name="other")
    proxy = start(config="workers = 1")
    client = dial(proxy)
    for _ in range(5):
        assert client.get("http://127.0.0.1:9/a").body == b"hello"
    write_state(folder, State("replay", "other"))
    wait_until(lambda: client.get("http://127.0.0.1:9/a").body == b"other", "other")
    old, new = (Sessions(folder).open(name) for name in ("default", "other"))
    wait_until(lambda: new.get(1).hits, "a hit")
    assert old.get(1).hits >= 5 and new.get(1).hits <= 3
    old.close()
    new.close()
