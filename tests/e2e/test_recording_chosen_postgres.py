"""Sessions that requests choose, in a real PostgreSQL, which several hosts replay."""

import pytest

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.postgres import postgres as postgres
from tests.support.postgres import server as server
from tests.support.postgres import url_file as url_file
from tests.support.recordings import tell_who
from tests.support.shared_recordings import ask as ask
from tests.support.shared_recordings import start as start
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FIELD = 'recording_session_field = "X-Session"\nworkers = 2\n'
NAMES = ("one", "two")


def asks(client, url, name, body):
    wait_until(lambda: client.get(url, f"X-Session: {name}").body == body,
               lambda: str(client.get(url, f"X-Session: {name}")))


@pytest.fixture
def hosts(start, ask, make_origin, dial):
    """Host a has recorded two sessions, which b replays; the URL."""
    origin = make_origin(tell_who)
    first, second = start("a", config=FIELD), start("b", "replay", FIELD)
    for name in NAMES:
        assert dial(first.proxy).get(
            origin.url("/a"), f"X-Session: {name}").body == name.encode()
    wait_until(lambda: len(ask()) == 2, first.proxy.stderr)
    origin.close()
    return first, second, origin.url("/a")


def test_a_chosen_session_is_replayed_by_the_other_hosts(hosts, ask, dial, postgres):
    """The two options were refused beside recording_url."""
    first, second, url = hosts
    client = dial(second.proxy)
    for name in NAMES:
        asks(client, url, name, name.encode())
    assert b"there is no session 'three'" in client.get(url, "X-Session: three").body
    wait_until(lambda: all(hits for hits, in ask("hits")), lambda: str(ask("hits")))
    # A deleted session is gone everywhere, and the rest stay
    assert first.run("recordings", "delete", "one").returncode == 0
    wait_until(lambda: client.get(url, "X-Session: one").status == 502, "gone")
    asks(client, url, "two", b"two")
    postgres.pause()
    asks(client, url, "two", b"two")


def test_an_import_into_a_chosen_session_is_copied(hosts, dial, tmp_path):
    first, second, url = hosts
    asks(dial(second.proxy), url, "two", b"two")
    files = str(tmp_path / "files")
    assert first.run("recordings", "export", "one", files).returncode == 0
    assert first.run("recordings", "delete", "two").returncode == 0
    assert first.run("recordings", "import", "two", files).returncode == 0
    asks(dial(second.proxy), url, "two", b"one")


def test_a_session_of_the_host_alone_does_not_stop_the_others(hosts, dial):
    _, second, url = hosts
    own = second.directory / "own"
    asks(dial(second.proxy), url, "two", b"two")
    Sessions(own).create("three").close()
    (second.directory / "three.session").hardlink_to(own / "three.session")
    first = hosts[0]
    assert first.run("recordings", "create", "three").returncode == 0
    second.told("three.session: is a session of this host alone")
    assert first.run("recordings", "delete", "one").returncode == 0
    wait_until(lambda: dial(second.proxy).get(url, "X-Session: one").status == 502,
               second.proxy.stderr)
    write_state(second.directory, State("replay", "two"))
    wait_until(lambda: dial(second.proxy).get(url).body == b"two",
               second.proxy.stderr)
