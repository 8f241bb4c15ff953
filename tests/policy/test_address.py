"""What kind of place an address is, against the standard library's reading (R27)."""

import ipaddress

import pytest

from cutthrough.policy.address import is_public_address

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "192.0.1.1", "198.17.255.255",
          "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "11.0.0.0",
          "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8",
          "2002:0808:0808::1", "2001:4860:4860::8888"]

NOT_PUBLIC = ["0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.0",
              "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.255",
              "168.63.129.16", "169.254.169.254", "172.16.0.0", "172.31.255.255",
              "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
              "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1",
              "239.255.255.255", "240.0.0.1", "255.255.255.255",
              "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
              "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
              "100::1", "2001:db8::1", "3fff::1", "5f00::1", "4000::1",
              "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::1",
              "2002:7f00:1::", "2002:a9fe:a9fe::1",
              # Teredo: client 192.168.1.1 (bits turned), then server 10.0.0.1
              "2001:0:808:808:0:0:3f57:fefe", "2001:0:a00:1::f7f7:f7f7",
              "2a00::5efe:10.0.0.1", "2a00::200:5efe:127.0.0.1"]


@pytest.mark.parametrize("text", PUBLIC)
def test_an_ordinary_address_is_public(text):
    assert is_public_address(text)


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_a_special_address_is_not(text):
    assert not is_public_address(text)


def test_nothing_that_the_standard_library_calls_private_is_public():
    for first in range(256):
        for second in (0, 16, 18, 31, 51, 64, 88, 100, 127, 168, 254):
            address = ipaddress.ip_address(f"{first}.{second}.100.7")
            if not address.is_global or address.is_multicast:
                assert not is_public_address(str(address)), address


def test_what_is_no_address_is_an_error():
    with pytest.raises(ValueError):
        is_public_address("localhost")
