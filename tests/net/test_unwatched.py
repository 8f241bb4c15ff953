"""A descriptor that cannot be watched, or prepared, is closed by its opener (R33).

    event: the poller takes no more, or a preparation raises
    state: each of a bridge's three parts, an acceptor, an attempt to connect
"""

import pytest


@pytest.fixture(scope="module")
def unwatched():
    from tests.doors import unwatched

    return unwatched


@pytest.mark.parametrize("left", range(3))
def test_a_bridge_that_is_not_watched_leaves_nothing_open(unwatched, left):
    put, watched, ended, more = unwatched.bridge(left)
    assert (put, watched, ended, more) == (False, 0, True, 0)


def test_a_bridge_that_is_watched_is_put(unwatched):
    put, watched, _, _ = unwatched.bridge(3)
    assert (put, watched) == (True, 3)


def test_an_acceptor_that_is_not_watched_closes_its_descriptor(unwatched):
    assert unwatched.accept() == 0


def test_a_socket_whose_preparation_raises_is_closed(unwatched):
    assert unwatched.prepare() == 0
