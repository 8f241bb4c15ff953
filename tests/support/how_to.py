"""Runs the commands of a how-to page, in a place that has what the page assumes.

    python -m tests.support.how_to PAGE DIRECTORY

As in walk.py: namespaces of its own, names of origins that are here, curl's answers
2xx. A command is an indented line, or several with `\\` at their ends, that begins with
one of PROGRAMS, with or without `$ `. Directories of an installed program (PATHS) are
those of the place. A proxy runs that captures, opens TLS, replays and has an admin
listener; the flows, recordings and files that pages name are there.
"""

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cutthrough.recording.sessions.directory import Sessions
from cutthrough.storage.stores import open_store
from cutthrough.tools.database import default_flows
from tests.capture.dumps import dump, state
from tests.capture.flows import row
from tests.support.archives import archive, entry
from tests.support.cassettes import cassette
from tests.support.exports import document, export
from tests.support.network import raise_loopback
from tests.support.proxy import ROOT
from tests.support.recordings import made
from tests.support.simulations import exact, pair, simulation
from tests.support.users import hash_of
from tests.support.walk import (
    CURLRC,
    FLOOR,
    PATIENCE,
    Walk,
    mount_hosts,
    start_origins,
)

PROGRAMS = {"cutthrough", "curl", "openssl", "export", "eval", "grep", "make", "python",
            "pip", "apt", "systemctl", "docker", "kubectl", "helm", "git", "sudo",
            "ssh", "socat", "vector", "fluent-bit", "otelcol", "protoc", "modprobe",
            "journalctl", "ulimit", "systemd-analyze", "python3", "install", "echo",
            "tuning/transparent", "(cd", "umask"}
#: Of an installed program, and of another page
PATHS = {"/etc/cutthrough": "etc", "/var/lib/cutthrough": "lib"}
ADMIN, OTHER_ADMIN = "127.0.0.1:9090", "127.0.0.1:9128"
PART = re.compile(r"^```.*?^```$|^ {4}(?:\$ )?((?:[^\n]+\\\n)*[^\n]+)$", re.M | re.S)
#: What ends only when it is told to
ENDLESS = re.compile(r"flows follow|--follow|curl -N|inspect --system|flows/live")
#: Exit statuses beside 0, by the beginning of a command
EXITS = {
    "cutthrough flows diff 4711 4712": {1}, "cutthrough ca trust --check": {1},
    "cutthrough doctor -c": {1}, "cutthrough explain": {1}, "cutthrough route": {1},
    "cutthrough flows replay 4711 --proxy 127.0.0.1:8888 --user ann --password-file "
    "secret --diff": {1}}
STATUS_OF = {"/admin": "403", "DELETE": "200"}
#: Pages whose commands ask a running proxy
SERVED = {"troubleshooting", "socks", "python", "policy", "interception", "capture",
          "traffic", "recording", "migration"}
#: They serve when this command has been run
SERVED_AFTER = {"interception": "cutthrough ca init"}
#: What pages take as done, by the text around a command
SETUP = {
    # A replay finds there whom to trust
    "capture": ("export CUTTHROUGH_INTERCEPT_CA=etc/ca",),
    "policy": ("curl -x http://alice:secret@127.0.0.1:8888 https://www.example.com/",),
    "troubleshooting": (
        "curl -x http://ann:secret@127.0.0.1:8888 http://denied.example/",
        "until grep -q denied.example access.log; do sleep 0.1; done"),
    # The command of the page wants its own example
    "migration": ("sed -n '/^```toml/,/^```$/{/^```/d;p}' "
                  f"{ROOT}/docs/migration.md > policy.toml",)}
