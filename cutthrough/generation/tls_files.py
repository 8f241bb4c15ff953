"""Reads the files of TLS, of listeners and of parents, and makes the contexts that
connections share.

A certificate's key must be readable by its owner alone (R49), with the exception in
is_private. The contents go to the workers in the generation's memory: they need no
right to open the files.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from cutthrough.config.client_certificates import ClientCertificate
from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, read_file
from cutthrough.config.listeners import Listener
from cutthrough.config.option import RowPath
from cutthrough.config.parents import Parent

if TYPE_CHECKING:
    from cutthrough.net.tls.certificates import Certificate, Pair
    from cutthrough.net.tls.context import TlsClient, TlsServer
    from cutthrough.net.tls.ticket_keys import TicketKeys


class PairFiles(msgspec.Struct, frozen=True):
    """The contents of one certificate's files; `name` is the certificate's path."""

    name: str
    certificate: bytes
    key: bytes
    ocsp: bytes = b""

    def __repr__(self) -> str:               # never the key (R37)
        return f"PairFiles({self.name!r})"


class TlsFiles(msgspec.Struct, frozen=True):
    """The contents of one listener's files; without certificates it has no TLS."""

    pairs: tuple[PairFiles, ...] = ()
    client_ca: bytes = b""
    client_crl: bytes = b""
    client_ca_by_name: tuple[tuple[str, bytes], ...] = ()


class ParentFiles(msgspec.Struct, frozen=True):
    """The content of one parent's files."""

    pair: PairFiles | None = None
    ca: bytes = b""


def read_tls_files(config: Config) -> tuple[TlsFiles, ...]:
    """Reads the files of every listener; the result has the order of all_listeners.

    Raises ConfigError.
    """
    return tuple(_read(listener, row) for listener, row in _rows(config))


def _rows(config: Config) -> Iterator[tuple[Listener, int]]:
    """Each listener, and its number in `listeners`; < 0: of the short form."""
    for number, listener in enumerate(config.all_listeners):
        yield listener, number - len(config.listen)


def _read(listener: Listener, row: int) -> TlsFiles:
    if not listener.certificates:
        return TlsFiles()
    keys = listener.certificate_keys or listener.certificates
    ocsp = listener.ocsp_responses or ("",) * len(keys)
    pairs = tuple(
        PairFiles(certificate,
                  _content(certificate, "listeners", (row, "certificates")),
                  _secret(key, "listeners", (
                      row, "certificate_keys" if listener.certificate_keys
                      else "certificates")),
                  _content(response, "listeners", (row, "ocsp_responses")))
        for certificate, key, response in zip(
            listener.certificates, keys, ocsp, strict=True))
    return TlsFiles(
        pairs, _content(listener.client_ca, "listeners", (row, "client_ca")),
        _content(listener.client_crl, "listeners", (row, "client_crl")),
        tuple((name, _content(path, "listeners", (row, "client_ca_by_name")))
              for name, path in listener.client_ca_by_name))


def client_checks(config: Config, files: Sequence[TlsFiles]) -> object:
    """What says which client certificates are accepted; equal: nothing has changed."""
    return [(listener.address, listener.client_certificate, of_listener.client_ca,
             of_listener.client_crl, of_listener.client_ca_by_name)
            for listener, of_listener in zip(config.all_listeners, files, strict=False)
            if of_listener.client_ca or of_listener.client_ca_by_name]


def read_parent_files(config: Config) -> tuple[ParentFiles, ...]:
    """Reads the files of every parent; the result has the order of `all_parents`.

    Raises ConfigError.
    """
    return tuple(map(_read_parent, config.all_parents))


def _read_parent(parent: Parent) -> ParentFiles:
    ca = _content(parent.ca, parent.table, (parent.row, "ca"))
    return ParentFiles(read_pair(parent, parent.table, parent.row)
                       if parent.certificate else None, ca)


def read_pair(row: Parent | ClientCertificate, table: str, name: str) -> PairFiles:
    """Reads a row's certificate and its key. Raises ConfigError."""
    key = "certificate_key" if row.certificate_key else "certificate"
    return PairFiles(
        row.certificate, _content(row.certificate, table, (name, "certificate")),
        _secret(getattr(row, key), table, (name, key)))


def _content(path: str, option: str, place: RowPath) -> bytes:
    if not path:
        return b""
    try:
        return read_file(path)
    except (OSError, FileError) as error:
        raise ConfigError("", option, f"{path}: "
                          f"{getattr(error, 'strerror', None) or error}",
                          path=place) from None


def _secret(path: str, option: str, place: RowPath) -> bytes:
    data = _content(path, option, place)
    about = os.stat(path)
    if stat.S_ISREG(about.st_mode) and not is_private(about, os.geteuid()):
        from shlex import quote  # here: a start needs none of it

        more = (", or 640 if the program runs as another user than root; check as that "
                "user") if about.st_uid == 0 else ""
        raise ConfigError("", option, f"{path} has a private key, and others than its "
                          f"owner may read it: chmod 600 {quote(path)}{more}",
                          path=place)
    return data


