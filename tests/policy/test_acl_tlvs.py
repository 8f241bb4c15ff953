"""The compiled rules, for TLVs of a PROXY header."""

import pytest

from cutthrough.policy.answer import Caller
from cutthrough.wire.proxy_header import pack_tlvs
from tests.policy.acls import acl_of, allow


@pytest.mark.parametrize(("values", "value", "matches"), [
    ({"authority": ("a.test",)}, b"A.Test.", True),
    ({"authority": ("a.test",)}, b"b.a.test", False),
    ({"authority": ("*.a.test",)}, b"c.b.a.test", True),
    ({"authority": ("*.a.test",)}, b"a.test", False),
    ({"authority": ("*.a.test",)}, b"ba.test", False),
    ({"authority": ("a.test",)}, b"a.test\0", False),
    ({"authority": ("10.0.0.1",)}, b"10.0.0.1", True),
    ({"authority": ("*.0.0.1",)}, b"10.0.0.1", False),
    ({"alpn": ("h2", "http/1.1")}, b"http/1.1", True),
    ({"alpn": ("h2", "http/1.1")}, b"H2", False),
    ({"alpn": ("h2", "http/1.1")}, b"h", False),
    ({"alpn": ("h2", "http/1.1")}, b"h22", False),
    ({"tls_cn": ("Ann \u00fc",)}, b"Ann \xc3\xbc", True),
    ({"type_e0": ("0x0102ff",)}, b"\1\2\xff", True),
    ({"type_e0": ("0x0102ff",)}, b"0x0102ff", False)])
def test_a_rule_compares_the_values_of_tlvs(values, value, matches):
    (name,) = values
    acl = acl_of(allow(tlvs=tuple(values.items())))
    asked = acl.ask(host="a.b", port=443, caller=Caller(tlvs=pack_tlvs({name: value})))
    assert (asked.outcome == "ok") is matches
    assert asked.looked == ((0, "" if matches else "tlvs"),)
    assert acl.ask(host="a.b", port=443).outcome != "ok", "a client without any"


def test_all_tlvs_of_a_rule_must_be_there():
    acl = acl_of(allow(tlvs=(("alpn", ("h2",)), ("netns", ("blue", "red")))))
    for tlvs, passes in (({"alpn": b"h2", "netns": b"red"}, True),
                         ({"netns": b"blue", "alpn": b"h2", "unique_id": b"x"}, True),
                         ({"alpn": b"h2"}, False), ({"netns": b"red"}, False)):
        asked = acl.ask(host="a.b", port=443, caller=Caller(tlvs=pack_tlvs(tlvs)))
        assert (asked.outcome == "ok") is passes


def test_each_of_many_values_is_found():
    values = [f"vpce-{i:05}" for i in range(1000)]
    acl = acl_of(allow(tlvs=(("aws_vpce", tuple(values)),)))
    for value in values:
        packed = pack_tlvs({"aws_vpce": value.encode()})
        assert acl.ask(host="a.b", port=443, caller=Caller(tlvs=packed)).outcome == "ok"
    for value in b"vpce-", b"vpce-01000", b"vpce-000000", b"a", b"z":
        packed = pack_tlvs({"aws_vpce": value})
        assert acl.ask(host="a.b", port=443, caller=Caller(tlvs=packed)).outcome != "ok"
