"""Reads the files of interception, and makes the contexts that connections share.

The authority's key must be readable by its owner alone (R55). The contents go to the
workers in the generation's memory, as those of listeners do.
"""

import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.files import FileError, read_file
from cutthrough.config.mistake import raise_all
from cutthrough.generation.delegates import SCHEME, find_delegate
from cutthrough.generation.tls_files import (
    PairFiles,
    import_http2,
    is_private,
    read_pair,
    show_error,
    show_pair,
)
from cutthrough.policy.source import Policy, PolicyError

if TYPE_CHECKING:
    from cutthrough.net.tls.certificates import Certificate
    from cutthrough.net.tls.context import TlsClient
    from cutthrough.net.tls.leaves import TlsInterceptor

# As `cutthrough ca init` names them
CERTIFICATE, KEY = "ca.pem", "ca.key"


class InterceptionFiles(msgspec.Struct, frozen=True):
    """The files' content: our authority, and the authorities of origins in PEM; empty:
    the system's."""

    certificate: bytes
    key: bytes
    origin_ca: bytes = b""
    origin_crl: bytes = b""                 # their lists of revoked certificates
    http2: str = "auto"                     # as the option
    origin_http2: str = "auto"              # the same
    origin_hello: str = "own"               # the same
    # Ours for origins, by the names that rules give
    pairs: tuple[tuple[str, PairFiles], ...] = ()
    in_token: bool = False                  # the authority's key: see delegates

    def __repr__(self) -> str:               # never the key (R37)
        return "InterceptionFiles()"

    @property
    def digest(self) -> bytes:
        """Returns the digest of the settings for clients' certificates."""
        return _digest_of(self.certificate, self.key, self.http2)

    def origin_digest(self, pair: PairFiles | None) -> bytes:
        """Distinguishes the settings of connections to origins (R46)."""
        return _digest_of(self.origin_ca, self.origin_crl, self.origin_http2, pair)


def _digest_of(*parts: object) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()


def interception_files(config: Config) -> list[str]:
    """The files that `read_interception` reads."""
    if not config.intercept_ca:
        return []
    files = [os.path.join(config.intercept_ca, name) for name in (CERTIFICATE, KEY)]
    files += [path for path in (config.origin_ca, config.origin_crl) if path]
    return files + [path for row in config.client_certificates
                    for path in row.tls_files]


def authority_expiry(config: Config, files: InterceptionFiles | None) -> dict[str, int]:
    """When our authority's certificate expires, in seconds of the epoch, by its path;
    {}: there is none. Raises as make_interceptor."""
    if files is None:
        return {}
    from cutthrough.net.tls.certificates import describe

    path = os.path.join(config.intercept_ca, CERTIFICATE)
    return {path: describe(files.certificate, path)[int(files.in_token)].not_after}


def client_certificates(files: InterceptionFiles | None) -> "Iterator[Certificate]":
    """Ours for origins. Raises ImportError without libssl, and TlsError."""
    for _, pair in files.pairs if files is not None else ():
        from cutthrough.net.tls.certificates import describe

        yield describe(pair.certificate, pair.name)[0]


def read_interception(config: Config) -> InterceptionFiles | None:
    """Reads the files; None: the option is not set. Raises ConfigError."""
    if not config.intercept_ca:
        return None
    folder = config.intercept_ca
    key = os.path.join(folder, KEY)
    certificate = _content(os.path.join(folder, CERTIFICATE), "intercept_ca")
    secret = _content(key, "intercept_ca")
    in_token = secret.startswith(SCHEME)
    if in_token:
        try:
            delegate = find_delegate(folder, certificate, secret)
        except ValueError as error:
            raise ConfigError("", "intercept_ca", str(error)) from None
        certificate, secret = delegate.certificates, delegate.key
    files = InterceptionFiles(
        certificate, secret,
        origin_ca=_content(config.origin_ca, "origin_ca") if config.origin_ca else b"",
        origin_crl=(
            _content(config.origin_crl, "origin_crl") if config.origin_crl else b""),
        http2=config.intercept_http2, origin_http2=config.origin_http2,
        origin_hello=config.origin_hello,
        pairs=tuple((row.name, read_pair(row, "client_certificates", row.name))
                    for row in config.client_certificates),
        in_token=in_token)
    if not is_private(os.stat(key), os.geteuid()):
        from shlex import quote  # here: a start needs none of it

        raise ConfigError("", "intercept_ca", f"{key} can be read by others than its "
                          f"owner: chmod 600 {quote(key)}")
    return files


def _content(path: str, option: str) -> bytes:
    try:
        return read_file(path)
    except (OSError, FileError) as error:
        hint = ("; `cutthrough ca init` makes it" if option == "intercept_ca"
                and isinstance(error, FileNotFoundError) else "")
        reason = getattr(error, "strerror", None) or error
        raise ConfigError("", option, f"{path}: {reason}{hint}") from None


def check_interception(files: InterceptionFiles | None, policy: Policy) -> None:
    """Makes the contexts, as each worker will.

    Raises ConfigError, and PolicyError for a rule that intercepts without an authority
    or names an unknown certificate.
    """
    wanted = next((rule for rule in policy.rules
                   if rule.tls.startswith("intercept")), None)
    if files is None and wanted is not None:
        raise PolicyError(wanted.source, "tls", "needs the option intercept_ca: the "
                          "directory that `cutthrough ca init` makes")
    if files is not None:
        try:
            make_interceptor(files)
            make_origin_client(files, None, http2=False)
        except (ImportError, ValueError) as error:
            raise ConfigError("", "intercept_ca", show_error(error)) from None
        _check_client_certificates(files, policy)


def _check_client_certificates(files: InterceptionFiles, policy: Policy) -> None:
    for name, pair in files.pairs:
        try:
            make_origin_client(files, pair, http2=False)
        except ValueError as error:
            raise ConfigError("", "client_certificates", show_error(error),
                              path=(name, "certificate")) from None
    known = {"", *dict(files.pairs)}
    raise_all([
        PolicyError(rule.source, "client_certificate", "no certificate of the "
                    f"configuration is named {rule.client_certificate!r}")
        for rule in policy.rules if rule.client_certificate not in known])


def make_interceptor(files: InterceptionFiles) -> "TlsInterceptor":
    """Returns the context of intercepted clients.

    Raises ImportError without libssl, TlsError for files that cannot be used, and
    ValueError if HTTP/2 must be offered and libnghttp2 is missing.
    """
    from cutthrough.net.tls.leaves import TlsInterceptor

    return TlsInterceptor(
        files.certificate, files.key, http2=_offers_http2(files.http2))


def _offers_http2(option: str) -> bool:
    if option == "off":
        return False
    try:
        import_http2()
    except ValueError:
        if option == "on":
            raise
        return False
    return True


def offers_origins_http2(files: InterceptionFiles) -> bool:
    """Whether HTTP/2 is offered to origins."""
    return _offers_http2(files.origin_http2)


def make_origin_client(files: InterceptionFiles, pair: PairFiles | None, *,
                       http2: bool) -> "TlsClient":
    """Returns the context of their origins, which see the certificate `pair`. Raises as
    make_interceptor."""
    from cutthrough.net.tls.context import TlsClient

    return TlsClient(ca=files.origin_ca, crl=files.origin_crl, pair=show_pair(pair),
                     alpn="h2,http/1.1" if http2 else "http/1.1", resumes="name")
