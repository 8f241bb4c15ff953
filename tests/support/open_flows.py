"""Flows that have not ended, as the listener's database has them."""

import json

from tests.support.client import build_request
from tests.support.flows import get
from tests.support.wait import wait_until


def upgrade_at(client, origin, path):
    client.send(build_request("GET", origin.url(path), "Connection: Upgrade",
                              "Upgrade: websocket"))
    client.read_until(b"welcome")


def opened_rows(operator, query=""):
    status, _, content = get(operator, f"/flows/open?{query}")
    assert status == 200, content
    return json.loads(content)


def wait_open(operator, n=1):
    return wait_until(lambda: len(found := opened_rows(operator)) == n and found,
                      lambda: str(opened_rows(operator)))