def is_private(about: os.stat_result, user: int) -> bool:
    """Whether this may be the file of a private key, for a program of this user.

    Only its owner may read it. If the owner is root and the program is not, a group may
    read it too (as in PostgreSQL), because the program has no other way to it: so
    Kubernetes mounts secrets (fsGroup), and systemd's credentials look so (an ACL).
    """
    of_root = about.st_uid == 0 and user != 0
    return not about.st_mode & (0o037 if of_root else 0o077)


def check_tls(config: Config, files: Sequence[TlsFiles]) -> "list[TlsServer | None]":
    """Makes each listener's context, as each worker will. Raises ConfigError."""
    servers: list[TlsServer | None] = []
    path: RowPath
    for (listener, row), listener_files in zip(_rows(config), files, strict=True):
        try:
            servers.append(make_server(listener, listener_files, None))
        except (ImportError, ValueError) as error:
            name = getattr(error, "name", "")
            path = (row, name if name == "client_ca_by_name" else "certificates")
            raise ConfigError("", "listeners", show_error(error), path=path) from None
    return servers


def check_parents(config: Config, files: Sequence[ParentFiles]) -> None:
    """Makes the context of each parent over TLS, as each worker will. Raises
    ConfigError."""
    for parent, parent_files in zip(config.all_parents, files, strict=True):
        try:
            make_client(parent, parent_files)
            if parent.check_tls:
                make_checker()
        except (ImportError, ValueError) as error:
            key = "url" if parent.table == "parents" else "urls"
            raise ConfigError("", parent.table, show_error(error),
                              path=(parent.row, key)) from None


def show_error(error: Exception) -> str:
    if isinstance(error, ImportError):
        return ("TLS is not available: this program was built without libssl, "
                f"or libssl.so.3 is missing ({error})")
    return str(error)


def expiries(config: Config, files: Sequence[TlsFiles],
             of_parents: Sequence[ParentFiles]) -> dict[str, int]:
    """When each certificate expires, in seconds of the epoch, by its path; of a file of
    authorities, the first one to expire."""
    by_path = {about.name: about.not_after
               for about in certificates(config, of_parents)}
    if any(listener_files.pairs for listener_files in files):
        by_path |= {about.name: about.not_after
                    for server in check_tls(config, files) if server is not None
                    for about in server.certificates}
    return by_path


def certificates(config: Config, files: Sequence[ParentFiles],
                 ) -> "Iterator[Certificate]":
    """Ours for each parent, and of its authorities the first one to expire.

    Raises TlsError.
    """
    for parent, parent_files in zip(config.all_parents, files, strict=False):
        if not parent.tls_files:
            continue
        from cutthrough.net.tls.certificates import describe

        if parent_files.pair is not None:
            yield describe(parent_files.pair.certificate, parent.certificate)[0]
        if parent_files.ca:
            yield min(describe(parent_files.ca, parent.ca),
                      key=lambda about: about.not_after)


def make_server(listener: Listener, files: TlsFiles,
                keys: "TicketKeys | None") -> "TlsServer | None":
    """Returns the context of a listener; None: it has no TLS.

    Raises ImportError without libssl, and TlsError for files that cannot be used.
    """
    if not files.pairs:
        return None
    if "http2" in listener.protocols:
        import_http2()
    # Imported here, because most configurations need no libssl
    from cutthrough.net.tls.certificates import Pair
    from cutthrough.net.tls.context import ClientCheck, TlsServer

    return TlsServer(
        [Pair(pair.certificate, pair.key, pair.ocsp, pair.name)
         for pair in files.pairs],
        min_version=listener.tls_min_version,
        ciphers=listener.ciphers,
        groups=listener.groups,
        clients=ClientCheck(
            files.client_ca, files.client_crl, listener.client_certificate,
            files.client_ca_by_name),
        keys=keys if listener.session_tickets else None,
        http2="http2" in listener.protocols,
        sni_strict=listener.sni_strict,
    )


def import_http2() -> None:
    """From now on there are streams. Raises ValueError without libnghttp2."""
    try:
        from cutthrough.http2 import transport  # noqa: F401
    except ImportError as error:
        raise ValueError("HTTP/2 is not available: this program was built without "
                         f"libnghttp2, or it is missing ({error})") from None


def make_client(parent: Parent, files: ParentFiles) -> "TlsClient | None":
    """Returns the context of a parent; None: it has no TLS. Raises as make_server."""
    if parent.scheme != "https":
        return None
    from cutthrough.net.tls.context import TlsClient

    return TlsClient(ca=files.ca, resumes="server", pair=show_pair(files.pair))


def show_pair(files: PairFiles | None) -> "Pair | None":
    """A client's certificate and key, for a context; None: it shows none."""
    from cutthrough.net.tls.certificates import Pair

    return None if files is None else Pair(
        files.certificate, files.key, b"", files.name)


def make_checker() -> "TlsClient":
    """Returns the context of the checks' own handshakes. Raises as make_server."""
    from cutthrough.net.tls.context import TlsClient

    return TlsClient(alpn="")


def digest_of(parent: Parent, files: ParentFiles) -> bytes:
    """Distinguishes the settings of connections to a parent (R46): its address too, as
    a session is one server's."""
    data = msgspec.msgpack.encode((parent.url, parent.expected_name, files))
    return hashlib.sha256(data).digest()
