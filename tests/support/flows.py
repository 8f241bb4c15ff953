"""A proxy with captures and an admin listener, which answers with flows."""

import base64
import json

import pytest

from cutthrough.storage.stores import open_reader, open_store
from tests.capture.flows import row
from tests.support.admin import AUTHORIZED, DOOR, TOKEN, administered, operator_of
from tests.support.proxy import Proxy
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


def options(folder, database):
    """Options of a proxy that captures into this file; its policy is in the folder."""
    (folder / "policy.toml").write_text(POLICY)
    return (f'capture_file = "{database}"\npolicy = "{folder}/policy.toml"\n'
            'capture_age = "0"\n')


@pytest.fixture
def start(loop_name, directory, opened, database, tmp_path):
    return lambda text="", token=TOKEN: administered(
        opened, directory("proxy"), loop_name, options(tmp_path, database) + text,
        token)


@pytest.fixture
def filled(start, database):
    """An operator of a proxy with ten flows in its database, and the proxy."""
    proxy, operator = start()
    fill_new(database, ten_rows())
    return proxy, operator


@pytest.fixture
def keep_filled(loop_name, directory, keep):
    """As `filled` for the tests of a module that change none of these rows: a start
    takes a writer and readers, 0.6 s of CPU."""
    def take(rows):
        def begin():
            folder = directory("flows")
            proxy = Proxy(directory("proxy"), loop=loop_name,
                          config=DOOR + options(folder, folder / "flows.db"))
            fill_new(folder / "flows.db", rows)
            return proxy
        proxy = keep(("filled",), begin)
        return proxy, operator_of(proxy)
    return take


def ten_rows():
    return [row(n, host=f"h{n % 2}.test", url=f"http://h{n % 2}.test/{n}",
                status=200 + n) for n in range(1, 11)]


def fill_new(database, rows):
    wait_until(database.exists, "the writer's file")
    fill(database, rows)


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
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


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
