"""Where the admin listener may stand: said wrong, it is refused at once."""

import contextlib
import re
import socket

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import from_options
from cutthrough.net.unix_listener import is_answered


@pytest.mark.parametrize("text, reason", [
    ("192.0.2.1:9090", "is not loopback: give --admin-token-file"),
    ("0.0.0.0:9090", "is not loopback: give --admin-token-file"),
    ("127.0.0.1:8888", "is also an address of listen"),
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


def test_a_listener_that_accepts_nobody_is_there_all_the_same(tmp_path):
    """A connect to a full backlog waited for ever, and the supervisor with it."""
    path = str(tmp_path / "socket")
    assert not is_answered(path)
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        assert not is_answered(path)
        listener.listen(0)
        assert is_answered(path)
        for _ in range(2):
            waiting = opened.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(path)
        assert is_answered(path)
    assert not is_answered(path)
