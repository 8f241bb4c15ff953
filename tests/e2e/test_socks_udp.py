"""UDP by SOCKS5: each datagram is judged, and only a destination may answer (R51)."""

import contextlib
import socket
import struct

import pytest

from tests.support.certificates import (
    TlsSocket,
    authority,
    client_context,
    localhost,
)
from tests.support.dns import NameServer, Silence, encode_name
from tests.support.handovers import start as start
from tests.support.socks import (
    ASSOCIATE,
    NO_COMMAND,
    NONE,
    NOT_ALLOWED,
    SOCKS5,
    SocksClient,
    datagram,
)
from tests.support.socks import call as call
from tests.support.socks_udp import FREE, UDP, Association
from tests.support.socks_udp import associate as associate
from tests.support.socks_udp import make_echo as make_echo
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_datagrams_go_to_addresses_and_names_and_come_back(start, make_echo, associate):
    echo, six = make_echo(), make_echo("::1")
    proxy = start('dns_overrides = ["echo.test=127.0.0.1"]\n' + UDP)
    one = associate(proxy)
    assert one.host == "127.0.0.1"
    for n in range(3):
        assert one.ask(echo.authority, b"datagram %d" % n) == b"datagram %d" % n
    one.send(six.authority, b"six")
    header, answer = one.receive()
    assert answer == b"six" and header[3] == 4
    assert header[4:20] == socket.inet_pton(socket.AF_INET6, "::1")
    assert struct.unpack(">H", header[20:]) == (six.port,)
    assert one.ask(f"echo.test:{echo.port}", b"by name") == b"by name"
    assert one.ask(echo.authority, b"") == b""
    assert one.ask(echo.authority, bytes(1400)) == bytes(1400)
    one.client.close()
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["kind"], record["reason"]) == (
        "UDP", "tunnel", "ok")
    assert (record["user"], record["host"], record["status"]) == ("user", None, 200)
    assert record["bytes_up"] == record["bytes_down"] == 30 + 3 + 7 + 1400


def test_a_name_server_is_asked_over_udp(start, associate):
    with NameServer({"a.test": "192.0.2.7"}) as names:
        one = associate(start(FREE))
        query = struct.pack("!HHHHHH", 4711, 0x0100, 1, 0, 0, 0)
        query += encode_name("a.test") + struct.pack("!HH", 1, 1)
        answer = one.ask(f"{names.address}:53", query)
        assert answer[:2] == query[:2] and answer[-4:] == bytes((192, 0, 2, 7))
        assert names.asked == ["a.test"]


def test_a_datagram_may_be_as_long_as_udp_has_them(start, make_echo, associate):
    """An answer that has no room for the header of SOCKS is lost, as any may be."""
    proxy, echo = start(FREE), make_echo()
    one = associate(proxy)
    for size in (1, 1472, 9000, 65507 - 10):
        assert one.ask(echo.authority, bytes(size)) == bytes(size)
    echo.sock.sendto(bytes(65507), echo.asked[0][1])
    assert one.ask(echo.authority, b"again") == b"again"


def test_every_datagram_is_judged_by_its_own_destination(
        start_policy, make_echo, associate):
    """The first destination of a batch does not count for the rest (R51, R41)."""
    allowed, denied = make_echo(), make_echo("127.0.0.2")
    proxy = start_policy("""
        default = "deny"
        [[rules]]
        addresses = ["127.0.0.1"]
        action = "allow"
        [[rules]]
        hosts = ["metadata.test"]
        action = "allow"
        """, 'dns_overrides = ["metadata.test=169.254.169.254"]\n'
        f'connect_ports = [{allowed.port}, {denied.port}, 80]\n' + FREE)
    one = associate(proxy)
    for n in range(5):
        one.send(denied.authority, b"no")
        one.send("metadata.test:80", b"no")
        one.send("127.0.0.1:9", b"no")
        assert one.ask(allowed.authority, b"yes %d" % n) == b"yes %d" % n
    assert not denied.asked
    one.client.close()
    records = proxy.wait_log(9)
    reasons = [(one["reason"], one["host"]) for one in records]
    assert set(reasons[:-1]) == {
        ("destination_denied", "127.0.0.2"), ("address_denied", "metadata.test"),
        ("port_denied", "127.0.0.1")}
    assert reasons[-1] == ("ok", None), "and of an association the first eight"


