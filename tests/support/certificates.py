"""Certificates for tests, made by openssl(1) once for a process, and a TLS client."""

import contextlib
import datetime
import functools
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    load_pem_private_key,
)

from tests.support.wrapped import WrappedSocket

RECORD = 16384


class Made(NamedTuple):
    certificate: Path
    key: Path

    @property
    def pem(self) -> tuple[bytes, bytes]:
        return self.certificate.read_bytes(), self.key.read_bytes()


class Authority:
    """Signs certificates in a directory of its own."""

    def __init__(self, name: str = "authority", folder: Path | None = None,
                 constraints: str = "") -> None:
        """`constraints`: on names, as permitted;DNS:.example."""
        self.folder = folder or Path(tempfile.mkdtemp(prefix="ca-"))
        self.own = Made(self.folder / "ca.pem", self.folder / "ca.key")
        self.count = 0
        openssl("req", "-x509", *new_key("ec", self.own.key), "-out",
                str(self.own.certificate), "-days", "30", "-subj", f"/CN={name}",
                "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign",
                *(("-addext", f"nameConstraints=critical,{constraints}")
                  if constraints else ()))
        (self.folder / "index").write_text("")
        (self.folder / "crlnumber").write_text("01\n")
        (self.folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=d\n[d]\n"
            f"database={self.folder}/index\ncrlnumber={self.folder}/crlnumber\n"
            f"certificate={self.own.certificate}\nprivate_key={self.own.key}\n"
            "default_md=sha256\ndefault_crl_days=30\n")

    def sign(self, *names: str, kind: str = "ec", subject: str = "", days: int = 30,
             ) -> Made:
        """`names` as in subjectAltName: DNS:a.example, URI:spiffe://…; none: no names.
        """
        self.count += 1
        leaf = Made(*(self.folder / f"{self.count}.{end}" for end in ("pem", "key")))
        request = self.folder / f"{self.count}.csr"
        openssl("req", *new_key(kind, leaf.key), "-out", str(request),
                "-subj", subject or f"/CN=subject {self.count}")
        extension = self.folder / f"{self.count}.ext"
        extension.write_text(
            f"subjectAltName={','.join(names)}\n" if names
            else "keyUsage=digitalSignature\n")
        openssl("x509", "-req", "-in", str(request), "-CA", str(self.own.certificate),
                "-CAkey", str(self.own.key), "-CAcreateserial", "-days", "30",
                "-extfile", str(extension), "-out", str(leaf.certificate))
        leaf.key.chmod(0o600)
        if days != 30:
            end_in(days, leaf.certificate, self.own.key)
        return leaf

    def issue(self, name: str) -> "Authority":
        """An authority below this one."""
        authority = Authority(name)
        extension = authority.folder / "own.ext"
        extension.write_text("basicConstraints=critical,CA:TRUE\n")
        openssl("x509", "-in", str(authority.own.certificate), "-x509toreq", "-signkey",
                str(authority.own.key), "-out", str(authority.folder / "own.csr"))
        openssl("x509", "-req", "-in", str(authority.folder / "own.csr"),
                "-CA", str(self.own.certificate), "-CAkey", str(self.own.key),
                "-CAcreateserial", "-days", "30", "-extfile", str(extension), "-out",
                str(authority.own.certificate))
        return authority

    def revoke(self, *leaves: Made) -> Path:
        """Returns the list of revoked certificates after these were added."""
        common = ("ca", "-config", str(self.folder / "ca.cnf"))
        for leaf in leaves:
            openssl(*common, "-revoke", str(leaf.certificate))
        path = self.folder / "crl.pem"
        openssl(*common, "-gencrl", "-out", str(path))
        return path


def end_in(days: int, certificate: Path, key: Path) -> None:
    """Changes the end of a certificate's validity, which openssl 3.6 sets to no day of
    the past. `key`: its issuer's."""
    old = x509.load_pem_x509_certificate(certificate.read_bytes())
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    builder = x509.CertificateBuilder().subject_name(old.subject).issuer_name(
        old.issuer).public_key(old.public_key()).serial_number(
        old.serial_number).not_valid_after(end).not_valid_before(
        min(old.not_valid_before_utc, end - datetime.timedelta(days=1)))
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signer = load_pem_private_key(key.read_bytes(), None)
    certificate.write_bytes(
        builder.sign(signer, SHA256()).public_bytes(Encoding.PEM))


