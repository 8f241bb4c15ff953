"""A private sshd with one key, for this user alone; stopped by `close`."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from tests.support.nginx import free_port
from tests.support.wait import wait_until

PROGRAM = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
USER = pwd.getpwuid(os.geteuid()).pw_name

OPTIONS = ("ListenAddress=127.0.0.1", "PidFile=none", "UsePAM=no", "StrictModes=no",
           "PasswordAuthentication=no", "UseDNS=no")


class Sshd:
    def __init__(self, base: Path) -> None:
        assert PROGRAM, "openssh-server is not installed"
        base.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:                   # of Debian's packages, made at boot
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.port, self.key = free_port(), base / "key"
        for name in "key", "host":
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                            str(base / name)], check=True, timeout=30)
        self.log = base / "sshd.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "-D", "-e", "-f", "/dev/null", "-h", str(base / "host"),
                 "-p", str(self.port), "-o", f"AuthorizedKeysFile={self.key}.pub",
                 *(word for option in OPTIONS for word in ("-o", option))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: "Server listening" in self._said(), self._said)

    def _said(self) -> str:
        said = self.log.read_text()
        assert self.process.poll() is None, said
        return said

    def command(self, way: str) -> list[str]:
        """ssh, up to its options; `way`: the ProxyCommand."""
        options = ("BatchMode=yes", "StrictHostKeyChecking=no", "LogLevel=ERROR",
                   "UserKnownHostsFile=/dev/null", f"ProxyCommand={way}")
        return ["ssh", "-F", "none", "-i", str(self.key), "-p", str(self.port),
                *(word for option in options for word in ("-o", option))]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