#: Commands that another test or check runs, by page: what begins the command, the file
#: and a word of it
ELSEWHERE = {
    "listeners.md": (
        ("curl --unix-socket", "tests/e2e/test_unix_listeners.py", "--unix-socket"),
        ("socat", "docs/tutorials/isolate-a-job.md", "UNIX-CONNECT")),
    "tls.md": (
        ("curl -x https://", "tests/e2e/test_tls_listener.py", "--proxy-cacert"),
        ("modprobe", "scripts/guest.sh", "modprobe"),
        ("echo tls", "scripts/guest.sh", "modprobe"),
        ("make aws-lc", "scripts/bootstrap.sh", "aws-lc")),
    "socks.md": (("ssh ", "tests/e2e/test_socks.py", "ProxyCommand"),),
    "transparent.md": (("tuning/", "tests/support/intercepting.py", "tuning"),),
    "interception.md": (("cutthrough inspect --system",
                         "tests/e2e/test_inspect_system.py", "--system"),),
    "ca.md": (("cutthrough ca init --key", "tests/support/token.py", "pkcs11:"),),
    "capture.md": (("cutthrough flows open --id", "tests/e2e/test_flows_open.py",
                    "--follow"),),
    # Their numbers are those of requests that are held just then
    "traffic.md": tuple(
        (f"cutthrough flows {verb}", "tests/e2e/test_flows_held.py", f'"{verb}"')
        for verb in ("edit", "resume", "abort")),
    "mcp.md": (("pip ", "pyproject.toml", "mcp ="),
               ("socat UNIX-LISTEN", "tests/e2e/test_mcp.py", "UNIX-LISTEN")),
    "recording-in-tests.md": (
        ("cutthrough run", "tests/e2e/test_recording_run.py", "--cassette"),),
    "recording-files.md": (("protoc", "tests/support/protos.py", "protoc"),),
    "deploy.md": (
        ("apt ", "deploy/check_packages.py", "apt"),
        ("curl -x", "deploy/check_packages.py", "password"),
        *((word, "deploy/check_unit.py", word.split()[0]) for word in (
            "python3 -m venv", "install ", "systemctl ")),
        ("echo 'user", "deploy/check_unit.py", "cutthrough.toml"),
        ("systemd-analyze", "tests/test_deploy.py", "systemd-analyze"),
        ("make manuals", "tests/test_packages.py", "manuals"),
        ("make wheel", "deploy/check_wheel.py", "wheel"),
        ("pip install", "deploy/check_wheel.py", "pip"),
        ("docker ", "deploy/check_image.py", "docker"),
        ("kubectl", "tests/test_deploy.py", "kustom"),
        ("helm ", "tests/deploy/test_helm.py", "helm")),
    "logs.md": (("systemctl", "tests/e2e/test_log_targets.py", "SIGUSR1"),
                ("journalctl", "tests/e2e/test_log_targets.py", "journalctl")),
    "log-pipelines.md": (
        ("vector", "tests/deploy/test_vector.py", "vector"),
        ("fluent-bit", "tests/deploy/test_fluent_bit.py", "fluent-bit"),
        ("otelcol", "tests/deploy/test_otel.py", "otelcol")),
    # A Redis is needed, and a program that has registered in it
    "fleet.md": (("export ", "tests/e2e/test_fleet_verbs.py", "fleet"),
                 ("cutthrough ", "tests/e2e/test_fleet_verbs.py", "fleet")),
}
PROXY = """
listen = ["127.0.0.1:8888", "127.0.0.1:3128", "127.0.0.1:8080"]
users_file = "users"
policy = "policy.toml"
admin = "127.0.0.1:9090"
admin_token_file = "admin-token"
intercept_ca = "etc/ca"
origin_ca = "origins.pem"
capture_file = "@flows@"
capture_age = "0"
recording_directory = "@lib@/recordings"
access_log = "access.log"
access_log_format = "json"

[[listeners]]
address = "127.0.0.1:1080"
protocols = ["http", "socks5"]
"""
POLICY = """
default = "deny"

[[rules]]
name = "opened"
action = "allow"
methods = ["CONNECT"]
hosts = [".example.com", "example.org"]
tls = "intercept"

[[rules]]
name = "recorded"
action = "allow"
hosts = ["api.example.com"]
recording = "record"

[[rules]]
name = "no operators"
action = "deny"
paths = ["/admin"]

[[rules]]
name = "the rest"
action = "allow"
hosts = [".example.com", "example.org", "intranet.corp.example"]
capture = "full"
breakpoint = "both"
"""


