"""Which hosts take a canary's bundle."""

from cutthrough.bundle.manifest import Canary, Manifest
from tests.support.bundles import CREATED

HOSTS = [f"proxy-{number}.example" for number in range(10_000)]


def taken(percent: int | None, revision: str = "r", serial: int = 1) -> set[str]:
    manifest = Manifest(serial, revision, CREATED, {},
                        None if percent is None else Canary(percent))
    return {host for host in HOSTS if manifest.is_for(host)}


def test_without_a_canary_every_host_takes_it() -> None:
    assert taken(None) == taken(100) == {*HOSTS}
    assert taken(0) == set()


def test_the_part_of_the_hosts_is_about_the_percentage() -> None:
    """Of 10 000 hosts: within five standard deviations."""
    for percent in (1, 5, 20, 50, 90):
        deviation = (percent * (100 - percent)) ** 0.5
        assert abs(len(taken(percent)) - 100 * percent) < 5 * deviation


def test_a_greater_percentage_of_the_same_revision_keeps_its_hosts() -> None:
    for less, more in ((1, 5), (5, 25), (25, 100)):
        assert taken(less, serial=1) < taken(more, serial=2)


def test_another_revision_takes_other_hosts() -> None:
    """Not the same hosts bear the risk each time."""
    first, second = taken(10, "first"), taken(10, "second")
    assert 20 < len(first & second) < 200
