"""Ways, ends and limits of the field, as other proxies have them (docs/field.md)."""

import contextlib
import threading
from base64 import b64encode

import pytest

from tests.support.client import build_request
from tests.support.handovers import start as start
from tests.support.inside import ALL, HERE, ask, config, enter, over_tls
from tests.support.origin import Connection, echo, flood, okay
from tests.support.parents import parent
from tests.support.recordings import fill, made
from tests.support.scripted_http2 import say, speak
from tests.support.socks import call as call
from tests.support.socks_udp import FREE, Echo
from tests.support.socks_udp import associate as associate
from tests.support.socks_udp import make_echo as make_echo
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

# --- heads of parents

E = b"HTTP/1.1 200 Connection established\r\n"
ESTABLISHED = {
    "bare LF": b"HTTP/1.1 200 OK\nX: y\n\n",
    "obs-fold": E + b"X: a\r\n b\r\n\r\n",
    "a control in a value": E + b"X: a\x01b\r\n\r\n",
    "white space before a colon": E + b"X-A : b\r\n\r\n",
    "HTTP/2.0 in text": b"HTTP/2.0 200 OK\r\n\r\n",
    "a head of 30 KB": E + b"X: " + b"a" * 30_000 + b"\r\n\r\n",
    "500 fields": E + b"X: a\r\n" * 500 + b"\r\n",
    "chunks and a length":
        E + b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n",
}


def test_the_answer_of_a_parent_is_read_as_an_origin_s(
        start_proxy, make_origin, dial) -> None:
    """Every whole 2xx opens the tunnel, and the bytes behind it are the tunnel's."""
    names = list(ESTABLISHED)

    def script(conn: Connection) -> None:
        _, _, port = conn.read_head().target.rpartition(":")
        conn.send(ESTABLISHED[names[int(port) - 1]] + b"early")
        echo(conn)

    proxy = start_proxy(config=f'route = "corp"\n{parent(make_origin(script))}')
    for port, name in enumerate(names, start=1):
        client = dial(proxy)
        assert client.connect(f"192.0.2.1:{port}").status == 200, name
        client.send(b" late")
        assert client.read_exact(10) == b"early late", name


# --- UDP to a name


@pytest.mark.parametrize(("first", "reason"), [
    ("127.0.0.9", "connection_refused"),        # an ICMP error
    ("127.255.255.255", "connection_failed")])  # EACCES: no process may send there
def test_udp_goes_on_to_the_next_address_of_a_name(
        start, make_echo, associate, first, reason) -> None:
    target = make_echo()
    proxy = start(
        f'dns_overrides = ["dual.test={first}", "dual.test=127.0.0.1"]\n{FREE}')
    client = associate(proxy)
    authority = f"dual.test:{target.port}"
    wait_until(lambda: answers(client, authority, target), "an answer")
    assert client.ask(authority, b"again") == b"again"
    client.client.close()
    rejected, whole = proxy.wait_log(2)
    assert (rejected["host"], rejected["reason"]) == (first, reason)
    assert whole["reason"] == "ok"


def answers(client, authority: str, target: Echo) -> bool:
    """A datagram to the first address may be lost, as any may be."""
    client.send(authority, b"a")
    with contextlib.suppress(TimeoutError):
        client.sock.settimeout(0.3)
        return client.receive()[1] == b"a"
    client.sock.settimeout(10)
    return bool(target.asked)


# --- ends of tunnels


def say_good_bye(conn: Connection) -> None:
    """Answers, waits for the client's end, and has 30 more octets to say."""
    conn.read_exact(4)
    conn.send(b"done")
    assert not conn.fill()
    conn.send(bytes(30))


def test_a_client_that_closes_after_its_answer_has_ended_well(
        proxy, make_origin, dial) -> None:
    """Its kernel answers the close_notify or the GOAWAY with a reset."""
    client = dial().tunnel(make_origin(say_good_bye).authority)
    client.send(b"ask!")
    assert client.read_exact(4) == b"done"
    client.close()
    (record,) = proxy.wait_log(1)
    assert (record["reason"], record["bytes_up"]) == ("ok", 4)


def test_a_client_that_closes_in_the_middle_of_an_answer_has_not(
        proxy, make_origin, dial) -> None:
    client = dial().tunnel(make_origin(flood).authority)
    client.send(b"!")
    client.read_exact(1000)
    client.close()
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"


def test_nor_one_that_has_sent_all_and_does_not_read_to_the_end(
        proxy, make_origin, dial) -> None:
    ended = threading.Event()

    def script(conn: Connection) -> None:
        conn.read_exact(1)
        assert not conn.fill()
        ended.set()
        flood_on(conn)

    client = dial().tunnel(make_origin(script).authority)
    client.send(b"!")
    client.half_close()
    assert ended.wait(10)
    client.read_exact(1000)
    client.close()
    assert proxy.wait_log(1)[0]["reason"] == "client_reset"


def flood_on(conn: Connection) -> None:
    with contextlib.suppress(OSError):
        while True:
            conn.send(bytes(65536))


