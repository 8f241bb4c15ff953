"""The address of the admin listener: a wrong one is refused at once."""

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


@pytest.mark.parametrize(("listen", "admin"), [
    ("0.0.0.0:9", "127.0.0.1:9"), ("127.0.0.1:9", "0.0.0.0:9"), ("[::]:9", "[::1]:9")])
def test_an_address_among_all_of_a_port_is_taken(listen, admin):
    """`check` took it, and the start met the kernel's refusal."""
    with pytest.raises(ConfigError, match="is also an address of listen, as") as caught:
        from_options(user="a", password="bcdefgh", listen=listen, admin=admin,
                     admin_token="x")
    assert caught.value.key == "admin"


@pytest.mark.parametrize(("listen", "admin"), [
    ("0.0.0.0:9", "127.0.0.1:8"), ("0.0.0.0:9", "[::1]:9"),
    ("127.0.0.1:9", "127.0.0.2:9"), ("0.0.0.0:0", "127.0.0.1:0"),
    ("0.0.0.0:9", "unix:/run/9"), ("0.0.0.0:9", "off")])
def test_another_address_is_free(listen, admin):
    assert from_options(user="a", password="bcdefgh", listen=listen, admin=admin)


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


def row(tmp_path, name, text="s3cret", **keys):
    file = tmp_path / f"{name}-{len(text)}"
    file.write_text(text + "\n")
    file.chmod(0o600)
    return {"token_file": str(file), **keys}


def test_rows_of_tokens_have_rights(tmp_path):
    config = from_options(admin="127.0.0.1:1", admin_tokens={
        "ann": row(tmp_path, "ann", "a" * 32),
        "bob": row(tmp_path, "bob", "b" * 32, rights=["operate", "flows"])})
    assert [(one.name, one.token, one.rights) for one in config.admin_tokens] == [
        ("ann", "a" * 32, ("read",)), ("bob", "b" * 32, ("operate", "flows"))]
    assert from_options(admin="0.0.0.0:1", admin_tokens={
        "ann": row(tmp_path, "ann", "a" * 32)}).admin_exposed


@pytest.mark.parametrize("keys, reason", [
    ({"rights": ["all"]}, "'all' is not one of read, flows"),
    ({"rights": []}, "are none"),
    ({"token": "x"}, "token"),
])
def test_a_row_of_a_token_that_will_not_do_is_refused(tmp_path, keys, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        from_options(admin="127.0.0.1:1", admin_tokens={
            "ann": row(tmp_path, "ann", **keys)})
    assert caught.value.key.startswith("admin_tokens.ann.")


def test_a_row_without_a_token_is_refused():
    with pytest.raises(ConfigError, match="token_file"):
        from_options(admin="127.0.0.1:1", admin_tokens={"ann": {"rights": ["read"]}})


def test_one_token_is_not_of_two(tmp_path):
    rows = {name: row(tmp_path, name, "t" * 32) for name in ("ann", "bob")}
    with pytest.raises(ConfigError, match="is the token of ann, too"):
        from_options(admin="127.0.0.1:1", admin_tokens=rows)
    del rows["bob"]
    with pytest.raises(ConfigError, match="is the token of admin_token, too"):
        from_options(admin="127.0.0.1:1", admin_tokens=rows, admin_token="t" * 32)


def test_a_placeholder_is_no_token_of_an_exposed_listener(tmp_path):
    with pytest.raises(ConfigError, match="well-known placeholder"):
        from_options(admin="0.0.0.0:1", admin_tokens={
            "ann": row(tmp_path, "ann", "change-me")})
