"""`cutthrough doctor` about listeners for load balancers (R40, R50)."""

import pytest

from cutthrough.doctor import program
from tests.doctor.hosts import ME, make_case, verdicts

BEHIND = {**ME, "listen": ["127.0.0.1:1"], "proxy_protocol": ["127.0.0.1:1"]}


@pytest.mark.parametrize(("networks", "more", "name", "verdict"), [
    ("10.0.0.0/8", {}, "PROXY protocol", "ok"),
    ("10.0.0.0/8", {}, "listen 127.0.0.1:1", "note"),
    ("10.0.0.0/8,0.0.0.0/0", {}, "PROXY protocol", "warn"),
    ("::/0", {}, "PROXY protocol", "warn"),
    ("::1", {"head_timeout": "2s"}, "PROXY header", "warn"),
])
def test_networks_that_anybody_calls_from_and_short_times_are_reported(
        networks, more, name, verdict):
    case = make_case(**BEHIND, proxy_protocol_from=networks, **more)
    assert verdicts(program.check_listeners(case))[name] == verdict


def test_without_the_protocol_nothing_is_said_of_it():
    assert not [*program.check_proxy_protocol(make_case(**ME).config)]
