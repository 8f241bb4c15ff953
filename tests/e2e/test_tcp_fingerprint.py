"""The fingerprint of a client's TCP: of the SYN that the kernel keeps."""

import ctypes
import re
import socket
import struct

import pytest

from cutthrough.wire.syn import signature
from tests.support import inside
from tests.support.certificates import localhost
from tests.support.client import Client
from tests.support.handovers import handed
from tests.support.inside import ALL, HERE, config, enter, okay, over_tls
from tests.support.origin import answer, echo
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import table
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

LOCAL = f'[[rules]]\nname = "known"\naction = "allow"\n{HERE}'
OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
ON = "tcp_fingerprint = true\n"
#: Linux on loopback (RFC 9293's options in its order), whatever its window and scale
LINUX_4 = r"4:64\+0:0:65495:[a-z0-9*]+,\d+:mss,sok,ts,nop,ws:df,id\+:0"
LINUX_6 = r"6:64\+0:0:65476:[a-z0-9*]+,\d+:mss,sok,ts,nop,ws:flow:0"


def listener(address: str = "127.0.0.1:0", more: str = ON) -> str:
    return f'[[listeners]]\naddress = "{address}"\n{more}'


#: In the kernel, because the packets of other tests would fill the socket's buffer, and
#: a lost SYN does not come again: TCP in IPv4 or IPv6, with SYN and without ACK
SYNS = (
    (0x30, 0, 0, 0), (0x74, 0, 0, 4), (0x15, 0, 5, 4),           # of the version
    (0x30, 0, 0, 9), (0x15, 0, 9, 6), (0xb1, 0, 0, 0), (0x50, 0, 0, 13),
    (0x05, 0, 0, 3),
    (0x30, 0, 0, 6), (0x15, 0, 4, 6), (0x30, 0, 0, 53),
    (0x54, 0, 0, 0x12), (0x15, 0, 1, 2), (0x06, 0, 0, 2048), (0x06, 0, 0, 0),
)  # fmt: skip


@pytest.fixture
def packets(opened) -> socket.socket:
    """All SYNs of `lo`."""
    try:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    except PermissionError:         # not root, and no capability in the namespace
        pytest.skip("packets can be read by a process with CAP_NET_RAW only")
    opened.enter_context(sock)
    program = ctypes.create_string_buffer(
        b"".join(struct.pack("=HBBI", *step) for step in SYNS))
    sock.setsockopt(socket.SOL_SOCKET, 26, struct.pack(       # SO_ATTACH_FILTER
        "@HP", len(SYNS), ctypes.addressof(program)))
    sock.bind(("lo", 3))            # nothing comes before that
    sock.settimeout(30)
    return sock