ACL = """
version: v1
services:
  - name: billing
    project: billing
    action: enforce
    allowed_domains: [api.example.com]
default: {name: default, project: other, action: enforce, allowed_domains: []}
"""


def commands(text: str) -> Iterator[str]:
    """Yields the commands of a page, each on one line."""
    loop: list[str] = []
    for part in PART.finditer(text):
        line = re.sub(r"\\\n *", "", part[1] or "").strip()
        if loop or line.startswith("for "):
            loop.append(line)
            if line == "done":
                yield "\n".join(loop)
                loop = []
        elif line and line.split()[0] in PROGRAMS:
            yield line


def elsewhere(page: str, line: str) -> tuple[str, str] | None:
    """The file that runs such a command, and a word of it; None: it is run here."""
    return next(((file, word) for begin, file, word in ELSEWHERE.get(page, ())
                 if line.startswith(begin)), None)


def fill(place: Path, flows: Path, authority: Path) -> None:
    """What pages name: files, flows 4711 and 4712, recordings of `default`."""
    etc, lib = place / "etc", place / "lib"
    for folder in etc, lib / "recordings", place / "site", flows.parent:
        folder.mkdir(parents=True)
    secret = "".join(f"{name}:{hash_of(word)}\n" for name, word in (
        ("ann", "secret"), ("alice", "secret"), ("me", "PASSWORD"), ("user", "pass"),
        ("username", "password")))
    text = PROXY.replace("@flows@", str(flows)).replace("@lib@", str(lib))
    for folder in place, etc:
        for name, content in (("users", secret), ("policy.toml", POLICY),
                              ("admin-token", "t0ken\n"), ("proxy.toml", text)):
            (folder / name).write_text(content)
            (folder / name).chmod(0o600)
        shutil.copy(authority, folder / "origins.pem")
    (etc / "proxy.toml").rename(etc / "cutthrough.toml")
    (place / "site/cutthrough.toml").write_text(
        'policy = "policy.toml"\nusers_file = "users"\n')
    (place / "site/users").write_text(secret)
    (place / "site/users").chmod(0o600)
    (place / "acl.yaml").write_text(ACL)
    (place / "site/policy.toml").write_text('[[rules]]\naction = "allow"\n')
    (place / "new.toml").write_text(
        f'users.other.password = "{hash_of("secret")}"\n'
        + POLICY.replace("capture", "#"))
    for name in "secret", "ann.password":
        (place / name).write_text("secret\n")
        (place / name).chmod(0o600)
    (place / "copied").write_text("curl 'https://example.com/copied' -H 'X-A: 1'\n")
    (place / "page.har").write_bytes(archive(entry()))
    (place / "flows.mitm").write_bytes(dump(state()))
    (place / "flows.dump").write_bytes(dump(state()))
    (place / "cassette.yaml").write_bytes(cassette())
    (place / "simulation.json").write_bytes(simulation(pair({"path": exact("/s")})))
    (place / "access.json").symlink_to("access.log")
    export(place / "exported", "json", document(1))
    store = open_store(str(flows), 0, 0, 0.0)
    store.write([row(n, host="example.com", url=f"https://example.com/{n}", status=200,
                     request_head=f"GET /{n} HTTP/1.1\r\nHost: example.com\r\n\r\n")
                 for n in range(1, 4713)])
    store.close()
    session = Sessions(lib / "recordings").create("default")
    session.add([made(8000 + n, path="/items") for n in range(4)])
    session.close()


