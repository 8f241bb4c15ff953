"""A real resolver that validates: unbound, with a zone that ldns has signed."""

import secrets
import shutil
import socket
import subprocess

import pytest

from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

ZONE = """$ORIGIN {name}
$TTL 60
@ IN SOA ns admin 1 3600 600 86400 60
@ IN NS ns
ns IN A 127.0.0.1
www IN A 127.0.0.1
alias IN CNAME www
"""
CONFIG = """
server:
  interface: {address}
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: ""
  use-syslog: no
  logfile: ""
  local-zone: "test." nodefault
  trust-anchor-file: "{anchor}.ds"
  trust-anchor-file: "{bogus}.ds"
remote-control:
  control-enable: no
"""
AUTHORITY = """
auth-zone:
  name: {name}
  zonefile: {file}
  for-downstream: no
  for-upstream: yes
"""


def sign(folder, name: str) -> str:
    """Returns the name of the key's files."""
    (folder / name).write_text(ZONE.format(name=name))

    def run(*words: str) -> str:
        return subprocess.run(words, cwd=folder, check=True, capture_output=True,
                              text=True).stdout.strip()
    key = run("ldns-keygen", "-a", "ECDSAP256SHA256", "-k", name)
    run("ldns-signzone", name, key)
    return key


@pytest.fixture
def resolver(directory, opened):
    """The address of an unbound that has a signed zone, a plain one, and one whose
    address was changed when it was signed."""
    for program in ("unbound", "ldns-signzone"):
        if not shutil.which(program):   # Debian starts it, so bootstrap.sh does not ask
            pytest.skip(f"{program} is not installed")
    folder = directory("unbound")
    address = "127.{}.{}.53".format(*(secrets.randbelow(250) + 2 for _ in range(2)))
    anchor, bogus = sign(folder, "signed.test"), sign(folder, "bogus.test")
    changed = folder / "bogus.test.signed"
    text = changed.read_text()
    assert "\tA\t127.0.0.1" in text
    changed.write_text(text.replace("\tA\t127.0.0.1", "\tA\t127.0.0.9"))
    (folder / "plain.test").write_text(ZONE.format(name="plain.test"))
    config = CONFIG.format(address=address, folder=folder, anchor=folder / anchor,
                           bogus=folder / bogus)
    for name, file in (("signed.test", "signed.test.signed"), ("plain.test",) * 2,
                       ("bogus.test", "bogus.test.signed")):
        config += AUTHORITY.format(name=name, file=folder / file)
    (folder / "unbound.conf").write_text(config)
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            ["unbound", "-d", "-c", str(folder / "unbound.conf")], stderr=log)
    opened.callback(server.wait)
    opened.callback(server.terminate)

    def listens() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        with socket.socket() as sock:
            return sock.connect_ex((address, 53)) == 0
    wait_until(listens, lambda: (folder / "log").read_text())
    return address


def test_a_resolver_that_validates(resolver, start_policy, make_origin, dial) -> None:
    proxy = start_policy(
        '[[rules]]\naction = "allow"\naddresses = ["127.0.0.0/8"]\n',
        f'resolvers = ["{resolver}"]\ndnssec = "required"\nconnect_ports = "any"\n')
    port = make_origin().port
    for name, status, reason in (
            ("www.signed.test", 200, "ok"), ("alias.signed.test", 200, "ok"),
            ("nowhere.signed.test", 502, "dns_not_found"),
            ("www.plain.test", 502, "dns_unvalidated"),
            ("www.bogus.test", 502, "dns_error")):
        assert dial(proxy).get(f"http://{name}:{port}/").status == status, name
        assert proxy.wait_reason(reason)["host"]