def read_syn(packets: socket.socket, port: int) -> bytes:
    """The first SYN to this port."""
    while True:
        packet = packets.recv(2048)
        head = (packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40
        to, flags = struct.unpack_from("!2xH9xB", packet, head)
        if to == port:
            assert flags & 0x12 == 2
            return packet


@pytest.mark.parametrize(("host", "pattern"), [
    ("127.0.0.1", LINUX_4), ("::1", LINUX_6)])
def test_the_log_has_what_the_packet_says(
        start_policy, make_origin, opened, packets, host, pattern) -> None:
    address = f"[{host}]:0" if ":" in host else f"{host}:0"
    proxy = start_policy(LOCAL, listener(address))
    client = Client(proxy.port, host)
    opened.callback(client.close)
    url = make_origin(answer(OKAY)).url()
    assert [client.get(url).status for _ in range(2)] == [200, 200]
    syn = signature(read_syn(packets, proxy.port))
    assert [record["tcp_fingerprint"] for record in proxy.wait_log(2)] == [syn, syn]
    assert re.fullmatch(pattern, syn)


def test_nothing_is_shown_without_the_option(start_policy, dial, make_origin) -> None:
    proxy = start_policy(LOCAL, "fingerprints = true\n" + listener(more=""))
    assert dial(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    assert "tcp_fingerprint" not in proxy.wait_log(1)[0]


def test_a_format_has_it(start_policy, dial, make_origin) -> None:
    proxy = start_policy(
        LOCAL, 'access_log_format = "%ct::tcp_fingerprint %ct::client_ja4"\n'
        + listener())
    assert dial(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    wait_until(lambda: len(proxy.lines()) == 1, proxy.lines)
    assert re.fullmatch(LINUX_4 + " -", proxy.lines()[0])
    proxy.log = lambda **wanted: []     # it is no JSON


def test_a_tls_listener_has_all_of_them(start_policy, reach, make_origin) -> None:
    proxy = start_policy(LOCAL, "fingerprints = true\n"
                         + table(localhost(), tcp_fingerprint="true"))
    assert reach(proxy).get(make_origin(answer(OKAY)).url()).status == 200
    record = proxy.wait_log(1)[0]
    assert re.fullmatch(LINUX_4, record["tcp_fingerprint"])
    assert record["client_ja4"].startswith("t13d")


@pytest.mark.parametrize("more", ["", "fingerprints = true\n"])
def test_a_request_inside_an_interception_has_it(
        start_policy, make_origin, dial, more) -> None:
    proxy = start_policy(ALL, config(more + listener()))
    client = enter(proxy, dial(proxy), make_origin(over_tls(okay)).port)
    assert inside.ask(client).status == 200
    connect, inner = proxy.wait_log(2)
    assert connect["tcp_fingerprint"] == inner["tcp_fingerprint"]
    assert re.fullmatch(LINUX_4, inner["tcp_fingerprint"])
    assert ("client_ja4" in inner) == bool(more)


def test_a_rules_headers_pass_it_on_in_place_of_forged_ones(
        start_policy, dial, make_origin) -> None:
    policy = ('[headers.syn.request]\nset = { X-TCP = "{tcp_fingerprint}" }\n'
              + LOCAL + 'headers = "syn"\n')
    proxy, other = (start_policy(policy, listener(more=more)) for more in (ON, ""))
    origin = make_origin(answer(OKAY))
    for server in (proxy, other):
        assert dial(server).get(origin.url(), "X-TCP: forged").status == 200
    assert re.fullmatch(LINUX_4, origin.requests[0].get("X-TCP"))
    assert origin.requests[1].get("X-TCP") == ""


FILTER = """
    class Pass:
        async def on_request_head(self, flow):
            flow.request.headers["X-TCP"] = flow.fingerprints["tcp_fingerprint"]
"""


def test_a_filter_has_it(start_policy, dial, make_origin) -> None:
    proxy = start_policy(
        LOCAL + 'filters = "pass"\n[filters.pass]\ncode = "passing:Pass"\n',
        listener(), modules={"passing": FILTER})
    origin = make_origin(answer(OKAY))
    assert dial(proxy).get(origin.url()).status == 200
    assert re.fullmatch(LINUX_4, origin.requests[0].get("X-TCP"))


HOOK = """
    import cutthrough

    async def decide(request: cutthrough.Request) -> cutthrough.Decision:
        found = request.fingerprints.get("tcp_fingerprint", "")
        return cutthrough.Decision(found.startswith("4:64+0:0:65495"))
"""


def test_a_hook_decides_by_it(start_policy, dial, make_origin) -> None:
    url = make_origin(answer(OKAY)).url()
    for more, status in ((ON, 200), ("", 403)):
        proxy = start_policy(LOCAL, listener(more=more), hook=HOOK)
        assert dial(proxy).get(url).status == status


def test_a_reload_begins_and_ends_it(start_policy, dial, make_origin) -> None:
    """The sockets stay, and another worker takes their connections."""
    proxy, url = start_policy(LOCAL, listener()), make_origin(answer(OKAY)).url()
    with_it, found = proxy.config_file.read_text(), []
    for text in (with_it.replace(ON, ""), with_it, with_it):
        assert dial(proxy).get(url).status == 200
        found.append("tcp_fingerprint" in proxy.wait_log(len(found) + 1)[-1])
        proxy.config_file.write_text(text)
        assert proxy.hup().startswith("generation")
    assert found == [True, False, True]


@pytest.mark.parametrize("more", [ON, ""])
def test_a_tunnel_keeps_it_in_another_worker(
        start_policy, dial, make_origin, more) -> None:
    proxy, origin = start_policy(LOCAL, listener(more=more)), make_origin(echo)
    client = dial(proxy).tunnel(origin.authority)
    before = proxy.config_file.read_text()
    proxy.config_file.write_text("flight_recorder = 4096\n" + before)
    assert proxy.hup().startswith("generation")
    wait_until(lambda: handed(proxy) == [(1, 0)], proxy.stderr)
    client.send(b"a word")
    assert client.read_exact(6) == b"a word"
    client.close()
    record = proxy.wait_log(1, method="CONNECT")[0]
    assert ("tcp_fingerprint" in record) == bool(more)
    assert re.fullmatch(LINUX_4, record.get("tcp_fingerprint", "")) or not more
