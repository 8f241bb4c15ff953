"""Captured exchanges over the admin listener: access, reading, changes and sending.

The writer's own Store makes the rows, or a rule captures requests.
"""

import base64
import contextlib
import http.client
import json
import sqlite3
import time

import psutil
import pytest

from tests.capture.flows import row
from tests.support.admin import AUTHORIZED, TOKEN, administered
from tests.support.captures import wait_rows
from tests.support.client import PASSWORD, USER
from tests.support.flows import HELLO, fill, get, ids, listed, reads, send, ten_rows
from tests.support.flows import database as database
from tests.support.flows import filled as filled
from tests.support.flows import keep_filled as keep_filled
from tests.support.flows import start as start
from tests.support.origin import answer
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

READS = ("/flows", "/flows/1", "/flows/1/request-body", "/flows/1/response-body",
         "/flows/1/messages", "/flows/1/as/curl", "/flows/1/diff/2",
         "/flows/open", "/flows/open/0-1", "/flows/open/0-1/messages",
         "/flows/open/0-1/live", "/flows/reads", "/flows.har", "/flows/live",
         "/flows/counts", "/%66lows")


@pytest.fixture
def kept_filled(keep_filled):
    """For tests that change nothing."""
    return keep_filled(ten_rows())


# Access (R59)


def test_no_flow_is_read_without_the_token(filled, database):
    _, operator = filled
    for path in READS:
        for fields in ({}, {"Authorization": "Bearer guess"}):
            status, text = operator.ask("GET", path, **fields)
            assert (status, text) == (401, "flows require the admin token\n"), path
        assert operator.ask("HEAD", path)[0] == 401
    for method, path in (("DELETE", "/flows?all=true"), ("PATCH", "/flows/1"),
                         ("POST", "/flows/send"), ("POST", "/flows/import")):
        assert operator.ask(method, path)[0] == 401
    assert ids(operator) and reads(database) == [("127.0.0.1", "list", "", 10)]


def test_without_a_configured_token_nobody_reads(start):
    _, operator = start(token="")
    for path in READS:
        assert operator.ask("GET", path, **AUTHORIZED)[0] == 403


