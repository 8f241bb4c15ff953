"""The sockets of all slots, in one process: what is done to them, and taken back."""

import os
import socket
import stat

import pytest

from cutthrough.config.config import Config
from cutthrough.config.listeners import Listener
from cutthrough.net.listener import begin, bound_address, saves_syn
from cutthrough.net.options import read_bound
from cutthrough.supervisor.listeners import Listeners


@pytest.fixture
def opened():
    """Makes Listeners, which are closed at the end."""
    made: list[Listeners] = []

    def make(*args) -> Listeners:
        made.append(Listeners(*args))
        return made[-1]
    yield make
    for listeners in made:
        listeners.close()


def on_any_port() -> tuple[Listener, ...]:
    return Config(listen=(("127.0.0.1", 0),)).all_listeners


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_slot_that_was_paused_serves_again(opened, times):
    """Paused twice, its sockets accepted connections that had ended already."""
    listeners = opened()
    listeners.commit(listeners.prepare(on_any_port(), 2))
    first, second = listeners.all()
    for _ in range(times):
        listeners.pause(0, 2)
    second.close()                           # every connection comes to the first
    begin(first)
    first.setblocking(True)
    with socket.create_connection(bound_address(first)) as client:
        taken, _ = first.accept()
        with taken:
            client.sendall(b"hello")
            assert taken.recv(5) == b"hello"
            taken.setblocking(False)
            with pytest.raises(BlockingIOError):
                taken.recv(1)


@pytest.fixture
def shared(opened, tmp_path):
    """A program that serves, and its successor with the same sockets, of which it wants
    other options. `state` returns what a program's sockets have."""
    path = tmp_path / "socket"

    def listeners(port: int, mode: int, backlog: int, saves: bool) -> list[Listener]:
        return [Listener(address=("127.0.0.1", port), backlog=backlog,
                         tcp_fingerprint=saves),
                Listener(address=(f"unix:{path}", 0), mode=mode)]

    def state(program: Listeners) -> tuple[int, int, bool]:
        tcp = program.all()[0]
        return stat.S_IMODE(os.stat(path).st_mode), read_bound(tcp), saves_syn(tcp)

    before = opened()
    before.commit(before.prepare(listeners(0, 0o666, 100, saves=False), 1))
    before.on_serving()
    assert state(before) == (0o666, 100, False)
    port = bound_address(before.all()[0])[1]
    after = opened([sock.dup() for sock in before.all()])
    after.commit(after.prepare(listeners(port, 0o600, 7, saves=True), 1))
    assert state(after) == (0o600, 7, True)
    return before, after, state


def test_a_successor_that_ends_before_it_serves_gives_the_options_back(shared):
    """The mode of its file, too: the program that served on shut its clients out, or
    let others in."""
    before, after, state = shared
    after.close()
    assert state(before) == (0o666, 100, False)


def test_a_successor_that_serves_keeps_its_options(shared):
    before, after, state = shared
    after.on_serving()
    before.close(handed_on=True)
    assert state(after) == (0o600, 7, True)
