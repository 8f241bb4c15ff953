"""Which stores of this host trust the authority, the command that adds it, and the one
that takes it away again.

Nothing is changed here. The stores: the system's bundle, the NSS databases of the user
(Chromium, Firefox), Java's cacerts, and the files that variables name.
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from cutthrough.ca.roots import BUNDLES, VARIABLES, parse_certificates, read_roots
from cutthrough.config.files import FileError, home_of

Verdict = Literal["yes", "no", "?", "-"]

# Of the user's directory; each has a cert9.db
NSS = (
    ".pki/nssdb",
    ".mozilla/firefox/*",
    ".config/mozilla/firefox/*",
    "snap/chromium/current/.pki/nssdb",
    "snap/firefox/common/.mozilla/firefox/*",
    ".var/app/org.mozilla.firefox/.mozilla/firefox/*",
    ".var/app/org.chromium.Chromium/.pki/nssdb",
)
JAVA = (
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/usr/lib/jvm/*/lib/security/cacerts",
    "/usr/lib/jvm/*/jre/lib/security/cacerts",
)
# A distribution's directory of further roots: its path, the end of a file's name
# there, and the command that makes the bundle
ANCHORS = (
    ("/etc/pki/ca-trust/source/anchors", ".pem", "update-ca-trust"),
    ("/etc/pki/trust/anchors", ".pem", "update-ca-certificates"),
    ("/etc/ca-certificates/trust-source/anchors", ".crt", "update-ca-trust"),
    ("/usr/local/share/ca-certificates", ".crt", "update-ca-certificates"),
)
# A line of `certutil -L`: nickname, and the flags of TLS, mail and code
NICKNAME = re.compile(r"^(.*\S) +([a-zA-Z]*),[a-zA-Z]*,[a-zA-Z]* *$", re.M)
JKS = bytes.fromhex("feedfeed")
# The password of cacerts in the JDK and the distributions
JAVA_PASSWORD = "changeit"


class Store(NamedTuple):
    """The result for one store; "?": it cannot be read, "-": it does not exist."""

    kind: str
    name: str
    verdict: Verdict
    said: str = ""
    remedy: str = ""
    undo: str = ""                           # of the remedy, if that is a store's own


class Seeker(NamedTuple):
    """Looks for one certificate. `path` is its file in PEM, for the remedies; `bundle`
    the command for variables; and `root` stands for /."""

    der: bytes
    label: str
    path: str
    bundle: str
    environ: Mapping[str, str]
    root: Path = Path("/")

    def find(self) -> Iterator[Store]:
        yield from self._system()
        yield from self._nss()
        yield from self._java()
        yield from self._variables()

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _once(self, patterns: Iterable[str]) -> Iterator[str]:
        """The files that exist, each once, however many links lead to it."""
        targets = set()
        for pattern in patterns:
            for path in sorted(glob.glob(pattern)):
                if (real := os.path.realpath(path)) not in targets:
                    targets.add(real)
                    yield path

    def _system(self) -> Iterator[Store]:
        bundles = [*self._once(glob.escape(str(self._at(path))) for path in BUNDLES)]
        if not bundles:
            yield Store("system", "bundle", "-", "none of the usual paths exists",
                        "install ca-certificates")
        for path in bundles:
            remedy, undo = self._install()
            yield self._in_file("system", path, remedy, undo=undo)

    def _install(self) -> tuple[str, str]:
        here = [anchor for anchor in ANCHORS if self._at(anchor[0]).is_dir()]
        folder, end, command = (here or ANCHORS[-1:])[0]
        target = f"{folder}/{self.label}{end}"
        update = f"{_sudo()}{command}"
        return (f"{_sudo()}cp {shlex.quote(self.path)} {shlex.quote(target)} && "
                f"{update}", f"{_sudo()}rm {shlex.quote(target)} && {update}")

    def _in_file(self, kind: str, path: str, remedy: str, name: str = "",
                 undo: str = "") -> Store:
        name = name or path
        try:
            is_there = self.der in read_roots(path)
        except (OSError, FileError) as error:
            return Store(kind, name, "?", getattr(error, "strerror", None)
                         or str(error), remedy, undo)
        return Store(kind, name, "yes" if is_there else "no", "",
                     "" if is_there else remedy, undo)

    def _nss(self) -> Iterator[Store]:
        home = glob.escape(home_of(self.environ))
        for file in self._once(f"{home}/{pattern}/cert9.db" for pattern in NSS):
            folder = os.path.dirname(file)
            add = (f"certutil -A -d {shlex.quote(f'sql:{folder}')} -t C,, "
                   f"-n {shlex.quote(self.label)} -i {shlex.quote(self.path)}")
            undo = (f"certutil -D -d {shlex.quote(f'sql:{folder}')} "
                    f"-n {shlex.quote(self.label)}")
            if shutil.which("certutil", path=self.environ.get("PATH")) is None:
                yield Store("NSS", folder, "?", "certutil is missing (Debian: "
                            "libnss3-tools; Fedora: nss-tools)", add)
                continue
            try:
                is_there = self._is_in_nss(folder)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                yield Store("NSS", folder, "?", said.strip().partition("\n")[0], add)
                continue
            yield Store("NSS", folder, "yes" if is_there else "no", "",
                        "" if is_there else add, undo)

    def _is_in_nss(self, folder: str) -> bool:
        listed = NICKNAME.findall(self._certutil(folder))
        return any(self.der in parse_certificates(
            self._certutil(folder, "-n", name, "-a").encode())
            for name, flags in listed if "C" in flags)

    def _certutil(self, folder: str, *arguments: str) -> str:
        return subprocess.run(
            ["certutil", "-L", "-d", f"sql:{folder}", *arguments], check=True,
            timeout=20, capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, env=dict(self.environ)).stdout

    def _java(self) -> Iterator[Store]:
        patterns = [glob.escape(str(self.root).rstrip("/")) + path for path in JAVA]
        if home := self.environ.get("JAVA_HOME"):
            patterns += [f"{glob.escape(home)}/{middle}lib/security/cacerts"
                         for middle in ("", "jre/")]
        for path in self._once(patterns):
            add = (f"{_sudo()}keytool -importcert -noprompt -alias cutthrough "
                   f"-file {shlex.quote(self.path)} -keystore {shlex.quote(path)} "
                   f"-storepass {JAVA_PASSWORD}")
            undo = (f"{_sudo()}keytool -delete -alias cutthrough -keystore "
                    f"{shlex.quote(path)} -storepass {JAVA_PASSWORD}")
            try:
                is_there = is_in_keystore(Path(path).read_bytes(), self.der)
            except OSError as error:
                yield Store("Java", path, "?", error.strerror or "", add)
                continue
            if is_there is None:
                yield Store("Java", path, "?", "cannot be read with the password "
                            f"{JAVA_PASSWORD}", add)
            else:
                yield Store("Java", path, "yes" if is_there else "no", "",
                            "" if is_there else add, undo)

    def _variables(self) -> Iterator[Store]:
        for name, without in VARIABLES.items():
            if path := self.environ.get(name):
                yield self._in_file("variable", path, self.bundle, f"{name}={path}")
            else:
                needed = "system" not in without
                yield Store("variable", name, "-", f"not set: {without}",
                            self.bundle if needed else "")


def is_in_keystore(data: bytes, der: bytes) -> bool | None:
    """Whether a keystore of Java has a certificate; None: its form is unknown.

    JKS has certificates as they are, and so has PKCS #12 if it is not encrypted, as the
    JDK has shipped it since version 18.
    """
    if der in data:
        return True
    if data.startswith(JKS):
        return False
    for password in (JAVA_PASSWORD.encode(), None):
        try:
            keystore = pkcs12.load_pkcs12(data, password)
        except (ValueError, UnsupportedAlgorithm):
            continue
        return any(entry.certificate.public_bytes(serialization.Encoding.DER) == der
                   for entry in keystore.additional_certs)
    return None


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "
