"""A proxy with captures and an admin listener, which answers with flows."""

import base64
import json

import pytest

from cutthrough.storage.stores import open_reader, open_store
from tests.capture.flows import row
from tests.support.admin import AUTHORIZED, TOKEN, administered
from tests.support.wait import wait_until

POLICY = """
default = "deny"
[[rules]]
name = "seen"
action = "allow"
addresses = ["127.0.0.0/8"]
paths = ["/", "/a/**"]
capture = "full"
"""

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<b>x<"


@pytest.fixture
def database(tmp_path):
    return tmp_path / "flows.db"


@pytest.fixture
def start(loop_name, directory, opened, database, tmp_path):
    def run(text="", token=TOKEN):
        (tmp_path / "policy.toml").write_text(POLICY)
        return administered(
            opened, directory("proxy"), loop_name,
            f'capture_file = "{database}"\npolicy = "{tmp_path}/policy.toml"\n'
            f'capture_age = "0"\n{text}',
            token)
    return run


@pytest.fixture
def filled(start, database):
    """An operator of a proxy with ten flows in its database, and the proxy."""
    proxy, operator = start()
    wait_until(database.exists, "the writer's file")
    fill(database, [row(n, host=f"h{n % 2}.test", url=f"http://h{n % 2}.test/{n}",
                        status=200 + n) for n in range(1, 11)])
    return proxy, operator


def fill(database, rows):
    store = open_store(str(database), 0, 0, 0.0)
    store.write(rows)
    while store.index(1000):
        pass
    store.close()


def get(operator, path, method="GET", body=None, **fields):
    """Status, fields and content, as bytes."""
    connection = operator.connection()
    connection.request(method, path, body, AUTHORIZED | fields)
    found = connection.getresponse()
    content = found.read()
    connection.close()
    return found.status, found.headers, content


def listed(operator, query=""):
    status, _, content = get(operator, f"/flows?{query}")
    assert status == 200, content
    return json.loads(content)


def ids(operator, query=""):
    return [flow["id"] for flow in listed(operator, query)["flows"]]


def reads(database):
    reader = open_reader(str(database))
    found = [(one["client"], one["verb"], one["what"], one["found"])
             for one in reader.reads()][::-1]
    reader.close()
    return found


def send(operator, **request):
    body = request.pop("body", b"")
    status, _, content = get(operator, "/flows/send", "POST", json.dumps(
        request | {"body": base64.b64encode(body).decode()}))
    return status, json.loads(content) if status == 200 else content.decode()
