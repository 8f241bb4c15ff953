"""`capture_compress`, end to end: the writer compresses, and readers see bodies."""

import itertools
import json

import pytest

from tests.support.captures import database as database
from tests.support.captures import flows, rows, wait_rows
from tests.support.flows import POLICY
from tests.support.origin import answer
from tests.support.stream import chunked
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

BODY = json.dumps([{"name": f"user{n}", "secret": "s3cret", "plan": "free"}
                   for n in range(200)])
REPLY = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n" + chunked([BODY.encode()]))


def test_bodies_are_compressed_and_read_as_others(
        start_policy, make_origin, dial, database):
    """R79: values are replaced before a body is compressed."""
    proxy = start_policy(POLICY, f'capture_file = "{database}"\n'
                         'capture_compress = true\nredact_json = ["$.*.secret"]\n')
    origin = make_origin(answer(REPLY))
    assert dial(proxy).get(origin.url("/a/b")).status == 200
    (row,) = wait_rows(database)
    assert row["response_body"] is None
    assert len(row["response_packed"]) < len(BODY) / 5 and row["bytes"] < len(BODY) / 2
    kept = BODY.replace("s3cret", "[redacted]")
    assert flows(database, "show", "1", "--body", "response").stdout == kept
    (entry,) = json.loads(flows(database, "export").stdout)["log"]["entries"]
    assert entry["response"]["content"]["text"] == kept
    assert "/a/b" in flows(database, "list", "~bs user199").stdout
    wait_until(lambda: "/a/b" in flows(database, "search", "user199").stdout,
               "an index")


def test_a_reload_begins_and_ends_it(start_policy, make_origin, dial, database):
    """In the writer, which may take a request of the moment before it looks."""
    config = f'capture_file = "{database}"\n'
    proxy = start_policy(POLICY, config)
    origin = make_origin(answer(REPLY))
    asked = itertools.count(1)

    def is_packed() -> bool:
        assert dial(proxy).get(origin.url("/a")).status == 200
        wait_rows(database, next(asked))
        return rows(database)[-1]["response_packed"] is not None
    assert not is_packed()
    proxy.reload(f'policy = "{proxy.policy}"\n{config}capture_compress = true\n')
    wait_until(is_packed, "a packed body")
    proxy.reload(f'policy = "{proxy.policy}"\n{config}')
    wait_until(lambda: not is_packed(), "a body as it is")
    for row in rows(database):
        shown = flows(database, "show", str(row["id"]), "--body", "response")
        assert shown.stdout == BODY
