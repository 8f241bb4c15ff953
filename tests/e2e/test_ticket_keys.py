"""`ticket_keys_file`: several programs resume each other's TLS sessions (R47)."""

import base64
import os
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import client_context
from tests.support.proxy import Proxy
from tests.support.successors import end, successor_of
from tests.support.tls_listener import reach as reach
from tests.support.tls_listener import serve as serve
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def key() -> bytes:
    return base64.b64encode(os.urandom(80)) + b"\n"


def write(path: Path, *keys: bytes) -> None:
    """As a program that distributes them: whole, or not at all."""
    new = path.with_suffix(".new")
    new.write_bytes(b"".join(keys))
    new.chmod(0o600)
    new.rename(path)


class Visitor:
    """A client that keeps its newest session."""

    def __init__(self, reach, url: str, version: ssl.TLSVersion) -> None:
        self._reach, self._url = reach, url
        self._context = client_context()
        self._context.maximum_version = version
        self.session: ssl.SSLSession | None = None

    def resumes(self, proxy: Proxy) -> bool:
        client = self._reach(proxy, self._context, self.session)
        assert client.get(self._url).status == 200
        reused: bool = client.sock.tls.session_reused
        self.session = client.sock.tls.session
        client.close()
        return reused


@pytest.fixture
def visit(reach, make_origin):
    url = make_origin().url()
    return lambda version=ssl.TLSVersion.TLSv1_3: Visitor(reach, url, version)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_by_another_program(serve, visit, tmp_path, version):
    file = tmp_path / "keys"
    write(file, key())
    config = f'ticket_keys_file = "{file}"\n'
    first, second, alone = serve(config=config), serve(config=config), serve()
    visitor = visit(version)
    assert [visitor.resumes(proxy) for proxy in (first, second, first)] == [
        False, True, True]
    assert not visitor.resumes(alone)
    assert not visitor.resumes(second), "the session of a program without the file"


def test_keys_roll_over_hosts_one_after_the_other(serve, visit, tmp_path):
    files = tmp_path / "a", tmp_path / "b"
    old, new, third, fourth = (key() for _ in range(4))
    for file in files:
        write(file, old)
    first, second = (serve(config=f'ticket_keys_file = "{file}"\n') for file in files)
    visitor = visit()
    visitor.resumes(first)
    for file in files:                       # first known, then in use
        write(file, old, new)
    assert "ticket keys" in first.hup() and "ticket keys" in second.hup()
    assert visitor.resumes(second)
    write(files[0], new, old)
    first.hup()
    assert visitor.resumes(first), "by the key before"
    assert visitor.resumes(second), "by the new one, which this program only knows"
    write(files[1], fourth, third)
    second.hup()
    assert not visitor.resumes(second)


def test_a_changed_file_is_read_without_a_signal(serve, visit, tmp_path):
    file = tmp_path / "keys"
    old = key()
    write(file, old)
    proxy = serve(config=f'ticket_keys_file = "{file}"\n')
    visitor = visit()
    visitor.resumes(proxy)
    write(file, key())
    wait_until(lambda: "ticket keys" in proxy.stderr(), proxy.stderr)
    assert not visitor.resumes(proxy)


def test_a_bad_file_leaves_the_keys_in_force(serve, visit, tmp_path):
    file = tmp_path / "keys"
    write(file, key())
    proxy = serve(config=f'ticket_keys_file = "{file}"\n')
    visitor = visit()
    visitor.resumes(proxy)
    write(file, b"no key\n")
    assert "reload refused" in (line := proxy.hup()) and "ticket_keys_file" in line
    assert visitor.resumes(proxy)


def test_an_upgrade_keeps_them_and_without_the_option_keys_are_new(
        serve, visit, tmp_path):
    file = tmp_path / "keys"
    write(file, key())
    config = f'ticket_keys_file = "{file}"\n'
    proxy, other = serve(config=config), serve(config=config)
    visitor = visit()
    visitor.resumes(other)
    successor = successor_of(proxy)
    try:
        assert visitor.resumes(proxy) and visitor.resumes(other)
    finally:
        end(successor)
    text = other.config_file.read_text().replace(config, "")
    other.config_file.write_text(text)
    other.hup()
    assert visitor.resumes(other), "a key before the new one opens tickets still"
    write(file, key())
    assert visitor.resumes(other), "the file is not looked at any more"
