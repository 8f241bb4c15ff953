"""A reload takes the recordings out of the rules while requests are under way."""

import pytest

from tests.support.client import build_request
from tests.support.recordings import fill, made, recorded
from tests.support.recordings import folder as folder
from tests.support.wait import wait_until

REPLAYS = """
    [[rules]]
    action = "allow"
    hosts = ["a.example"]
    recording = "replay"
"""
NOTHING = """
    [[rules]]
    action = "allow"
    hosts = ["b.example"]
"""
HOOK = """
    import asyncio, os
    from cutthrough import Decision

    async def decide(request):
        print("called", flush=True)
        while not os.path.exists({path!r}):
            await asyncio.sleep(0.01)       # of the proxy's own time
        return Decision(True)
"""


@pytest.fixture
def start(start_policy, folder):
    def run(policy=REPLAYS, **more):
        return start_policy(policy, f'recording_directory = "{folder}"', **more)
    return run


def test_a_request_that_replays_never_reaches_the_network(
        start, folder, dial, tmp_path):
    """A reload dropped the player at once. A request that waited for the hook kept its
    rule, `replay`, and went on to its origin (R60)."""
    fill(folder, made(80, host="a.example"))
    go = tmp_path / "go"
    proxy = start(hook=HOOK.format(path=str(go)))
    client = dial(proxy)
    client.send(build_request("GET", "http://a.example/a"))
    output = proxy.log_path.parent / "stdout"
    wait_until(lambda: "called" in output.read_text(), "the hook is called")
    (proxy.log_path.parent / "policy.toml").write_text(NOTHING)
    assert "generation 2" in proxy.hup()
    go.touch()
    reply = client.read_response()
    assert (reply.status, reply.body) == (200, b"hello")
    assert proxy.wait_log(1)[0]["reason"] == "replayed"


def test_a_miss_after_the_reload_is_a_miss(start, folder, dial):
    """Its number was asked of the player, which was gone."""
    fill(folder, made(80, host="a.example"))
    proxy = start()
    client = dial(proxy)
    client.send(build_request("POST", "http://a.example/b", "Content-Length: 4",
                              "Expect: 100-continue"))
    assert client.read_response(interim=True).status == 100, "its body is collected"
    (proxy.log_path.parent / "policy.toml").write_text(NOTHING)
    assert "generation 2" in proxy.hup()
    client.send(b"abcd")
    assert client.read_response().status == 502
    assert proxy.wait_log(1)[0]["reason"] == "recording_missed"


def test_a_request_that_is_recorded_is_recorded_after_the_reload(
        start, folder, make_origin, dial, tmp_path):
    """It passed without a record, and without a word."""
    origin, go = make_origin(), tmp_path / "go"
    rule = """
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
    """
    proxy = start(f'{rule}        recording = "record"\n',
                  hook=HOOK.format(path=str(go)))
    client = dial(proxy)
    client.send(build_request("GET", origin.url("/a")))
    output = proxy.log_path.parent / "stdout"
    wait_until(lambda: "called" in output.read_text(), "the hook is called")
    (proxy.log_path.parent / "policy.toml").write_text(rule)
    assert "generation 2" in proxy.hup()
    go.touch()
    assert client.read_response().body == b"ok"
    proxy.stop()                            # the rest in the rings is written
    assert recorded(folder) == 1
