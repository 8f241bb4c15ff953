"""Programs that know no proxy, as redsocks brings them: the kernel redirects their
connections to redsocks, and redsocks opens a tunnel to their destination."""

import contextlib
import os
import shutil
import subprocess

import pytest

from tests.support.client import PASSWORD, USER
from tests.support.client_ways import KNOWN, OPEN, configuration
from tests.support.intercepting import SERVERS, routed
from tests.support.origin import Origin, echo, okay
from tests.support.proxy import Proxy
from tests.support.stream import Stream
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

PORT = 12345
# Its own names of the protocols; the method in the log
KINDS = {"socks5": (KNOWN, "SOCKS5"), "http-connect": (KNOWN, "CONNECT"),
         "socks4": (OPEN, "SOCKS4")}
TEXT = """
base {{ log = stderr; log_info = on; daemon = off; redirector = iptables; }}
redsocks {{ local_ip = 0.0.0.0; local_port = {local}; ip = 127.0.0.1; port = {port};
  type = {kind}; {user} }}
"""


@contextlib.contextmanager
def redsocks(folder, kind: str, port: int, user: str):
    program = shutil.which("redsocks") or "/usr/sbin/redsocks"
    (folder / "redsocks.conf").write_text(
        TEXT.format(local=PORT, port=port, kind=kind, user=user))
    log = folder / "redsocks.log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [program, "-c", str(folder / "redsocks.conf")], stdin=subprocess.DEVNULL,
            stdout=file, stderr=file)

    def has_started() -> bool:
        assert process.poll() is None, log.read_text()
        return "redsocks started" in log.read_text()

    try:
        wait_until(has_started, log.read_text)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("kind", KINDS)
def test_redsocks(directory, tmp_path, opened, loop_name, kind):
    listener, method = KINDS[kind]
    user = f'login = "{USER}"; password = "{PASSWORD}";' if listener == KNOWN else ""
    router = opened.enter_context(routed())
    proxy = opened.enter_context(
        Proxy(directory("redirected"), loop=loop_name, config=configuration()))
    opened.enter_context(redsocks(tmp_path, kind, proxy.ports[listener], user))
    router.intercept("redirect", str(PORT), "--in", "near", "--ports", "80,443")
    far = opened.enter_context(Origin(echo, SERVERS[4], port=443))
    opened.enter_context(Origin(okay, SERVERS[4], port=80))
    data = os.urandom(300_000)
    with Stream(router.dial(SERVERS[4], 443)) as client:
        client.send(data)
        assert client.read_exact(len(data)) == data
    with Stream(router.dial(SERVERS[4], 80)) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n")
        assert client.read_response().status == 200
    assert len(far.connections) == 1
    name = USER if user else None
    owed = {(method, SERVERS[4], port, name, 200) for port in (80, 443)}
    if method == "CONNECT":             # it sends credentials after the first answer
        owed.add((method, SERVERS[4], 443, None, 407))
    assert {(line["method"], line["host"], line["port"], line["user"], line["status"])
            for line in proxy.wait_log(len(owed))} == owed
