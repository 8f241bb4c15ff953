"""`cutthrough init --for recording`: the sample of a route, as it is written."""

import contextlib
import http.client

import pytest

from tests.support.flows import HELLO
from tests.support.origin import answer
from tests.support.proxy import Proxy
from tests.support.verbs import run_verb
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def ask(port, path):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        client.request("GET", path)
        reply = client.getresponse()
        return reply.status, reply.read()


def test_a_sample_of_a_route_is_recorded_and_replayed(
        loop_name, directory, opened, tmp_path, make_origin):
    """Before, no template recorded."""
    made = tmp_path / "made"
    done = run_verb("init", "--for", "recording", str(made))
    assert done.returncode == 0
    assert "127.0.0.1:8889/api/items is recorded" in done.stdout
    origin = make_origin(answer(HELLO))
    text = (made / "cutthrough.toml").read_text()
    for old, new in (("https://httpbin.org", origin.url("")), (":8888", ":0"),
                     (":8889", ":0"), (":9128", ":0"),
                     (f'password_file = "{made}/password"', "")):
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    proxy = opened.enter_context(
        Proxy(directory("proxy"), loop=loop_name, config=text))
    port = proxy.ports[1]
    status, body = ask(port, "/api/items")
    assert (status, len(origin.requests)) == (200, 1)
    assert ask(port, "/other")[0] == 403
    sessions = str(made / "recordings")
    wait_until(lambda: "default\t1" in run_verb(
        "recordings", "list", "--directory", sessions).stdout, "the recording")
    assert run_verb("mode", "replay", "--directory", sessions).returncode == 0
    wait_until(lambda: "mode replay, session default, 1 recording" in proxy.stderr(),
               proxy.stderr)
    assert ask(port, "/api/items") == (200, body)
    assert ask(port, "/api/items?none")[0] == 502
    assert len(origin.requests) == 1
