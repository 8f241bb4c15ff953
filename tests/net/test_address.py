"""Addresses and their texts."""

import ipaddress

from cutthrough.net.address import Addresses


def test_texts_are_those_of_the_standard_library():
    for octet in range(256):
        texts = [f"{octet}.0.9.10", f"99.{octet}.100.1", f"255.{octet}.{octet}.255",
                 str(ipaddress.ip_address(octet << 96 | octet))]
        assert Addresses(texts).texts() == texts