def test_another_site_and_another_name_are_refused(kept_filled):
    _, operator = kept_filled
    for path in ("/traffic", *READS):
        assert get(operator, path, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert get(operator, path, Host="rebound.example")[0] == 421


def test_every_read_is_logged_with_its_client(filled, database):
    _, operator = filled
    listed(operator, "filter=~d+h1")
    listed(operator, "search=hello")
    for path in ("/flows/3", "/flows/3/request-body", "/flows/3/response-body",
                 "/flows.har?filter=~c+201", "/flows/99"):
        get(operator, path)
    get(operator, "/flows/3", "DELETE")
    assert reads(database) == [("127.0.0.1", *one) for one in (
        ("list", "~d h1", 5), ("search", "hello", 10), ("show", "3", 1),
        ("request", "3", 1), ("response", "3", 1), ("export", "~c 201", 1),
        ("show", "99", 0), ("delete", "3", 1))]


# The list


def test_pages_go_on_where_they_ended(kept_filled):
    _, operator = kept_filled
    first = listed(operator, "limit=4")
    assert [one["id"] for one in first["flows"]] == [10, 9, 8, 7]
    assert (first["next"], first["newest"]) == (7, 10)
    second = listed(operator, f"limit=4&before={first['next']}")
    assert [one["id"] for one in second["flows"]] == [6, 5, 4, 3]
    last = listed(operator, f"limit=4&before={second['next']}")
    assert ([one["id"] for one in last["flows"]], last["next"]) == ([2, 1], None)
    assert ids(operator, "after=8") == [9, 10]
    assert ids(operator, "after=0&limit=2") == [1, 2]


def test_a_row_has_what_a_list_shows(kept_filled):
    _, operator = kept_filled
    one = listed(operator, "limit=1")["flows"][0]
    assert one.pop("time").startswith("2023-11-14T")
    assert one == {
        "id": 10, "request": "0-10", "kind": "request", "method": "GET", "url": "http://h0.test/10",
        "host": "h0.test", "status": 210, "reason": "ok", "rule": "here", "user": "ann",
        "client": "127.0.0.1", "client_port": 5000, "peer": "192.0.2.1:80",
        "ms": 15.7, "bytes": 160, "type": "text/plain"}


def test_a_filter_selects_and_a_bad_one_is_explained(kept_filled):
    _, operator = kept_filled
    assert ids(operator, "filter=~d+h1+%26+!~c+203") == [9, 7, 5, 1]
    assert ids(operator, "filter=~b+hell&limit=2&before=6") == [5, 4]
    assert ids(operator, "search=nowhere") == ids(operator, "search=%2B") == []
    status, _, text = get(operator, "/flows?filter=~x")
    assert status == 400 and text.startswith(b"filter: '~x' is none of ~c ")
    for query in ("limit=0", "limit=5001", "before=-1", "after=x"):
        assert get(operator, f"/flows?{query}")[0] == 400, query


def test_a_filter_that_never_ends_is_ended_and_hurts_nobody(
        filled, database):
    """(x+)+$ on thirty letters takes minutes, with the interpreter's lock held."""
    _, operator = filled
    fill(database, [row(20, url="http://h/" + "x" * 40 + "!")])
    slow = operator.connection()
    slow.request("GET", '/flows?filter=~u+"(x%2B)%2B$"', headers=AUTHORIZED)
    begun = time.monotonic()
    for _ in range(20):
        assert operator.get("/healthz") == "ok\n"
    assert ids(operator, "limit=1&filter=~c+201") == [1]
    assert time.monotonic() - begun < 4
    slow.sock.settimeout(60)
    answered = slow.getresponse()           # RE2 takes linear time
    assert (answered.status, json.loads(answered.read())["flows"]) == (200, [])
    slow.close()


def test_without_a_capture_file_there_are_none(loop_name, directory, opened):
    _, operator = administered(opened, directory("proxy"), loop_name)
    assert get(operator, "/flows")[::2] == (
        404, b"neither capture_file nor capture_url is configured\n")
    assert get(operator, "/traffic")[0] == 200


def test_new_flows_come_by_themselves(filled, database):
    _, operator = filled
    connection = operator.connection()
    connection.request("GET", "/flows/live?filter=~d+h1", headers=AUTHORIZED)
    stream = connection.getresponse()
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    fill(database, [row(n, host=f"h{n % 2}.test") for n in range(11, 31)])
    event = stream.readline()
    assert event.startswith(b"data: ")
    assert [one["id"] for one in json.loads(event[6:])] == list(range(11, 31, 2))
    assert stream.readline() == b"\n"
    connection.close()
    again = operator.connection()
    again.request("GET", "/flows/live?after=8", headers=AUTHORIZED)
    event = again.getresponse().readline()
    assert [one["id"] for one in json.loads(event[6:])] == list(range(9, 31))
    again.close()
    assert [one[1] for one in reads(database)] == ["watch", "watch"]


def test_watchers_are_bounded(kept_filled):
    _, operator = kept_filled
    there = []
    for _ in range(4):
        connection = operator.connection()
        connection.request("GET", "/flows/live", headers=AUTHORIZED)
        assert connection.getresponse().status == 200
        there.append(connection)
    assert get(operator, "/flows/live")[0] == 503
    for connection in there:
        connection.close()
    for _ in range(12):
        assert opens(operator), "a watcher that has left does not count"


def opens(operator) -> bool:
    connection = operator.connection()
    connection.request("GET", "/flows/live", headers=AUTHORIZED)
    status = connection.getresponse().status
    connection.close()
    return status == 200


# One flow, and its bodies


def test_a_flow_has_everything_but_its_bodies(start, make_origin, dial, database):
    proxy, operator = start()
    origin = make_origin(answer(HELLO))
    dial(proxy).ask("POST", origin.url("/a/b"), "Content-Length: 2", body=b"\xff\x00")
    wait_rows(database)
    status, _, content = get(operator, "/flows/1")
    flow = json.loads(content)
    assert status == 200 and flow["rule"] == "seen" and flow["user"] == USER
    assert flow["request_head"].startswith("POST /a/b HTTP/1.1\r\n")
    assert flow["response_head"] == HELLO.decode()[:-5]
    assert (flow["request_body"], flow["response_body"]) == ("bytes", "text")
    assert flow["response_type"] == "text/html" and flow["send_us"] >= 1
    assert get(operator, "/flows/1/request-body")[2] == b"\xff\x00"


def test_a_body_is_a_file_that_nothing_runs(start, make_origin, dial, database):
    """Else the page of another site would run in the listener's origin."""
    proxy, operator = start()
    dial(proxy).get(make_origin(answer(HELLO)).url("/"))
    wait_rows(database)
    status, fields, content = get(operator, "/flows/1/response-body")
    assert (status, content) == (200, b"<b>x<")
    assert fields["Content-Type"] == "application/octet-stream"
    assert fields["Content-Disposition"] == (
        'attachment; filename="flow-1-response.bin"')
    assert fields["X-Content-Type-Options"] == "nosniff"
    assert fields["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert get(operator, "/flows/1/request-body")[2] == b""
    assert get(operator, "/flows/2/response-body")[0] == 404


def test_the_page_allows_its_own_script_and_no_other(kept_filled):
    _, operator = kept_filled
    status, fields, content = get(operator, "/traffic")
    policy = fields["Content-Security-Policy"]
    assert status == 200 and b"http" not in policy.encode()
    assert "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
    assert content.count(b"<script") == content.count(b"<style") == 1


def test_flows_are_exported(kept_filled):
    _, operator = kept_filled
    status, fields, content = get(operator, "/flows.har?filter=~d+h1")
    archive = json.loads(content)
    assert status == 200 and fields["Content-Disposition"] == (
        'attachment; filename="flows.har"')
    urls = [one["request"]["url"] for one in archive["log"]["entries"]]
    assert urls == [f"http://h1.test/{n}" for n in range(1, 11, 2)]
    (one,) = json.loads(get(operator, "/flows.har?id=4")[2])["log"]["entries"]
    assert one["_id"] == "0-4"


# Changes


def test_a_tag_and_a_comment_stay_until_they_are_removed(filled):
    _, operator = filled
    for mark, wanted in (
            ({"tag": "odd", "comment": "why?"}, {"tag": "odd", "comment": "why?"}),
            ({"comment": ""}, {"tag": "odd"}), ({"tag": "x"}, {"tag": "x"})):
        status, _, content = get(operator, "/flows/10", "PATCH", json.dumps(mark))
        assert (status, json.loads(content)) == (200, {"marked": 10})
        row = listed(operator, "limit=1")["flows"][0]
        assert {key: row[key] for key in ("tag", "comment") if key in row} == wanted
        shown = json.loads(get(operator, "/flows/10")[2])
        assert {key: shown[key] for key in ("tag", "comment") if key in shown} == wanted
    for path, mark, expected in (
            ("/flows/99", {"tag": "a"}, 404), ("/flows/1", {"tag": "a" * 65}, 400),
            ("/flows/1", {"other": 1}, 400), ("/flows/1", {"tag": 1}, 400)):
        assert get(operator, path, "PATCH", json.dumps(mark))[0] == expected


def test_flows_are_deleted_and_their_words_too(filled, database):
    _, operator = filled
    assert get(operator, "/flows", "DELETE")[0] == 400
    assert json.loads(get(operator, "/flows/4", "DELETE")[2]) == {"deleted": 1}
    assert json.loads(get(operator, "/flows/4", "DELETE")[2]) == {"deleted": 0}
    get(operator, "/flows/1", "PATCH", '{"tag": "a"}')
    assert json.loads(get(operator, "/flows?filter=~d+h1", "DELETE")[2]) == {
        "deleted": 5}
    assert ids(operator) == ids(operator, "search=hello") == [10, 8, 6, 2]
    assert json.loads(get(operator, "/flows?all=true", "DELETE")[2]) == {"deleted": 4}
    assert ids(operator) == ids(operator, "search=hello") == []
    with contextlib.closing(sqlite3.connect(database)) as base:
        assert base.execute("SELECT * FROM marks").fetchall() == []
        base.execute("INSERT INTO words(words) VALUES('integrity-check')")


# Sending


def test_a_request_is_sent_by_the_proxy_under_its_policy(
        start, make_origin, database):
    proxy, operator = start()
    origin = make_origin(answer(HELLO))
    status, found = send(
        operator, method="PUT", url=origin.url("/a/b"), body=b"\x00new", user=USER,
        password=PASSWORD, fields=[["X-Odd", "1"], ["Content-Length", "99"],
                                   ["Connection", "x-odd"]])
    assert status == 200 and found["status"] == 200
    assert base64.b64decode(found["body"]) == b"<b>x<" and not found["truncated"]
    assert found["head"].startswith("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n")
    (row,) = wait_rows(database)
    assert row["method"] == "PUT" and row["user"] == USER and row["rule"] == "seen"
    assert row["request_body"] == b"\x00new" and "X-Odd: 1\r\n" in row["request_head"]
    assert "Content-Length: 4\r\n" in row["request_head"]
    # The operator has the rights of this user, and no more
    status, found = send(operator, url=origin.url("/b"), user=USER, password=PASSWORD)
    assert (status, found["status"]) == (200, 403)
    assert proxy.wait_log(2)[1]["reason"] == "path_denied"


def test_the_admin_token_is_no_user_of_the_proxy(start, make_origin):
    proxy, operator = start()
    for given in ({}, {"user": USER, "password": TOKEN}):
        status, found = send(operator, url=make_origin().url(), **given)
        assert (status, found["status"]) == (200, 407)
    assert {line["reason"] for line in proxy.wait_log(2)} <= {
        "auth_required", "auth_failed"}


def test_a_listener_without_credentials_is_not_used(start, make_origin):
    """Such a listener would trust the operator's requests by this host's address."""
    _, operator = start('[[listeners]]\naddress = "127.0.0.1:0"\nauth = "none"\n')
    status, text = send(operator, url=make_origin().url())
    assert status == 409 and text.startswith("there is no listener")


@pytest.mark.parametrize(("request_", "reason"), [
    ({"url": "ftp://a/"}, "url: begins with"), ({"url": "http://"}, "url: begins"),
    ({"url": "http://a/ b"}, "url: has a space"), ({"url": "http://u@a/"}, "url: has"),
    ({"url": "http://a/\r\nX: y"}, "url: has"), ({"url": "http://a/#f"}, "url: has"),
    ({"url": "http://a:x/"}, "url: "),
    ({"url": "http://a/", "method": "CONNECT"}, "method: 'CONNECT'"),
    ({"url": "http://a/", "method": "GET x"}, "method: "),
    ({"url": "http://a/", "fields": [["A\r\nB", "1"]]}, "fields: "),
    ({"url": "http://a/", "fields": [["A", "1\r\nB: 2"]]}, "fields: 'A'"),
    ({"url": "http://a/", "fields": [["Cookie", "[redacted]"]]}, "fields: the value"),
    ({"url": "http://a/", "what": 1}, "the body cannot be read"),
])
def test_what_is_no_request_is_not_sent(kept_filled, request_, reason):
    proxy, operator = kept_filled
    status, text = send(operator, **request_)
    assert status == 400 and text.startswith(reason)
    assert not proxy.log()


def test_an_address_that_does_not_answer_is_reported(start):
    _, operator = start()
    status, found = send(operator, url="http://127.0.0.1:1/", user=USER,
                         password=PASSWORD)
    assert (status, found["status"]) == (200, 502)


# Processes


def test_a_reader_that_dies_costs_one_answer_and_the_program_goes_on(filled):
    proxy, operator = filled
    listed(operator)
    (reader,) = [one for one in psutil.Process(proxy.process.pid).children()
                 if "cutthrough.capture.query_process" in one.cmdline()]
    assert reader.nice() == psutil.Process().nice() + 5
    reader.kill()
    wait_until(lambda: get(operator, "/flows")[0] == 200, "another one")
    assert not reader.is_running()


def test_a_client_that_does_not_read_is_cut_off(filled, database):
    proxy, operator = filled
    body = "x" * 4_000_000
    fill(database, [row(n, response_body=body) for n in range(20, 24)])
    connection = operator.connection()
    connection.request("GET", "/flows.har", headers=AUTHORIZED)
    address = connection.sock.getsockname()
    assert ids(operator, "limit=1")
    answer_ = connection.getresponse()
    supervisor = psutil.Process(proxy.process.pid)
    # Its socket is closed 10 s after the last piece that the client's buffer took
    wait_until(lambda: all(peer.raddr != address for peer in
                           supervisor.net_connections("tcp")), "its end", 90)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer_.read()
    connection.close()
