"""The registry and verified credentials in a Redis cluster, by the address of any
node."""

import json

import pytest

from tests.support.admin import DOOR, TOKEN
from tests.support.proxy import Proxy
from tests.support.redis import PROGRAM, cluster
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.any_loop,
    pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")]
SHARES = """
fleet_register = true
share_credentials = true
credentials_key = "0123456789abcdef0123456789abcdef"
"""
LINES = ("registered in Redis\n", "credentials are shared through Redis\n")


def test_any_node_of_a_cluster_leads_to_the_one_with_the_entries(
        directory, opened, loop_name):
    """Each step of both ended with MovedError, and so did `cutthrough fleet`."""
    nodes = opened.enter_context(cluster([directory("node"), directory("node")]))
    members = [opened.enter_context(Proxy(
        directory("member"), loop=loop_name,
        config=f'fleet_url = "{node.url}"\n{SHARES}{DOOR}')) for node in nodes]
    for member in members:
        for line in LINES:
            wait_until(lambda m=member, text=line: text in m.stderr(), member.stderr)
    for node in nodes:
        done = run_apart("fleet", "--json", seconds=120, CUTTHROUGH_FLEET_URL=node.url,
                         CUTTHROUGH_ADMIN_TOKEN=TOKEN)
        assert {json.loads(line)["pid"] for line in done.stdout.splitlines()} == {
            member.process.pid for member in members}
    assert not any("answers with an error" in member.stderr() for member in members)
