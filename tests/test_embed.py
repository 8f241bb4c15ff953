"""Arguments that an embedded proxy takes or refuses: serve() in the caller's loop."""

import asyncio
import base64
import functools
import gc

import pytest

import cutthrough
from cutthrough.generation import operator_code
from cutthrough.policy.source import Limits, Policy, Rule
from tests.support.client import Client, build_request
from tests.support.origin import Origin, answer
from tests.support.users import basic

DENY = """
users.me.password = "$2b$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW"
default = "allow"
[[rules]]
action = "deny"
hosts = ["denied.example"]
"""


async def ask(proxy, authority: str) -> bytes:
    reader, writer = await asyncio.open_connection(*proxy.address)
    writer.write(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n" % authority.encode()
                 + b"Proxy-Authorization: Basic %s\r\n\r\n" % base64.b64encode(b"u:p"))
    reply = await reader.read(4096)
    writer.close()
    await writer.wait_closed()
    return reply


@pytest.mark.parametrize("as_text", [True, False])
async def test_the_policy_is_a_file_as_the_option_is(tmp_path, as_text):
    """The keyword took a Policy only, and did not check its value."""
    path = tmp_path / "policy.toml"
    path.write_text(DENY)
    async with cutthrough.serve(user="u", password="p",
                                policy=str(path) if as_text else path) as proxy:
        assert b" 403 " in await ask(proxy, "denied.example:443")
        assert proxy.config.floor


async def test_the_rules_of_a_policy_made_by_hand_are_asked():
    """Without a file's name they were taken for the built-in policy: all passed."""
    policy = Policy(default="allow", rules=(
        Rule(action="deny", hosts=("denied.example",)),))
    async with cutthrough.serve(user="u", password="p", policy=policy) as proxy:
        assert b"403 destination_denied" in await ask(proxy, "denied.example:443")


async def decide(request: cutthrough.Request) -> cutthrough.Decision:
    return cutthrough.Decision(request.host != "denied.example")


async def test_a_hook_is_the_function_itself():
    async with cutthrough.serve(user="u", password="p", policy_hook=decide) as proxy:
        assert b"403 destination_denied" in await ask(proxy, "denied.example:443")
        assert b" 403 " not in await ask(proxy, "127.0.0.1:1")


class Gate:
    def __init__(self, closed: str) -> None:
        self.closed = closed

    async def decide(self, request: cutthrough.Request) -> cutthrough.Decision:
        return cutthrough.Decision(request.host != self.closed)

    async def __call__(self, request: cutthrough.Request) -> cutthrough.Decision:
        return await self.decide(request)


def closure(closed: str):
    async def inner(request: cutthrough.Request) -> cutthrough.Decision:
        return cutthrough.Decision(request.host != closed)
    return inner


async def of_two(closed: str, request: cutthrough.Request) -> cutthrough.Decision:
    return cutthrough.Decision(request.host != closed)


@pytest.mark.parametrize("make", [
    closure, Gate, lambda closed: Gate(closed).decide,
    lambda closed: functools.partial(of_two, closed)], ids=lambda make: make.__name__)
async def test_a_hook_may_be_a_closure(make):
    """Without a name in a module it was refused; two of one name are two."""
    one, other = (cutthrough.serve(user="u", password="p", policy_hook=make(closed))
                  for closed in ("a.b", "127.0.0.1"))
    async with one, other:
        gc.collect()
        assert b"403 destination_denied" in await ask(one, "a.b:443")
        assert b" 403 " not in await ask(one, "127.0.0.1:1")
        assert b"403 destination_denied" in await ask(other, "127.0.0.1:1")


def test_a_hook_goes_with_its_proxy():
    gc.collect()                            # those of other tests
    before = len(operator_code._embedded)
    proxy = cutthrough.serve(user="u", password="p", policy_hook=closure("a.b"))
    assert len(operator_code._embedded) == before + 1
    del proxy
    gc.collect()
    assert len(operator_code._embedded) == before


def test_a_function_is_called_for_addresses_and_for_users():
    async def verify(name: str, password: str) -> bool:
        return (name, password) == ("ann", "one")

    asked = []

    def find(host: str, port: int, user: str) -> list[str] | None:
        asked.append((host, port, user))
        return ["127.0.0.1"]

    with Origin() as origin, cutthrough.serve(
            auth_hook=verify, dns_hook=find) as proxy, Client(proxy.port) as client:
        url = f"http://here.test:{origin.port}/"
        assert client.get(url, auth=basic("ann:one")).status == 200
        assert client.get(url, auth=basic("ann:two")).status == 407
        assert proxy.url == f"http://127.0.0.1:{proxy.port}"
    assert asked == [("here.test", origin.port, "ann")]


def test_a_hook_that_is_not_async_is_refused():
    for function in (lambda request: None, dict.get, Gate("x").__init__):
        with pytest.raises(cutthrough.ConfigError, match="is not an async function"):
            cutthrough.serve(user="u", password="p", policy_hook=function)
        with pytest.raises(cutthrough.ConfigError, match="is not an async function"):
            cutthrough.serve(auth_hook=function)


@pytest.mark.parametrize(("option", "value"), [
    ("admin", "127.0.0.1:0"), ("fleet_url", "redis://127.0.0.1/0")])
def test_what_only_the_program_has_is_refused(option, value):
    """An admin listener was configured, and there was none."""
    with pytest.raises(cutthrough.ConfigError, match=f"^{option}: an embedded proxy "):
        cutthrough.serve(user="u", password="p", **{option: value})


@pytest.mark.parametrize("rule", [
    'capture = "full"', 'recording = "record"', 'recording = "cache"'])
