"""Bundles, and an HTTPS server that has one."""

import base64
import contextlib
import functools
import http.server
import io
import socket
import ssl
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cutthrough.bundle.archive import build_bundle
from tests.support.certificates import localhost

CREATED = "2026-11-29T08:00:00Z"


@functools.cache
def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def key(name: str = "first") -> Ed25519PrivateKey:
    """The key of this name; the same during a run."""
    return _key(name)


def public(name: str = "first") -> str:
    return base64.b64encode(
        key(name).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def bundle(serial: int, files: Mapping[str, str], revision: str = "",
           signer: str = "first", percent: int | None = None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return build_bundle(folder, key(signer).sign, revision or f"r{serial}", serial,
                            CREATED, percent)


def tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A tar that is not packed, of any members."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                file.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            file.addfile(info, io.BytesIO(member[1]))
    return content.getvalue()


class Seen(NamedTuple):
    """A request, and the status of its answer."""

    etag: str
    authorization: str
    status: int


class BundleServer(http.server.ThreadingHTTPServer):
    """Serves `content` at any path. `mode`: whole; cut: half of the octets; silent: no
    answer until the end."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, content: bytes = b"", has_tls: bool = True, port: int = 0
                 ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.content, self.mode, self.has_etags = content, "whole", True
        self.seen: list[Seen] = []
        self.over = threading.Event()
        self._context: ssl.SSLContext | None = None
        if has_tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*localhost())
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self.server_port}/bundle.tar.gz"

    @property
    def statuses(self) -> list[int]:
        return [request.status for request in self.seen]

    def finish_request(self, request, client_address) -> None:
        """The handshake is made in the connection's own thread."""
        if self._context is None:
            super().finish_request(request, client_address)
            return
        with contextlib.suppress(OSError), self._context.wrap_socket(
                request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def handle_error(self, request, client_address) -> None:
        """The client has gone."""

    def close(self) -> None:
        self.over.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: BundleServer

    def do_GET(self) -> None:
        server = self.server
        content, mode = server.content, server.mode
        etag = f'"{hash(content)}"' if server.has_etags else ""
        tag = self.headers.get("If-None-Match", "")
        status = 304 if tag and tag == etag else 200 if content else 404
        server.seen.append(Seen(tag, self.headers.get("Authorization", ""), status))
        if mode == "silent":
            server.over.wait()
            return
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        if status == 200:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status == 200:
            self.wfile.write(content[:len(content) // 2] if mode == "cut" else content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
