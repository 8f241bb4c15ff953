"""Both sides talk in turn within one exchange of HTTP/1.1, and the replay does so too:
the recorded answer begins behind as much of the request as it did before."""

import pytest

from cutthrough.recording.sessions.modes import State, write_state
from tests.support.certificates import client_context
from tests.support.client import build_request
from tests.support.http2 import Peer
from tests.support.inside import config as inside
from tests.support.inside import enter, over_tls
from tests.support.recordings import folder as folder
from tests.support.recordings import recorded
from tests.support.recordings import start as start
from tests.support.stream import Closed
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop
PATH = "/turns"
LAST = b"0\r\n\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_chunk(stream):
    size = int(stream.read_until(b"\r\n")[:-2], 16)
    return stream.read_exact(size + 2)[:-2]


def answer_in_turn(conn):
    """Each chunk is answered before the next one is read."""
    head = conn.read_until(b"\r\n\r\n")
    while head:
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while data := read_chunk(conn):
            conn.send(chunk(data.upper()))
        conn.send(LAST)
        head = conn.read_until(b"\r\n\r\n")


def talk(client, url, *words):
    """The answers, each read before the next word is sent."""
    client.send(build_request("POST", url, "Transfer-Encoding: chunked"))
    heard = []
    for at, word in enumerate(words):
        client.send(chunk(word))
        if at == 0:
            heard.append(client.read_until(b"\r\n\r\n").split(b" ")[1])
        heard.append(read_chunk(client))
    client.send(LAST)
    assert client.read_exact(5) == LAST
    return heard


@pytest.fixture
def replay(start, folder, make_origin, dial):
    """A proxy that has recorded these words, and replays them; the URL."""
    def run(*told, keys="", config=""):
        origin = make_origin(answer_in_turn)
        proxy = start("record", keys, config)
        url = origin.url(PATH)
        for words in told:
            talk(dial(proxy), url, *words)
        wait_until(lambda: recorded(folder) == len(told), proxy.stderr)
        write_state(folder, State("replay"))
        wait_until(lambda: f"mode replay, session default, {len(told)}"
                   in proxy.stderr(), proxy.stderr)
        origin.close()
        return proxy, url
    return run


def test_sides_that_talk_in_turn_are_replayed_in_turn(replay, dial):
    """The client waited for the first answer, and the replay for the last chunk."""
    proxy, url = replay((b"one", b"two", b"three"))
    for _ in range(2):
        assert talk(dial(proxy), url, b"one", b"two", b"three") == [
            b"200", b"ONE", b"TWO", b"THREE"]
    assert {line["reason"] for line in proxy.wait_log(3)[1:]} == {"replayed"}


def test_who_does_not_wait_is_answered_behind_the_end(replay, dial):
    """And may still be refused."""
    proxy, url = replay((b"one", b"two"))
    for words, status, body in (((b"one", b"two"), 200, b"ONETWO"),
                                ((b"one", b"six"), 502, None)):
        got = dial(proxy).ask("POST", url, "Transfer-Encoding: chunked",
                              body=b"".join(map(chunk, words)) + LAST)
        assert got.status == status and body in (None, got.body)


def test_another_recording_takes_over_where_the_client_goes_on_like_it(replay, dial):
    proxy, url = replay((b"one", b"two"), (b"one", b"six", b"ten"))
    for _ in range(2):
        assert talk(dial(proxy), url, b"one", b"six", b"ten")[1:] == [
            b"ONE", b"SIX", b"TEN"]
        assert talk(dial(proxy), url, b"one", b"two")[1:] == [b"ONE", b"TWO"]


@pytest.mark.parametrize("words", [(b"one", b"six"), (b"one",)])
def test_who_goes_on_in_another_way_gets_no_whole_answer(replay, dial, words):
    proxy, url = replay((b"one", b"two"))
    client = dial(proxy)
    with pytest.raises(Closed):
        talk(client, url, *words)
    assert client.received.endswith(chunk(b"ONE"))
    assert proxy.wait_log(2)[1]["reason"] == "recording_missed"


def test_a_body_that_does_not_count_says_nothing_but_how_long_it_is(replay, dial):
    proxy, url = replay(
        (b"one", b"two"),
        config='[recording_routes.turns]\npaths = ["/turns"]\nbody = "ignore"\n')
    assert talk(dial(proxy), url, b"six", b"ten") == [b"200", b"ONE", b"TWO"]


def test_places_in_a_body_that_lost_its_secrets_do_not_count(replay, dial):
    proxy, url = replay((b'{"a": 1}\n', b'{"key": "hidden"}\n'),
                        config='recording_redact_json = ["$.key"]\n'
                        'body_timeout = "1s"\n')
    client = dial(proxy)
    with pytest.raises(Closed, match="408 body_timeout"):
        talk(client, url, b'{"a": 1}\n')


def test_a_client_of_http2_talks_in_turn_too(start, folder, make_origin, dial):
    origin = make_origin(over_tls(answer_in_turn))
    proxy = start("record", 'tls = "intercept"', inside())
    heard = []
    for mode in ("record", "replay"):
        write_state(folder, State(mode))
        wait_until(lambda mode=mode: f"mode {mode}, session default" in proxy.stderr(),
                   proxy.stderr)
        context = client_context()
        context.set_alpn_protocols(["h2"])
        peer = Peer(enter(proxy, dial(proxy), origin.port, context=context).sock)
        stream = peer.get(f"https://a.example:{origin.port}{PATH}", method="POST",
                          ends=False)
        for count, word in enumerate((b"one", b"two"), 1):
            peer.send(stream, word)
            while len(peer.answers[stream].body) < 3 * count:
                assert peer.read()
        peer.send(stream, b"", ends=True)
        heard.append(peer.wait(stream).body)
        wait_until(lambda: recorded(folder) == 1, proxy.stderr)
    assert heard == [b"ONETWO"] * 2
