"""The order of eviction: the largest party of a kind, and of it the longest at rest."""

import random

import pytest

from tests.doors.session import Roll

STRANGER, STRANGER_HEAD, GUEST, GUEST_HEAD = range(4)


@pytest.fixture
def roll() -> Roll:
    return Roll()


def take_all(roll: Roll, kind: int = STRANGER) -> list[object]:
    found = []
    while (first := roll.first(kind)) is not None:
        roll.drop(first)
        found.append(first)
    return found


def test_the_address_with_most_loses_one_first(roll):
    for name, number in (("a1", 1), ("b1", 2), ("b2", 2), ("c1", 3), ("b3", 2),
                         ("c2", 3)):
        roll.add(name, f"192.0.2.{number}")
    assert take_all(roll) == ["b1", "b2", "c1", "a1", "b3", "c2"]
    assert (roll.listed, roll.parties) == (0, 0)


def test_of_addresses_with_one_connection_each_the_oldest_goes_first(roll):
    for n in range(200):
        roll.add(n, f"192.0.2.{n}")
    assert take_all(roll) == list(range(200))


def test_one_that_is_renewed_is_the_newest_of_its_address(roll):
    for name in "abc":
        roll.add(name, "192.0.2.1")
    roll.renew("a")
    roll.renew("c")
    assert take_all(roll) == ["b", "a", "c"]


def test_kinds_are_kept_apart(roll):
    roll.add("guest", "192.0.2.1", GUEST)
    roll.add("head", "192.0.2.1", STRANGER_HEAD)
    assert roll.first(STRANGER) is None
    assert (roll.first(GUEST), roll.first(STRANGER_HEAD)) == ("guest", "head")
    assert roll.first_of("192.0.2.1", GUEST) == "guest"
    assert roll.first_of("192.0.2.1", GUEST_HEAD) is None
    assert roll.first_of("192.0.2.2", GUEST) is None


def test_an_ipv6_client_is_its_network(roll):
    """A host may use any address of its /64, and would be thousands of clients."""
    roll.add("a", "2001:db8:0:1::1")
    roll.add("b", "2001:db8:0:2::1")
    roll.add("c", "2001:db8:0:1:ffff::2")
    assert roll.parties == 2 and roll.most() == 2
    assert roll.first_of("2001:db8:0:1::77") == "a"
    assert take_all(roll) == ["a", "c", "b"], "of equals the party made first"


def test_an_ipv4_address_is_not_the_network_of_the_same_bytes(roll):
    roll.add("four", "32.1.13.184")
    roll.add("six", "2001:db8::1")
    assert roll.parties == 2


def test_what_a_crowd_took_goes_back_when_it_has_gone(roll):
    """The table stayed as long as the largest crowd: 32 bytes for each of it."""
    least = roll.room
    for again in range(2):
        for n in range(1000):
            roll.add(n, f"10.0.{n // 250}.{n % 250}", n % 4)
        assert roll.room >= 1000
        taken = [name for kind in range(4) for name in take_all(roll, kind)]
        assert sorted(taken) == [*range(1000)], again
        assert roll.room == least


@pytest.mark.parametrize("addresses", [1, 3, 40, 2000])
def test_it_says_what_a_slow_obvious_twin_says(roll, addresses):
    chance = random.Random(addresses)
    began: dict[str, int] = {}                      # address -> when its party was made
    parties: dict[str, list[int]] = {}
    where: dict[int, str] = {}
    for step in range(4000):
        if where and chance.random() < (0.3 if step < 2500 else 0.6):
            name = chance.choice(list(where)) if chance.random() < 0.5 else roll.first()
            if chance.random() < 0.3:
                roll.renew(name)
                parties[where[name]].remove(name)
                parties[where[name]].append(name)
            else:
                roll.drop(name)
                address = where.pop(name)
                parties[address].remove(name)
                if not parties[address]:
                    del parties[address]
        else:
            address = f"10.0.{chance.randrange(addresses) // 250}.{step % 250}" if (
                addresses > 40) else f"10.0.0.{chance.randrange(addresses)}"
            roll.add(step, address)
            if address not in parties:
                began[address] = step
            parties.setdefault(address, []).append(step)
            where[step] = address
        largest = min(parties, default=None,
                      key=lambda one: (-len(parties[one]), began[one]))
        assert roll.first() == (parties[largest][0] if largest else None)
        assert (roll.listed, roll.parties) == (len(where), len(parties))