def new_key(kind: str, path: Path) -> list[str]:
    how = ["rsa:2048"] if kind == "rsa" else ["ed25519"] if kind == "ed25519" else [
        "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    return ["-newkey", *how, "-nodes", "-keyout", str(path)]


def openssl(*arguments: str) -> None:
    subprocess.run(("openssl", *arguments), check=True, capture_output=True,
                   stdin=subprocess.DEVNULL)


def make_nss_database(folder: Path, trusted: Path) -> None:
    """Makes a database as browsers have, which trusts this authority for servers."""
    folder.mkdir(parents=True)
    for words in (("-N", "--empty-password"),
                  ("-A", "-n", "test", "-t", "C,,", "-i", str(trusted))):
        subprocess.run(("certutil", "-d", f"sql:{folder}", *words), check=True,
                       capture_output=True, stdin=subprocess.DEVNULL)


@functools.cache
def on_aws_lc() -> bool:
    """Whether this build has AWS-LC in place of OpenSSL."""
    from cutthrough.net.tls.certificates import version

    return version().startswith("AWS-LC")


@functools.cache
def authority() -> Authority:
    return Authority()


@functools.cache
def localhost(kind: str = "ec") -> Made:
    return authority().sign("DNS:localhost", "IP:127.0.0.1", kind=kind)


def client_context(made: Made | None = None, trusted: Authority | None = None,
                   ) -> ssl.SSLContext:
    trusted = trusted or authority()
    context = ssl.create_default_context(cafile=trusted.own.certificate)
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF    # which Python sets
    if made is not None:
        context.load_cert_chain(*made)
    return context


class TlsSocket(WrappedSocket):
    """TLS; its end is a close_notify, and the other direction goes on after it.

    One thread may read and another send or close: an ssl.SSLObject and its buffers bear
    one thread at a time, and end the process otherwise.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None = None,
                 name: str = "localhost", session: ssl.SSLSession | None = None,
                 server_side: bool = False, read: bytes = b"") -> None:
        """`read`: the peer's first bytes, if they were read already."""
        super().__init__(sock)
        self._lock = threading.Lock()       # of the object and both buffers
        self._sending = threading.Lock()    # of the order of sent bytes
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._in.write(read)
        self._tls = (context or client_context()).wrap_bio(
            self._in, self._out, server_side=server_side,
            server_hostname=None if server_side else name, session=session)
        if not server_side:
            self.shake()

    def shake(self) -> None:
        while True:
            try:
                with self._lock:
                    self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._take():
                    raise ConnectionResetError("in the handshake") from None
            except ssl.SSLError:
                self._flush()
                raise
            else:
                self._flush()
                return

    @property
    def tls(self) -> ssl.SSLObject:
        return self._tls

    def _take(self) -> bool:
        """Waits for bytes of the peer's. False: it has ended."""
        data = self._sock.recv(65536)
        with self._lock:
            self._in.write(data)
        return bool(data)

    def _flush(self) -> None:
        with self._sending:
            with self._lock:
                data = self._out.read()
            if data:
                self._sock.sendall(data)

    def send(self, data: bytes) -> int:
        self.sendall(data[:RECORD])
        return min(len(data), RECORD)

    def sendall(self, data: bytes) -> None:
        for at in range(0, len(data), 1 << 20):
            with self._lock:
                self._tls.write(data[at:at + (1 << 20)])
            self._flush()

    def recv(self, n: int) -> bytes:
        """Raises ConnectionResetError if a FIN comes, and no close_notify before it."""
        while True:
            try:
                with self._lock:
                    return self._tls.read((n + 1) // 2) + self._read_on(n)
            except ssl.SSLWantReadError:
                if self._out.pending:
                    with contextlib.suppress(OSError):   # the answer may be here
                        self._flush()
                if not self._take():
                    raise ConnectionResetError("a FIN without close_notify") from None
            except ssl.SSLZeroReturnError:
                return b""

    def _read_on(self, n: int) -> bytes:
        """The content of the other received records, up to `n` bytes."""
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while self._in.pending and len(found) < n // 2:
                found += self._tls.read(n // 2)
        return found

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            with contextlib.suppress(ssl.SSLError, OSError), self._lock:
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self._flush()
