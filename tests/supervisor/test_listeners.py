"""The sockets of all slots, in one process: what is done to them, and taken back."""

import socket

import pytest

from cutthrough.config.config import Config
from cutthrough.config.listeners import Listener
from cutthrough.net.listener import begin, bound_address
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
