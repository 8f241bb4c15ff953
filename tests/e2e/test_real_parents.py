"""Parents that are proxies of other makers: their traffic, and names of failures.

One proxy has routes to all of them, by the requested host: KIND-ROLE.test goes through
the parent of that name. A kind that is not installed is skipped; scripts/bootstrap.sh
installs tinyproxy and microsocks for the tests, and `make peers-parents` the rest.
"""

import contextlib
import os
import signal
import socket

import psutil
import pytest

from tests.support import sshd
from tests.support.origin import echo
from tests.support.proxy import Proxy
from tests.support.real_parents import KINDS, PASSWORD, USER, Parent
from tests.support.silent import silent
from tests.support.stream import Closed
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

INSTALLED = [name for name, kind in KINDS.items() if kind.path]
CREDENTIALS = {"known": f"{USER}:{PASSWORD}", "wrong": f"{USER}:guess"}
# Roles of a parent that requires credentials
WITH_USERS = ("known", "wrong", "nobody")
# `plain`: plain requests in absolute form, by name. `ready`: by connections that wait
ROLES = {"open": "", "plain": 'resolve = "parent"\nplain = "absolute"\n',
         "ready": "standby = 2\n", "mortal": "", **dict.fromkeys(WITH_USERS, "")}


def roles_of(name: str) -> list[str]:
    kind = KINDS[name]
    return [role for role in ROLES
            if not (role == "plain" and not kind.is_http)
            and not (role in WITH_USERS and not kind.has_users)]


def host_of(name: str, role: str) -> str:
    """Of a name that the parent resolves, only an address is known to all of them."""
    if role == "plain":
        return f"127.9.0.{1 + INSTALLED.index(name)}"
    return f"{name}-{role}.test"


class Family:
    """The parents by kind, and the configuration that names them."""

    def __init__(self, stack: contextlib.ExitStack, folder) -> None:
        self.mortal: dict[str, Parent] = {}
        folder.mkdir(parents=True, exist_ok=True)
        overrides, tables, rules = [], [], []
        for name in INSTALLED:
            parents = {}
            for role in roles_of(name):
                group = "users" if role in WITH_USERS else (
                    role if role == "mortal" else "open")
                if group not in parents:
                    parents[group] = Parent(KINDS[name], group == "users")
                    stack.callback(parents[group].close)
                label = f"{name}-{role}"
                if role != "plain":
                    overrides.append(f"{label}.test=127.0.0.1")
                tables.append(f'[parents.{label}]\nurl = "{parents[group].url}"\n'
                              + KINDS[name].table + ROLES[role])
                if role in CREDENTIALS:
                    path = folder / label
                    path.write_text(CREDENTIALS[role] + "\n")
                    tables.append(f'credentials_file = "{path}"\n')
                host = host_of(name, role)
                rule = (f'[[rules]]\naction = "allow"\nhosts = ["{host}"]\n'
                        f'route = "{label}"\n')
                # An address stands below the names: docs/parents.md
                rules.insert(len(rules) if role == "plain" else 0, rule)
            self.mortal[name] = parents["mortal"]
        policy = folder / "policy.toml"
        policy.write_text("".join(rules))
        self.config = (
            f'policy = "{policy}"\naddress_floor = "off"\nparent_timeout = "1s"\n'
            f"dns_overrides = {overrides}\n" + "".join(tables))


@pytest.fixture(scope="module")
def family(loop_name, directory):
    with contextlib.ExitStack() as stack:
        made = Family(stack, directory("family"))
        made.proxy = stack.enter_context(
            Proxy(directory("proxy"), loop=loop_name, config=made.config))
        yield made


@pytest.fixture
def proxy(family):
    family.proxy.mark()
    return family.proxy


