"""The TLVs of a PROXY header, and its permitted senders (R50)."""

import contextlib

import pytest

from tests.support.client import Client
from tests.support.proxy_headers import ANN, FLAGS
from tests.support.wait import wait_until
from tests.wire.twin_proxy import (
    SIGNATURE,
    build_binary,
    build_line,
    build_ssl,
    build_tlv,
)


@pytest.fixture
def behind(start_proxy):
    """A proxy that load balancers call."""
    return lambda *flags: start_proxy(*FLAGS, *flags)


@pytest.mark.any_loop
def test_tlvs_are_logged_by_name(behind, make_origin, dial):
    proxy, origin = behind(), make_origin()
    client = dial(proxy)
    client.send(build_binary(ANN, checksum=True, tlvs=build_tlv(2, b"a.test")
                             + build_tlv(5, b'"\xff\n') + build_tlv(4, b"noop")
                             + build_tlv(0xEA, b"\x01vpce-1") + build_ssl(
                                 build_tlv(0x22, b"Ann \xc3\xbc"))))
    for _ in range(2):
        assert client.get(origin.url()).status == 200
    for record in proxy.wait_log(2):
        assert record["proxy_tlvs"] == {
            "authority": "a.test", "unique_id": '"\xff\n', "tls_cn": "Ann \xc3\xbc",
            "aws_vpce": "vpce-1"}
    client = dial(proxy)
    client.send(build_binary(ANN, tlvs=build_tlv(4, b"x")))
    client.get(origin.url())
    assert "proxy_tlvs" not in proxy.wait_log(3)[-1]


@pytest.mark.any_loop
def test_long_tlvs_are_cut_in_the_line(behind, make_origin, dial):
    """Each octet of them may take six in JSON."""
    proxy, origin = behind(), make_origin()
    client = dial(proxy)
    client.send(build_binary(ANN, tlvs=build_tlv(2, b"\x01" * 255)
                             + build_tlv(5, b"\x02" * 240) + build_tlv(0x30, b"net")))
    assert client.get(origin.url("/" + "x" * 5000)).status == 200
    (record,) = proxy.wait_log(1)
    assert record["proxy_tlvs"]["authority"].startswith("\x01" * 100)
    assert record["total_ms"] > 0, "and the rest of the line is whole"


@pytest.mark.any_loop
def test_a_format_has_the_tlv_that_it_names(behind, make_origin, dial):
    proxy = behind("--access-log-format", "%{aws_vpce}ct::tlv %\"{tls_cn}ct::tlv %>Hs")
    client = dial(proxy)
    client.send(build_binary(ANN, tlvs=build_tlv(0xEA, b"\x01vpce 1")))
    assert client.get(make_origin().url()).status == 200
    proxy.log = lambda **wanted: []         # its lines are no JSON
    wait_until(lambda: proxy.lines() == ["vpce%201 - 200"], proxy.lines)


@pytest.mark.any_loop
def test_a_rule_matches_the_tlvs_of_a_header(
        start_proxy, make_origin, dial, directory):
    """R41: TLVs are of the connection, for each of its requests and for its tunnels.
    Another connection and a header of version 1 have no TLVs."""
    policy = directory("policy") / "policy.toml"
    policy.write_text("""
default = "deny"
[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
tlvs = { aws_vpce = ["vpce-1"], authority = ["*.a.test"], type_e0 = ["0x00ff"] }
""")
    proxy = start_proxy(*FLAGS, "--policy", str(policy))
    origin = make_origin()
    tlvs = build_tlv(0xE0, b"\0\xff") + build_tlv(2, b"X.a.test")
    for header, status in (
            (build_binary(ANN, tlvs=tlvs + build_tlv(0xEA, b"\1vpce-1")), 200),
            (build_binary(ANN, tlvs=tlvs + build_tlv(0xEA, b"\1vpce-2")), 403),
            (build_binary(ANN, tlvs=tlvs), 403), (build_line(ANN), 403)):
        client = dial(proxy)
        client.send(header)
        for _ in range(2):
            assert client.get(origin.url()).status == status
        assert client.connect(origin.authority).status == status
    proxy.wait_log(9, reason="destination_denied")


@pytest.mark.any_loop
def test_a_header_of_64_kib_is_refused_by_its_length(behind, dial):
    """R50: byte by byte, it costs 16 of them."""
    proxy = behind()
    client = dial(proxy)
    header = SIGNATURE + b"\x21\x11\xff\xff" + bytes(65535)
    with contextlib.suppress(OSError):
        for octet in header[:4096]:
            client.send(bytes([octet]))
    assert client.read_response().status == 400
    (record,) = proxy.wait_log(1)
    assert record["reason"] == "bad_proxy_header"


@pytest.mark.any_loop
def test_a_listener_s_own_load_balancers_are_the_only_ones(start_proxy, make_origin):
    """The option's may call the other listeners only."""
    row = "[[listeners]]\naddress = '127.0.0.1:0'\nproxy_protocol = true\n"
    proxy = start_proxy(config=f"""
listen = []
proxy_protocol_from = ["127.0.0.0/8"]
address_floor = "off"
connect_ports = "any"
{row}
{row}proxy_protocol_from = ["127.0.0.9", "::1"]
""")
    origin = make_origin()
    first, second = proxy.ports
    for port, source, status in ((first, "127.0.0.1", 200), (second, "127.0.0.1", 403),
                                 (second, "127.0.0.9", 200)):
        with Client(port, source=source) as client:
            client.send(build_binary(ANN))
            assert client.get(origin.url()).status == status, (port, source)
