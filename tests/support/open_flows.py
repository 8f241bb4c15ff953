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


def wait_file(operator):
    """A worker may serve before the writer has made its file: 404 until then."""
    wait_until(lambda: get(operator, "/flows/open")[::2] != (
        404, b"nothing has been captured yet\n"), "the writer's file")


def wait_open(operator, n=1):
    wait_file(operator)
    return wait_until(lambda: len(rows := opened_rows(operator)) == n and rows,
                      lambda: str(opened_rows(operator)))
