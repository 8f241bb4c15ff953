"""The fingerprints of clients beyond the log: in captures, and for the hook."""

import json
import ssl

import pytest

from tests.support.captures import database as database
from tests.support.captures import flows, wait_rows
from tests.support.certificates import client_context, localhost
from tests.support.inside import HERE
from tests.support.origin import answer
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
SEEN = f'[[rules]]\naction = "allow"\ncapture = "head"\n{HERE}'
NAMES = ("client_ja4", "client_ja3", "client_ja4_r", "client_ja4_o", "client_ja4_ro")


def capturing(database, more: str) -> str:
    return f'capture_file = "{database}"\n{more}{table(localhost())}'


def test_a_capture_has_what_the_log_has(
        start_policy, reach, dial, make_origin, database) -> None:
    proxy = start_policy(SEEN, capturing(database, "fingerprints = true\n"))
    assert reach(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    line, (row,) = proxy.wait_log(1)[0], wait_rows(database)
    assert row["client_ja4"] == line["client_ja4"]
    assert row["client_ja3"] == line["client_ja3"]
    assert row["client_ja4_r"] is row["http2_fingerprint"] is None
    shown = flows(database, "show", "1").stdout
    assert f"{'client_ja4':<24}{line['client_ja4']}\n" in shown
    found = [len(flows(database, "list", "--json", text).stdout.splitlines())
             for text in (f"~client_ja4 ^{line['client_ja4']}$", "~client_ja4 ^t12",
                          f"~client_ja3 {line['client_ja3']}")]
    assert found == [1, 0, 1]
    (entry,) = json.loads(flows(database, "export").stdout)["log"]["entries"]
    assert entry["_fingerprints"] == {
        name: line[name] for name in ("client_ja4", "client_ja3")}


def test_a_capture_has_the_variants_that_a_log_format_asks_for(
        start_policy, reach, make_origin, database) -> None:
    codes = " ".join(f"%ct::{name}" for name in NAMES)
    proxy = start_policy(SEEN, capturing(
        database, f'access_log_format = "{codes}"\n'))
    proxy.log = lambda **wanted: []     # its lines are no JSON
    assert reach(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    (row,) = wait_rows(database)
    (line,) = wait_until(proxy.lines, "a line")
    assert [row[name] for name in NAMES] == line.split()


def test_nothing_is_kept_if_nobody_asks(
        start_policy, reach, make_origin, database) -> None:
    proxy = start_policy(SEEN, capturing(database, ""))
    assert reach(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    (row,) = wait_rows(database)
    assert {row[name] for name in (*NAMES, "http2_fingerprint")} == {None}


HOOK = """
    import cutthrough

    async def decide(request: cutthrough.Request) -> cutthrough.Decision:
        print(request.fingerprints.get("client_ja4", "none"), flush=True)
        return cutthrough.Decision(
            request.fingerprints.get("client_ja4", "").startswith("t13"), ttl=60)
"""


def test_a_hook_decides_once_for_clients_of_one_software(
        start_policy, reach, dial, make_origin) -> None:
    """Its answer for one was the answer for all."""
    proxy = start_policy(f'[[rules]]\naction = "allow"\n{HERE}', table(localhost()),
                         hook=HOOK)
    url, old = make_origin(answer(OKAY)).url(), client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for _ in range(2):
        assert reach(proxy).get(url).status == 200
        assert reach(proxy, old).get(url).status == 403
    asked = (proxy.log_path.parent / "stdout").read_text().split()
    assert [text[:3] for text in asked] == ["t13", "t12"]