@pytest.fixture
def mortal(family):
    """A parent that a test may end or stop. It runs again after the test."""
    touched = []

    def get(name: str) -> Parent:
        touched.append(name)
        return family.mortal[name]
    yield get
    for name in touched:
        one = family.mortal[name]
        one.signal(signal.SIGCONT)
        if one.process.poll() is not None:
            one.start()
        # Its circuit opens again after a second
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            target = f"{name}-mortal.test:{sock.getsockname()[1]}"

            def is_tried(target: str = target) -> bool:
                with family.proxy.client() as client:
                    client.connect(target)
                found = family.proxy.log(host=target.partition(":")[0])
                return [one["reason"] for one in found[-1:]] == ["parent_refused"]
            wait_until(is_tried, "the parent's circuit to close")


@pytest.mark.parametrize("name", INSTALLED)
def test_tunnels_pass_on_connections_that_were_ready(proxy, make_origin, dial, name):
    far = make_origin(echo)
    for _ in range(5):
        client = dial(proxy).tunnel(f"{name}-ready.test:{far.port}", early=b"early")
        assert client.read_exact(5) == b"early"
        client.close()
    assert {one["reason"] for one in proxy.wait_log(5)} == {"ok"}


@pytest.mark.parametrize("name", INSTALLED)
def test_tunnels_and_requests_pass(proxy, make_origin, dial, name):
    far, plain, data = make_origin(echo), make_origin(), os.urandom(300_000)
    lines = []
    for role in roles_of(name):
        if role in ("plain", "wrong", "nobody"):
            continue
        host = host_of(name, role)
        client = dial(proxy).tunnel(f"{host}:{far.port}", b"early")
        for at in range(0, len(data), 50_000):
            client.send(data[at:at + 50_000])
        assert client.read_exact(5 + len(data)) == b"early" + data
        client.half_close()
        assert client.read_rest() == b""
        client.close()
        client = dial(proxy)
        for _ in range(2):
            assert client.get(f"http://{host}:{plain.port}/").body == b"ok"
        lines += [f"{name}-{role}"] * 3
    records = proxy.wait_log(len(lines))
    assert [one["parent"] for one in records] == lines
    assert {(one["reason"], one["peer"]) for one in records} == {("ok", "127.0.0.1")}


@pytest.mark.parametrize("name", [
    name for name in INSTALLED if KINDS[name].is_http])
def test_requests_in_absolute_form_pass(proxy, make_origin, dial, name):
    origin, client = make_origin(host="0.0.0.0"), dial(proxy)
    authority = f"{host_of(name, 'plain')}:{origin.port}"
    for _ in range(2):
        assert client.get(f"http://{authority}/a").body == b"ok"
    assert [one.target for one in origin.requests] == ["/a"] * 2
    assert origin.requests[0].all("host") == [authority]
    assert [(one["parent"], one["reason"]) for one in proxy.wait_log(2)] == [
        (f"{name}-plain", "ok")] * 2


@pytest.mark.parametrize("role", ["wrong", "nobody"])
@pytest.mark.parametrize("name", [
    name for name in INSTALLED if KINDS[name].has_users])
def test_credentials_that_the_parent_refuses_are_a_reason(
        proxy, make_origin, dial, name, role):
    far = make_origin()
    host = host_of(name, role)
    assert dial(proxy).connect(f"{host}:{far.port}").status == 502
    assert dial(proxy).get(f"http://{host}:{far.port}/").status == 502
    for record in proxy.wait_log(2):
        assert (record["reason"], record["parent"]) == ("parent_auth", f"{name}-{role}")
    assert far.connections == [], "R44"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_destination_that_the_parent_cannot_reach_is_refused(proxy, dial, name):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        host = host_of(name, "open")
        reply = dial(proxy).connect(f"{host}:{sock.getsockname()[1]}")
    assert reply.status == 502
    (record,) = proxy.wait_log(1)
    assert (record["reason"], record["parent"]) == ("parent_refused", f"{name}-open")
    assert record["parent_status"] == (5 if KINDS[name].scheme == "socks5" else
                                       record["parent_status"]) > 0