# --- how an answer came


def test_via_has_the_version_by_which_an_answer_came(
        start_policy, make_origin, dial) -> None:
    pytest.importorskip("cutthrough.http2.transport")
    proxy = start_policy(ALL, config('origin_http2 = "auto"\n'))
    for script, version in ((speak(say), "2"), (over_tls(okay), "1.1")):
        origin = make_origin(script)
        with enter(proxy, dial(proxy), origin.port) as client:
            assert ask(client).get("Via").split()[0] == version


# --- names and passwords


@pytest.mark.parametrize("sent", [
    "a\u0308nn:pa\u0308ss", "\u00e4nn:p\u00e4ss", b"\xe4nn:p\xe4ss"])
def test_a_password_is_compared_as_composed_utf_8(
        keep_proxy, make_origin, dial, sent) -> None:
    """macOS decomposes letters; browsers of old and Java send Latin-1."""
    proxy = keep_proxy("--user", "\u00e4nn", "--password", "p\u00e4ss")
    pair = sent if isinstance(sent, bytes) else sent.encode()
    login = "Basic " + b64encode(pair).decode()
    assert dial(proxy).get(make_origin().url(), auth=login).status == 200
    assert dial(proxy).get(make_origin().url(), auth=login[:-4]).status == 407


# --- replays inside a tunnel


REPLAYED = """
[[rules]]
action = "allow"
methods = ["CONNECT"]
tls = "intercept"
{where}
[[rules]]
action = "allow"
recording = "replay"
{where}
"""


@pytest.mark.parametrize("where", [HERE, 'hosts = ["a.example"]'])
def test_a_tunnel_whose_requests_are_replayed_dials_nobody(
        start_policy, make_origin, dial, directory, where) -> None:
    """The rule of its CONNECT does not mention recordings."""
    origin, folder = make_origin(), directory("sessions")
    fill(folder, made(origin.port, scheme="https", host="a.example"))
    proxy = start_policy(REPLAYED.format(where=where),
                         config(f'recording_directory = "{folder}"\n'))
    client = enter(proxy, dial(proxy), origin.port)
    host = f"a.example:{origin.port}"
    for path, status in (("/a", 200), ("/a", 200), ("/other", 502)):
        assert ask(client, "GET", path, host=host).status == status
    assert not origin.connections


def test_a_tunnel_of_which_one_path_is_not_replayed_reaches_its_origin(
        start_policy, make_origin, dial, directory) -> None:
    origin, folder = make_origin(over_tls(okay)), directory("sessions")
    fill(folder, made(origin.port, scheme="https", host="a.example"))
    live = f'[[rules]]\naction = "allow"\npaths = ["/live/**"]\n{HERE}'
    outer, mark, inner = REPLAYED.format(where=HERE).rpartition("[[rules]]")
    proxy = start_policy(f"{outer}{live}\n{mark}{inner}",
                         config(f'recording_directory = "{folder}"\n'))
    client = enter(proxy, dial(proxy), origin.port)
    host = f"a.example:{origin.port}"
    for path, body in (("/a", b"hello"), ("/live/b", b"ok"), ("/a", b"hello")):
        assert ask(client, "GET", path, host=host).body == body


# --- limits of a reload


LIMITED = '[[rules]]\naction = "allow"\n{here}[limits.default]\n{limits}'


def with_limits(**limits: int) -> str:
    return LIMITED.format(here=HERE, limits="".join(
        f"{name} = {value}\n" for name, value in limits.items()))


@pytest.mark.parametrize("is_tunnel", [True, False])
def test_a_new_quota_ends_a_transfer_under_way(
        start_policy, make_origin, dial, is_tunnel) -> None:
    proxy = start_policy(with_limits(connections=100))
    client = begin(dial(proxy), make_origin, is_tunnel)
    proxy.policy.write_text(with_limits(bytes_per_day=1000))
    proxy.hup()
    with contextlib.suppress(ConnectionResetError):
        while client.sock.recv(1 << 20):
            pass
    assert proxy.wait_log(1)[0]["reason"] == "quota_exceeded"


@pytest.mark.parametrize("is_tunnel", [True, False])
def test_a_limit_that_has_gone_holds_no_transfer_back(
        start_policy, make_origin, dial, is_tunnel) -> None:
    """At its first rate the transfer would take hours."""
    proxy = start_policy(with_limits(bytes_per_second=2000))
    client = begin(dial(proxy), make_origin, is_tunnel)
    proxy.policy.write_text(with_limits(connections=100))
    proxy.hup()
    client.read_exact(20_000_000)


def begin(client, make_origin, is_tunnel: bool):
    """A transfer without end, after its start."""
    def script(conn: Connection) -> None:
        conn.read_until(b"\n")
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        flood_on(conn)

    origin = make_origin(script)
    if is_tunnel:
        client.tunnel(origin.authority).send(b"\n")
    else:
        client.send(build_request("GET", origin.url()))
    client.read_until(b"\r\n\r\n")
    return client