class HowTo(Walk):
    """Commands of a page, one after another; `exports` are for those that follow."""

    exports = ""
    authorities = 0

    def bash(self, text: str, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-uo", "pipefail", "-c", text], cwd=self.directory,
            env=self.environment | more, input="secret\nsecret\n",
            capture_output=True, text=True, timeout=PATIENCE)

    def prepare(self, page: str, authority: Path) -> None:
        """An authority, a proxy if the page has one, and what it takes as done."""
        own = self.directory / "etc/ca/ca.pem"
        if not own.exists():
            self.bash(f"cutthrough ca init --dir {own.parent}", {})
        shutil.copy(own, self.directory / "ca.pem")
        both = self.directory / "trusted.pem"
        both.write_bytes(own.read_bytes() + authority.read_bytes())
        self.environment["CURL_CA_BUNDLE"] = str(both)
        if page in SERVED:
            self.serve("cutthrough serve -c proxy.toml")
        for line in SETUP.get(page, ()):
            done = self.bash(line, {})
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            self.exports += line + "\n" if line.startswith("export ") else ""

    def command(self, line: str) -> None:
        line = re.split(r"  +#", line)[0].strip().replace(OTHER_ADMIN, ADMIN)
        if line.startswith("cutthrough serve"):
            self.serve(line.replace("/etc/cutthrough/", "etc/"))
            return
        if line.startswith("cutthrough ca init"):
            # The page has several, of which one is used
            self.authorities += 1
            line += f" --dir ca-{self.authorities}" if self.authorities > 1 else ""
        for path, name in PATHS.items():
            line = line.replace(path, str(self.directory / name))
        if line.startswith(("export ", "eval ")):
            self.exports += f"{line}\n"
        expected = {0, *(status for begin, others in EXITS.items()
                         if line.startswith(begin) for status in others)}
        if ENDLESS.search(line):
            line, expected = f"timeout -s INT 2 {line}", {0, 124, 130}
        floor = FLOOR if re.match(r"cutthrough (explain|route)", line) else {}
        done = self.bash(f"{self.exports}{line}", floor)
        output = f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.returncode in expected, f"{done.returncode}: {output}"
        statuses = re.findall(r"^\d{3} (\d{3})$", done.stderr, re.M)
        wanted = next((status for text, status in STATUS_OF.items() if text in line),
                      "2")
        assert all(status.startswith(wanted) for status in statuses), output
        if key := re.search(r'bundle_key = \["([^"]+)', done.stdout):
            self.exports += f"export PUBLIC_KEY={key[1]}\n"
        if line == "cutthrough drain":
            assert self.serving.pop().wait(PATIENCE) == 0
        print("ran", shlex.quote(line), flush=True)


def main(page: str, directory: Path) -> None:
    raise_loopback()
    home, place = directory / "home", directory / "place"
    for folder in home, place, directory / "authority":
        folder.mkdir()
    mount_hosts(directory)
    (home / ".curlrc").write_text(CURLRC)
    authority = start_origins(directory / "authority")
    flows = Path(default_flows({"HOME": str(home)}))
    fill(place, flows, authority)
    walk = HowTo(place, {
        "PATH": f"{ROOT / '.venv' / 'bin'}:/usr/sbin:{Path('/usr/bin')}:/bin",
        "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "HOME": str(home),
        "TMPDIR": str(directory), "SSL_CERT_FILE": str(authority), "TOKEN": "t0ken",
        "CUTTHROUGH_ADMIN": ADMIN,
        "CUTTHROUGH_ADMIN_TOKEN_FILE": str(place / "admin-token"),
        "CUTTHROUGH_RECORDING_DIRECTORY": str(place / "lib/recordings")})
    name = Path(page).stem
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(walk.stop)
        if name not in SERVED_AFTER:
            walk.prepare(name, authority)
        for line in commands(Path(page).read_text()):
            if elsewhere(Path(page).name, line) is None:
                walk.command(line)
                if line.startswith(SERVED_AFTER.get(name, "\n")):
                    walk.prepare(name, authority)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
