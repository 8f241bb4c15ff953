"""Failures behind a parent that may be their destination's."""

import pytest

from tests.support.origin import Connection
from tests.support.parent_groups import OPEN
from tests.support.parents import http, parent
from tests.support.users import BOB, USERS


@pytest.mark.any_loop
@pytest.mark.parametrize("targets", [1, 12])
def test_who_asks_for_dead_ends_keeps_no_parent_from_others(
        start_policy, make_origin, dial, targets):
    """R76: four CONNECTs of one user closed a working parent for all."""
    def script(conn: Connection) -> None:
        conn.fill()
        if b":4711 " in conn.pending:
            http(conn)                      # else it sends nothing, and closes
    way = make_origin(script)
    proxy = start_policy(USERS + '[[rules]]\naction = "allow"\n',
                         OPEN + 'route = "corp"\n' + parent(way))
    for i in range(12):
        target = f"127.0.0.1:{5000 + i % targets}"
        assert dial(proxy).connect(target, auth=BOB).status in (502, 503)
    ends = [one["reason"] for one in proxy.wait_log(12)]
    assert ends[:3] == ["parent_closed"] * 3
    assert ("parent_unreachable" in ends) == (targets > 1), "for this user"
    assert dial(proxy).connect("127.0.0.1:4711").status == 200
