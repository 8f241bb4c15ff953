"""Sessions that requests choose: by a field, or by their user."""

import pytest

from cutthrough.recording.sessions.choice import name_of_user
from cutthrough.recording.sessions.directory import Sessions
from cutthrough.recording.sessions.modes import State, write_state
from tests.support.inside import ask, over_tls, shake
from tests.support.inside import config as inside
from tests.support.recordings import fill, made, recorded, tell_who
from tests.support.recordings import folder as folder
from tests.support.recordings import start as start
from tests.support.users import basic, hash_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FIELD = 'recording_session_field = "X-Session"\n'
ODD_NAME = "b@ex/.."
ANN, ODD = basic("ann:one"), basic(f"{ODD_NAME}:one")


@pytest.fixture
def by_user(directory):
    users = directory("of-users") / "users"
    users.write_text("".join(
        f"{name}:{hash_of('one')}\n" for name in ("ann", ODD_NAME)))
    return f'users_file = "{users}"\nrecording_session_user = true\n'


def switch(proxy, folder, mode, workers=1):
    before = proxy.stderr().count(f"mode {mode}, session default")
    write_state(folder, State(mode))
    wait_until(lambda: proxy.stderr().count(f"mode {mode}, session default")
               >= before + workers, proxy.stderr)


def test_a_field_names_the_session_of_its_request(start, folder, make_origin, dial):
    origin = make_origin(tell_who)
    proxy = start("record", config=FIELD + "workers = 2")
    for name in ("one", "two"):
        assert dial(proxy).get(
            origin.url("/a"), f"X-Session: {name}").body == name.encode()
    assert dial(proxy).get(origin.url("/a")).body == b"none"
    wait_until(lambda: [recorded(folder, name) for name in ("one", "two", "default")]
               == [1, 1, 1], "three sessions")
    switch(proxy, folder, "replay", workers=2)
    origin.close()
    for _ in range(3):
        client = dial(proxy)
        for name in ("one", "two"):
            assert client.get(
                origin.url("/a"), f"X-Session: {name}").body == name.encode()
        assert client.get(origin.url("/a")).body == b"none"


def test_each_user_has_a_session_inside_tunnels_too(
        start, folder, make_origin, dial, by_user):
    origin = make_origin(tell_who)
    secure = make_origin(over_tls(tell_who))
    proxy = start("record", 'tls = "intercept"', inside(by_user))

    def each(expected):
        for auth, name in ((ANN, "ann"), (ODD, "odd")):
            client = dial(proxy)
            assert client.get(origin.url("/a"), f"X-Session: {name}",
                              auth=auth).body == expected(name)
            client = dial(proxy)
            assert client.connect(f"a.example:{secure.port}", auth=auth).status == 200
            assert ask(shake(client), "GET", "/b", f"X-Session: {name}"
                       ).body == expected(name)
    each(str.encode)
    odd = name_of_user(ODD_NAME)
    assert odd.startswith("b_ex_..-") and odd != name_of_user("b_ex/..")
    wait_until(lambda: [recorded(folder, name) for name in ("ann", odd)] == [2, 2],
               lambda: f"{[*folder.iterdir()]} {proxy.stderr()}")
    switch(proxy, folder, "replay")
    origin.close()
    secure.close()
    each(str.encode)
    assert {line["reason"] for line in proxy.wait_log(12)[-6:]} >= {"replayed"}


def test_what_is_no_name_is_refused_and_not_recorded(start, folder, make_origin, dial):
    origin = make_origin(tell_who)
    proxy = start("record", config=FIELD)
    assert dial(proxy).get(origin.url("/a"), "X-Session: ../a").status == 200
    wait_until(lambda: "'../a' is no name of a session" in proxy.stderr(), "a line")
    assert not (folder.parent / "a.session").exists() and recorded(folder) == 0
    switch(proxy, folder, "replay")
    client = dial(proxy)
    for name, why in (("../a", b"is no name"),
                      ("unknown", b"there is no session 'unknown'")):
        reply = client.get(origin.url("/a"), f"X-Session: {name}")
        assert reply.status == 502 and why in reply.body
    assert proxy.wait_log(3)[-1]["reason"] == "recording_missed"


def test_a_session_that_begins_while_it_is_asked_is_found(
        start, folder, make_origin, dial):
    origin = make_origin(tell_who)
    proxy = start("cache", config=FIELD)
    client = dial(proxy)

    def is_replayed():
        client.get(origin.url("/a"), "X-Session: new")
        return any(line["reason"] == "replayed" for line in proxy.log())

    wait_until(is_replayed, proxy.stderr)
    assert recorded(folder, "new") >= 1 and recorded(folder) == 0


def test_more_sessions_than_a_worker_follows_answer_in_turn(start, folder, dial):
    for number in range(40):
        fill(folder, made(9, body=b"%d" % number), name=f"s{number}")
    proxy = start(config=FIELD + "workers = 1")
    client = dial(proxy)
    for number in (*range(40), *range(40)):
        reply = client.get("http://127.0.0.1:9/a", f"X-Session: s{number}")
        assert reply.body == b"%d" % number
    assert {line["reason"] for line in proxy.wait_log(80)} == {"replayed"}


def test_hits_are_counted_in_the_session_that_was_chosen(start, folder, dial):
    for name in ("default", "one"):
        fill(folder, made(9), name=name)
    proxy = start(config=FIELD)
    client = dial(proxy)
    for _ in range(3):
        assert client.get("http://127.0.0.1:9/a", "X-Session: one").body == b"hello"

    def hits(name):
        session = Sessions(folder).open(name)
        found = session.get(1).hits
        session.close()
        return found
    wait_until(lambda: hits("one") == 3, lambda: f"{hits('one')}")
    assert hits("default") == 0


