"""`origin_hello = "client"`: an origin gets the ClientHello's lists of the client.

Recorded hellos of real clients are sent into the tunnel, and the origin keeps the
bytes from the proxy. It ends the handshake there.
"""

import contextlib
import queue
import ssl

import pytest

from cutthrough.net.tls.offer import split
from cutthrough.wire.offers import read_offer
from tests.support.certificates import TlsSocket, authority, on_aws_lc
from tests.support.inside import (
    ALL,
    OK,
    ask,
    config,
    enter,
    okay,
    origins,
    over_tls,
)
from tests.wire.recorded_hellos import VALUES, data_of
from tests.wire.twin_hello import read_hello

pytestmark = pytest.mark.any_loop

CONFIG = 'dns_overrides = ["a.example=127.0.0.1", "example.test=127.0.0.1"]\n'
RENEGOTIATION = 0xff                    # a suite that is none: RFC 5746
#: Recorded without a name, or of a client that has TLS 1.3 alone
CLIENTS = [name for name in VALUES if VALUES[name]["name"]]


@pytest.fixture
def start(keep_policy):
    def make(hello: str = "client", more: str = ""):
        text = config(f'origin_hello = "{hello}"\n{more}')
        return keep_policy(ALL, text[text.index("connect_ports"):] + CONFIG)
    return make


@pytest.fixture
def hellos():
    return queue.Queue()


@pytest.fixture
def keeping(make_origin, hellos):
    """An origin that keeps the hello of each connection."""
    def script(conn):
        data = b""
        while (found := read_hello(data)) is None:
            data += conn.sock.recv(65536)
        hellos.put((data, found))
    return make_origin(script)


def offered(proxy, dial, origin, hellos, data: bytes):
    client = dial(proxy).tunnel(f"example.test:{origin.port}")
    client.send(data)
    return hellos.get(timeout=30)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_lists_are_the_clients(start, keeping, hellos, dial, name):
    data = data_of(name)
    got, hello = offered(start(), dial, keeping, hellos, data)
    theirs, ours = split(read_offer(data)), split(read_offer(got))
    for theirs_of, ours_of, least in zip(theirs[2:], ours[2:], (1, 1, 4), strict=True):
        known = [one for one in ours_of if one != RENEGOTIATION]
        # libssl has the suites of TLS 1.3 first, always
        assert sorted((one for one in theirs_of if one in known),
                      key=lambda one: one >> 8 != 0x13) == known
        assert len(known) >= least
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    assert hello.name == "example.test"


@pytest.mark.parametrize("name", ["curl", "curl-11"])
def test_the_ciphers_have_the_clients_fingerprint(start, keeping, hellos, dial, name):
    """Of JA4 the second part, if all suites are libssl's, and RENEGOTIATION is among
    them, which browsers have as an extension."""
    _, hello = offered(start(), dial, keeping, hellos, data_of(name))
    assert hello.ja4.split("_")[1] == VALUES[name]["ja4"].split("_")[1]


def test_by_default_it_is_ours_for_everyone(start, keeping, hellos, dial):
    proxy = start("own")
    found = {offered(proxy, dial, keeping, hellos, data_of(name))[1].ja4
             for name in ("firefox", "chromium", "go")}
    assert len(found) == 1


def test_what_is_weak_is_offered_by_nobody(start, keeping, hellos, dial):
    """No suite without authentication or encryption, for any client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.set_ciphers("ALL:aNULL:eNULL:@SECLEVEL=0")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(incoming, outgoing, server_hostname="example.test")
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    data = outgoing.read()
    weak = {0x0001, 0x0002, 0x003b, 0x0034, 0x006c, 0xc018, 0xc010, 0xc006}
    assert weak & {*split(read_offer(data))[2]}
    got, _ = offered(start(), dial, keeping, hellos, data)
    assert not weak & {*split(read_offer(got))[2]}


def test_no_long_group_of_a_finite_field_is_offered(start, keeping, hellos, dial):
    """R64: an origin that chose ffdhe8192 kept the worker for 110 ms."""
    data = data_of("curl")
    assert {0x0100, 0x0104} <= {*split(read_offer(data))[3]}
    got, _ = offered(start(), dial, keeping, hellos, data)
    assert {*split(read_offer(got))[3]} & {*range(0x0100, 0x0105)} == {
        0x0100, 0x0101, 0x0102}


@pytest.mark.skipif(on_aws_lc(), reason="AWS-LC has no DHE of finite fields")
@pytest.mark.parametrize("bits", [2048, 4096, 6144])
def test_an_origin_chooses_no_long_modulus(start, make_origin, dial, tmp_path, bits):
    """R64: one of 10 000 bits kept the worker, and all its clients, for 0.9 s."""
    number = ((1 << bits) - 1).to_bytes(bits // 8 + 1)      # libssl asks for no prime
    # A power of 2 would be 1, which is no secret, for one pair of keys in 320
    numbers = b"\2\x82%b%b\2\1\7" % (len(number).to_bytes(2), number)
    (tmp_path / "dh.pem").write_text(ssl.DER_cert_to_PEM_cert(
        b"0\x82%b%b" % (len(numbers).to_bytes(2), numbers)).replace(
            "CERTIFICATE", "DH PARAMETERS"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(*origins().sign("DNS:a.example", kind="rsa"))
    context.load_dh_params(tmp_path / "dh.pem")
    context.set_ciphers("DHE+AESGCM")

    def script(conn):
        conn.sock = TlsSocket(conn.sock, context, server_side=True)
        with contextlib.suppress(ssl.SSLError):
            conn.sock.shake()
            okay(conn)

    proxy, origin = start(), make_origin(script)
    if bits <= 4096:
        assert ask(enter(proxy, dial(proxy), origin.port)).body == OK[-2:]
        return
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        enter(proxy, dial(proxy), origin.port)
    assert proxy.wait_reason("origin_tls")["hook"] == "modulus too large"


def test_clients_that_differ_share_no_connection(start, make_origin, dial):
    """A pooled connection has the hello of the client that made it."""
    proxy, origin = start(), make_origin(over_tls(okay))
    for suites in ("ECDHE+AESGCM", "ECDHE+CHACHA20", "ECDHE+AESGCM"):
        context = ssl.create_default_context(cafile=authority().own.certificate)
        context.set_ciphers(suites)
        client = enter(proxy, dial(proxy), origin.port, context=context)
        assert ask(client).body == OK[-2:]
        client.close()
    assert len(origin.requests) == 3