def test_a_rule_that_needs_a_writer_is_refused(tmp_path, rule):
    """It was taken, and nothing was captured or recorded."""
    def keep(rule: str) -> dict[str, str]:
        path = tmp_path / "policy.toml"
        path.write_text(f'[[rules]]\naction = "allow"\n{rule}\n')
        return {"policy": str(path), "capture_file": str(tmp_path / "flows.db"),
                "recording_directory": str(tmp_path / "recordings")}
    with (pytest.raises(ValueError, match="no process that writes"),
          cutthrough.serve(user="u", password="p", **keep(rule))):
        pass
    with cutthrough.serve(user="u", password="p", **keep('recording = "spy"')) as proxy:
        before = proxy.config
        with pytest.raises(ValueError, match="no process that writes"):
            proxy.change(**keep(rule))
        assert proxy.config is before


async def test_proxies_of_one_process_are_in_one_thread():
    async def enter():
        async with cutthrough.serve():
            pass

    async with cutthrough.serve(), cutthrough.serve():
        with pytest.raises(RuntimeError, match="another thread"):
            await asyncio.to_thread(asyncio.run, enter())
    await asyncio.to_thread(asyncio.run, enter())


async def test_who_comes_after_a_drain_is_refused():
    """They were accepted by the kernel, and got no answer until the proxy had left."""
    async with cutthrough.serve(user="u", password="p") as proxy:
        address = proxy.address
        assert await proxy.drain(0) == 0
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        assert (proxy.address, proxy.url) == (address, f"http://u:p@{address[0]}:{address[1]}")


# Changes while it runs

SLOW = Policy(default="allow", limits={"default": Limits(bytes_per_second=1024)})


async def test_a_policy_changes_while_it_runs():
    denies = Policy(default="allow", rules=(
        Rule(action="deny", hosts=("denied.example",)),))
    async with cutthrough.serve(user="u", password="p", policy=denies) as proxy:
        assert b"403 destination_denied" in await ask(proxy, "denied.example:443")
        proxy.change(policy=Policy(default="allow"), connect_ports="1", user="other")
        assert b" 407 " in await ask(proxy, "denied.example:443")
        proxy.change(user="u")
        assert b"403 port_denied" in await ask(proxy, "denied.example:443")
        assert proxy.config.connect_ports == (1,)


def test_a_rate_changes_for_a_transfer_under_way():
    """At the first rate it would take a quarter of an hour."""
    body = bytes(1 << 20)
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with Origin(answer(reply)) as origin, cutthrough.serve(
            user="u", password="p", policy=SLOW) as proxy, Client(proxy.port) as client:
        client.send(build_request("GET", origin.url(), auth=basic("u:p")))
        client.read_exact(1024)
        proxy.change(policy=Policy(default="allow"))
        client.read_exact(len(body) - 1024)


def test_a_timeout_changes_while_it_runs():
    with Origin() as origin, cutthrough.serve(
            user="u", password="p", keepalive_timeout=600.0) as proxy:
        proxy.change(keepalive_timeout="100ms")
        with Client(proxy.port) as client:
            assert client.get(origin.url(), auth=basic("u:p")).status == 200
            assert client.at_eof()


@pytest.mark.parametrize(("options", "reason"), [
    ({"listen": "127.0.0.1:1"}, "listen: cannot change while the proxy runs"),
    ({"dns_timeout": "1s"}, "dns_timeout: cannot change while the proxy runs"),
    ({"fleet_url": "redis://127.0.0.1/0"}, "fleet_url: an embedded proxy cannot"),
    ({"head_timeout": "soon"}, "head_timeout: "),
    ({"policy": "/nonexistent.toml"}, "No such file")])
def test_a_change_that_cannot_be_changes_nothing(options, reason):
    with cutthrough.serve(user="u", password="p") as proxy:
        before = proxy.worker.generation
        with pytest.raises(ValueError, match=reason):
            proxy.change(**options)
        assert proxy.worker.generation is before
        assert proxy.config is before.config


def test_each_proxy_of_a_process_hides_its_own_keys(tmp_path):
    """R81. The log of the first had secrets as soon as there was a second."""
    log = tmp_path / "access"
    with Origin() as origin, cutthrough.serve(
            user="u", password="p", access_log=str(log), redact_query=["token"],
            redact_json=["$..pin"]) as proxy:
        def ask():
            with Client(proxy.port) as client:
                assert client.get(origin.url('/?token=s3cret&a={"pin":"s3cret"}'),
                                  auth=basic("u:p")).status == 200
        ask()
        with cutthrough.serve(user="u", password="p", redact_query=["a"]):
            ask()
        ask()
    lines = log.read_text()
    assert "s3cret" not in lines and lines.count("[redacted]") >= 6


async def test_another_thread_may_not_change_it():
    async with cutthrough.serve() as proxy:
        with pytest.raises(RuntimeError, match="runs in another thread"):
            await asyncio.to_thread(proxy.change, head_timeout="1s")
        with pytest.raises(RuntimeError, match="runs in another thread"):
            await asyncio.to_thread(asyncio.run, proxy.drain(1))


async def test_a_proxy_that_has_ended_does_not_change():
    """It did nothing, and said nothing."""
    proxy = cutthrough.serve(head_timeout="2s")
    async with proxy:
        await proxy.drain(0)
        with pytest.raises(RuntimeError, match="nothing serves any more"):
            proxy.change(head_timeout="1s")
    with pytest.raises(RuntimeError, match="only inside"):
        proxy.change(head_timeout="1s")
    assert proxy.config.head_timeout == 2.0