@pytest.mark.parametrize("name", INSTALLED)
def test_a_parent_that_dies_ends_its_tunnels_and_is_tried_again(
        proxy, mortal, make_origin, dial, name):
    far, host = make_origin(echo), host_of(name, "mortal")
    parent = mortal(name)
    client = dial(proxy).tunnel(f"{host}:{far.port}", b"early")
    assert client.read_exact(5) == b"early"
    parent.kill()
    with contextlib.suppress(ConnectionResetError):
        assert client.read_rest() == b""
    client.close()
    assert proxy.wait_log(1)[0]["reason"] in ("ok", "origin_reset")
    for _ in range(2):
        reply = dial(proxy).connect(f"{host}:{far.port}")
        assert (reply.status, reply.get("retry-after") is None) == (503, False)
    reasons = [one["reason"] for one in proxy.wait_log(3)]
    assert reasons[1:] == ["parent_unreachable"] * 2
    assert len(far.connections) == 1, "R44"
    parent.start()
    wait_until(lambda: dial(proxy).connect(f"{host}:{far.port}").status == 200,
               "the parent used again")


@pytest.mark.parametrize("name", INSTALLED)
def test_a_parent_that_dies_while_it_connects_is_a_reason(proxy, mortal, dial, name):
    parent = mortal(name)
    with silent("127.0.0.1") as nowhere:
        port = nowhere.getsockname()[1]
        client = dial(proxy)
        client.send(f"CONNECT {host_of(name, 'mortal')}:{port} HTTP/1.1\r\n"
                    f"Host: {host_of(name, 'mortal')}:{port}\r\n"
                    "Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\r\n".encode())
        wait_until(lambda: any(
            one.raddr and one.raddr.port == parent.port
            and one.status == psutil.CONN_ESTABLISHED
            for one in proxy.worker.net_connections("tcp4")), "the parent connected to")
        parent.kill()
        assert client.read_response().status == 502
    assert proxy.wait_log(1)[0]["reason"] == "parent_closed"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_parent_that_stands_still_is_a_reason(proxy, mortal, make_origin, dial, name):
    far, parent = make_origin(echo), mortal(name)
    parent.signal(signal.SIGSTOP)
    reply = dial(proxy).connect(f"{host_of(name, 'mortal')}:{far.port}")
    assert reply.status == 504
    assert proxy.wait_log(1)[0]["reason"] == "parent_timeout"
    assert far.connections == []


def test_what_is_no_proxy_is_a_reason(start_proxy, directory, dial, nginx):
    """A web server and sshd, as a proxy by HTTP and by SOCKS."""
    with contextlib.ExitStack() as stack:
        ports = {"web": nginx.port}
        if sshd.PROGRAM is not None:
            server = sshd.Sshd(directory("sshd"))
            stack.callback(server.close)
            ports["ssh"] = server.port
        reasons = {("web", "http"): "parent_refused", ("web", "socks5"): "bad_parent",
                   ("ssh", "http"): "bad_parent", ("ssh", "socks5"): "bad_parent"}
        reasons = {key: said for key, said in reasons.items() if key[0] in ports}
        policy = directory("policy") / "policy.toml"
        policy.write_text("".join(
            f'[[rules]]\naction = "allow"\nhosts = ["{name}-{scheme}.test"]\n'
            f'route = "{name}-{scheme}"\n' for name, scheme in reasons))
        overrides = [f"{name}-{scheme}.test=127.0.0.1" for name, scheme in reasons]
        proxy = start_proxy(config=(
            f'policy = "{policy}"\naddress_floor = "off"\ndns_overrides = {overrides}\n'
            'parent_timeout = "2s"\n') + "".join(
            f'[parents.{name}-{scheme}]\nurl = "{scheme}://127.0.0.1:{ports[name]}"\n'
            for name, scheme in reasons))
        for (name, scheme), reason in reasons.items():
            proxy.mark()
            with contextlib.suppress(Closed):
                assert dial(proxy).connect(f"{name}-{scheme}.test:80").status == 502
            assert proxy.wait_log(1)[0]["reason"] == reason, (name, scheme)
