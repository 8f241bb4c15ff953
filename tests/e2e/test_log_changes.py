"""The log's fields of filters, breakpoints and the TLS behind the proxy, in JSON and by
a format."""

import pytest

from tests.support.breakpoints import send, starter
from tests.support.client import build_request
from tests.support.filters import FILTERS
from tests.support.filters import start as start
from tests.support.inside import HERE, ask, enter, okay, over_tls
from tests.support.inside import config as inside
from tests.support.origin import answer
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

FORM = ("%ct::changed %ct::breakpoint %ct::peer_tls_version %ct::peer_cipher "
        "%ssl::<negotiated_version %ssl::>negotiated_version %ct::intercepted")


@pytest.fixture
def held(start_policy):
    return starter(start_policy)


@pytest.mark.parametrize(("name", "method", "changed"), [
    ("Nothing", "GET", None), ("Change", "GET", "both"), ("Look", "POST", None),
    ("Upper", "GET", "response"), ("Upper", "POST", "both"),
    ("Pieces", "POST", "both")])
def test_what_filters_change_is_logged(start, make_origin, dial, name, method, changed):
    proxy, origin = start(name), make_origin()
    client = dial(proxy)
    if method == "GET":
        assert client.get(origin.url("/old")).body.lower() == b"ok"
    else:
        client.send(build_request("POST", origin.url(), "Content-Length: 5") + b"hello")
        assert client.read_response("POST").body.lower() == b"ok"
    (line,) = proxy.wait_log(1)
    assert line.get("changed") == changed and "breakpoint" not in line


def test_a_request_without_filters_has_none_of_it(start, make_origin, dial):
    proxy = start("Change")
    assert dial(proxy).get(make_origin().url("/free")).status == 200
    (line,) = proxy.wait_log(1)
    assert not {"changed", "breakpoint", "held_ms", "peer_cipher"} & {*line}


def test_what_an_operator_holds_and_changes_is_logged(held, make_origin, dial):
    proxy, desk = held("both")
    origin, client = make_origin(), dial(proxy)
    desk.arm()
    send(client, "GET", origin.url("/a"))
    desk.decide(desk.wait_one("request"), "pass")
    wanted = desk.wait_one("response")
    wait_until(lambda: desk.state()["held"][0]["left_s"] < 29.9, "a moment")
    desk.decide(wanted, "pass")
    assert client.read_response().status == 200
    send(client, "GET", origin.url("/b"))
    desk.decide(desk.wait_one("request"), "edit", path="/c")
    desk.decide(desk.wait_one("response"), "pass")
    assert client.read_response().status == 200
    passed, edited = proxy.wait_log(2)
    assert passed["breakpoint"] is True and "changed" not in passed
    assert 50 < passed["held_ms"] <= passed["total_ms"] and passed["hook_ms"] > 0
    assert edited["breakpoint"] is True and edited["changed"] == "request"


def test_the_tls_behind_the_proxy_is_logged(start_policy, make_origin, dial):
    proxy = start_policy(f'[[rules]]\naction = "allow"\n{HERE}tls = "intercept"\n',
                         inside())
    client = enter(proxy, dial(proxy), make_origin(over_tls(okay)).port)
    assert ask(client).body == b"ok"
    client.close()
    for line in proxy.wait_log(2):
        assert line["peer_tls_version"] == line["client_tls_version"] == "1.3"
        assert line["peer_cipher"].startswith("TLS_AES_")


def test_a_format_names_all_of_it(start_policy, make_origin, dial):
    config = inside() + f'access_log_format = "{FORM}"\n'
    proxy = start_policy(
        f'[filters.f]\ncode = "sieve:Change"\n[[rules]]\naction = "allow"\n{HERE}'
        'tls = "intercept"\nfilters = "f"\n', config, modules={"sieve": FILTERS})
    client = enter(proxy, dial(proxy), make_origin(over_tls(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))).port)
    assert ask(client).status == 203
    client.close()
    lines = wait_until(lambda: len(found := proxy.lines()) == 2 and found,
                       lambda: str(proxy.lines()))
    words = [line.split() for line in lines]
    assert ["both", "-", "1.3", words[0][3], "1.3", "1.3", "intercepted"] in words
    assert all(one[3].startswith("TLS_AES_") for one in words)
