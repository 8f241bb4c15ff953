"""Where the admin listener may stand: said wrong, it is refused at once."""

import re

import pytest

from cutthrough.config import ConfigError
from cutthrough.settings import from_options


@pytest.mark.parametrize("text, reason", [
    ("192.0.2.1:9090", "is not loopback: give --admin-token-file"),
    ("0.0.0.0:9090", "is not loopback: give --admin-token-file"),
    ("127.0.0.1:8888", "is a proxy's address too"),
    ("example.com:80", "is not an address"),
    ("unix:relative", "is not unix:/path"),
    ("unix:/" + "x" * 90, "is not unix:/path"),
    ("on", "is not host:port"),
])
def test_an_admin_address_that_will_not_do_is_refused(text, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        from_options(admin=text)
    assert caught.value.key == "admin"


def test_an_admin_address_beyond_loopback_takes_a_token():
    assert from_options(admin="0.0.0.0:9090", admin_token="x").admin == "0.0.0.0:9090"
    assert from_options(admin="unix:/run/admin").admin == "unix:/run/admin"
    assert from_options(admin="LocalHost:1").admin == "127.0.0.1:1"