def test_only_who_was_asked_may_answer(start, make_echo, associate):
    proxy, echo, other = start(FREE), make_echo(), make_echo()
    one = associate(proxy)
    assert one.ask(echo.authority, b"a") == b"a"
    ((_, peer_side),) = echo.asked
    other.sock.sendto(b"unasked", peer_side)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
        near.bind(("127.0.0.3", echo.port))
        near.sendto(b"the port alone", peer_side)
    assert one.is_silent()
    assert one.ask(other.authority, b"b") == b"b", "and now it was asked"


def test_only_the_client_may_send(start, make_echo, associate):
    proxy, echo = start(FREE), make_echo()
    one = associate(proxy)
    for host in ("127.0.0.2", "127.0.0.1"):
        if host == "127.0.0.1":             # its port counts from its first datagram on
            assert one.ask(echo.authority, b"a") == b"a"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((host, 0))
            stranger.sendto(datagram(echo.authority, b"no"), (one.host, one.port))
    assert one.ask(echo.authority, b"b") == b"b"
    assert [data for data, _ in echo.asked] == [b"a", b"b"]


def test_fragments_and_what_cannot_be_read_are_dropped(start, make_echo, associate):
    proxy, echo = start(FREE), make_echo()
    one = associate(proxy)
    one.send(echo.authority, b"no", fragment=1)
    one.send(echo.authority, b"no", fragment=0x81)
    for octets in (b"", b"\0\0\0\1\x7f", b"\0\1" + datagram(echo.authority, b"")[2:]):
        one.sock.sendto(octets, (one.host, one.port))
    assert one.ask(echo.authority, b"yes") == b"yes"
    assert [data for data, _ in echo.asked] == [b"yes"]


def test_an_association_ends_with_its_connection(start, make_echo, associate):
    proxy, echo = start(FREE), make_echo()
    for end in (SocksClient.close, SocksClient.half_close, SocksClient.reset):
        proxy.mark()
        one = associate(proxy)
        assert one.ask(echo.authority, b"a") == b"a"
        end(one.client)
        proxy.wait_log(1, reason="client_reset" if end is SocksClient.reset else "ok")
        one.sock.connect((one.host, one.port))
        with pytest.raises(ConnectionRefusedError):
            one.sock.send(b"x")
            one.sock.recv(1)


def test_silence_ends_an_association_and_a_datagram_does_not(
        start, make_echo, associate):
    proxy, echo = start('idle_timeout = "1s"\n' + FREE), make_echo()
    one = associate(proxy)
    for _ in range(6):
        assert one.is_silent(0.25)
        assert one.ask(echo.authority, b"a") == b"a"
    assert one.client.at_eof()
    assert proxy.wait_log(1)[0]["reason"] == "idle_timeout"


def test_an_association_is_one_of_its_user_s_tunnels(tmp_path, start, associate, call):
    path = tmp_path / "policy.toml"
    path.write_text('default = "allow"\n[limits.default]\ntunnels = 1\n')
    proxy = start(f'policy = "{path}"\naddress_floor = "off"\n' + FREE)
    one = associate(proxy)
    client = call(proxy)
    assert client.method(NONE) == NONE
    assert client.request("0.0.0.0:0", ASSOCIATE) == NOT_ALLOWED
    assert proxy.wait_log(1)[0]["reason"] == "user_limit"
    one.client.close()
    proxy.wait_log(2)
    associate(proxy)


def test_a_quota_ends_an_association(tmp_path, start, make_echo, associate):
    path, echo = tmp_path / "policy.toml", make_echo()
    path.write_text('default = "allow"\n[limits.default]\nbytes_per_day = 100000\n')
    proxy = start(f'policy = "{path}"\naddress_floor = "off"\n' + FREE)
    one = associate(proxy)
    with contextlib.suppress(TimeoutError, ConnectionRefusedError):
        one.sock.settimeout(1)
        for _ in range(200):
            one.send(echo.authority, bytes(1000))
            one.receive()
    assert proxy.wait_log(1)[0]["reason"] == "quota_exceeded"
    assert sum(len(data) for data, _ in echo.asked) <= 100_000


def test_a_reload_applies_to_the_next_datagram(start_policy, make_echo, associate):
    echo = make_echo()
    proxy = start_policy('default = "allow"\n[[rules]]\naddresses = ["127.0.0.0/8"]\n'
                         'action = "allow"\n', FREE)
    one = associate(proxy)
    assert one.ask(echo.authority, b"a") == b"a"
    proxy.policy.write_text('default = "deny"\n')
    proxy.hup()
    one.send(echo.authority, b"b")
    assert one.is_silent()
    assert [data for data, _ in echo.asked] == [b"a"]
    assert proxy.wait_log(1)[0]["reason"] == "destination_denied"


def test_a_user_that_a_certificate_names_stays_after_a_reload(
        start_policy, make_echo, opened):
    """Its next datagram was auth_failed: only the users of a file were known."""
    echo, made = make_echo(), localhost()
    proxy = start_policy(
        'default = "deny"\n[[rules]]\naddresses = ["127.0.0.0/8"]\n'
        'users = ["carl"]\naction = "allow"\n',
        FREE + f'certificates = ["{made.certificate}"]\n'
        f'certificate_keys = ["{made.key}"]\nclient_certificate = "required"\n'
        f'client_ca = "{authority().own.certificate}"\n')
    client = opened.enter_context(SocksClient(proxy.port))
    own = authority().sign(subject="/CN=carl")
    client.sock = TlsSocket(client.sock, client_context(own))
    assert client.method(NONE) == NONE
    one = Association(client)
    opened.enter_context(one.sock)
    assert one.ask(echo.authority, b"a") == b"a"
    proxy.policy.write_text(proxy.policy.read_text() + 'name = "carl"\n')
    proxy.hup()
    assert one.ask(echo.authority, b"b") == b"b"


def test_what_goes_through_a_parent_never_goes_directly(
        start_policy, make_echo, associate):
    """No parent takes datagrams, so there is no way (R44)."""
    echo, other = make_echo(), make_echo("127.0.0.2")
    proxy = start_policy("""
        default = "allow"
        [[rules]]
        addresses = ["127.0.0.2"]
        action = "allow"
        route = "direct"
        """, 'address_floor = "off"\nconnect_ports = "any"\nroute = "corp"\n' + FREE
        + '[parents.corp]\nurl = "http://127.0.0.1:9"\n')
    one = associate(proxy)
    one.send(echo.authority, b"no")
    assert one.ask(other.authority, b"yes") == b"yes"
    assert not echo.asked
    assert proxy.wait_reason("unsupported_command")["host"] == "127.0.0.1"


def test_where_it_is_not_configured_it_is_no_command(start, call):
    proxy = start(SOCKS5 + 'auth = "none"\n')
    client = call(proxy)
    assert client.method(NONE) == NONE
    assert client.request("0.0.0.0:0", ASSOCIATE) == NO_COMMAND
    assert proxy.wait_log(1)[0]["reason"] == "unsupported_command"


def test_nothing_is_left_of_many_associations(start, make_echo, associate, opened):
    names, echo = opened.enter_context(NameServer(Silence())), make_echo()
    proxy = start(f'resolvers = ["{names.address}"]\n' + FREE)
    before = proxy.sockets()
    for _ in range(20):
        one = associate(proxy)
        one.send(f"nothing.test:{echo.port}", b"a name that is asked for")
        assert one.ask(echo.authority, b"a") == b"a"
        one.client.close()
        one.sock.close()
    wait_until(lambda: proxy.sockets() <= before + 3, proxy.sockets)
