"""The authority's files:

    DIRECTORY/      0700
      ca.key        0600, PKCS #8 in PEM, without a password; or a URI: see token
      ca.pem        0644

The key is read by `issue` alone, and only if it and the directory belong to this user
and nobody else can open them (R55). The other commands read the certificate.
"""

import contextlib
import os
import pwd
import shlex
import stat
import tempfile

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cutthrough.ca.leaf import Authority
from cutthrough.ca.names import AuthorityError
from cutthrough.ca.token import SCHEME, TokenKey
from cutthrough.config.files import FileError, home_of, read_file

CERTIFICATE = "ca.pem"
KEY = "ca.key"


def default_directory() -> str:
    """In the user's data directory (XDG Base Directory Specification)."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):              # the specification: to be ignored
        data = os.path.join(home_of(os.environ), ".local", "share")
    return os.path.join(data, "cutthrough", "ca")


def store(directory: str, certificate: x509.Certificate, key: bytes,
          force: bool) -> None:
    """Writes both files, the key (or its URI) first. Raises AuthorityError if one
    exists and `force` is not set, and OSError."""
    _prepare(directory)
    paths = [os.path.join(directory, name) for name in (KEY, CERTIFICATE)]
    for path in paths:
        if not force and os.path.lexists(path):
            raise AuthorityError(
                f"{path} exists. --force replaces the authority: what trusts the old "
                "certificate then has to be given the new one")
    contents = (key, certificate.public_bytes(serialization.Encoding.PEM))
    for path, data, mode in zip(paths, contents, (0o600, 0o644), strict=True):
        write_file(path, data, mode, force)


def encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption())


def _prepare(directory: str) -> None:
    try:
        os.makedirs(os.path.dirname(os.path.abspath(directory)), exist_ok=True)
        os.mkdir(directory, 0o700)
    except FileExistsError:
        _check_directory(directory)


def _check_directory(directory: str) -> None:
    about = os.stat(directory)
    if not stat.S_ISDIR(about.st_mode):
        raise AuthorityError(f"{directory} is not a directory")
    _check_owner(directory, about)
    if about.st_mode & 0o077:
        raise AuthorityError(f"{directory} is open to others than its owner: chmod 700 "
                             f"{shlex.quote(directory)}, or name a directory of its "
                             "own by --dir")


def _check_owner(path: str, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise AuthorityError(f"{path} belongs to {_user(about.st_uid)}, and this is "
                             f"{_user(os.geteuid())}")


def _user(number: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return f"user {number}"


def write_file(path: str, data: bytes, mode: int, force: bool) -> None:
    """Makes a file whole or not at all, readable as `mode` from its first byte on.

    Raises AuthorityError if it exists and `force` is not set, and OSError with `path`.
    """
    try:
        _write_file(path, data, mode, force)
    except FileExistsError:
        raise AuthorityError(f"{path} exists; --force replaces it") from None
    except OSError as error:
        error.filename, error.filename2 = path, None         # not a temporary name
        raise


def _write_file(path: str, data: bytes, mode: int, force: bool) -> None:
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".ca-")
    try:
        with open(fd, "wb") as file:         # mkstemp's own mode is 0600
            file.write(data)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        if not force:                        # takes the path, if it is free
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_certificate(directory: str) -> x509.Certificate:
    """Reads the authority's certificate. Raises AuthorityError and OSError."""
    path = os.path.join(directory, CERTIFICATE)
    try:
        certificate = load_certificate(path)
    except FileNotFoundError:
        raise AuthorityError(f"{directory} has no authority: `cutthrough ca init` "
                             "makes one, --dir names another directory") from None
    with contextlib.suppress(x509.ExtensionNotFound, x509.DuplicateExtension,
                             ValueError):
        if certificate.extensions.get_extension_for_class(
                x509.BasicConstraints).value.ca:
            return certificate
    raise AuthorityError(f"{path} is not the certificate of an authority")


def load_certificate(path: str) -> x509.Certificate:
    """Reads the first certificate of a file in PEM. Raises AuthorityError, OSError."""
    try:
        return x509.load_pem_x509_certificate(read_file(path))
    except FileError as error:
        raise AuthorityError(f"{path} {error}") from None
    except ValueError:
        raise AuthorityError(f"{path} has no certificate in PEM") from None


def check_key(directory: str) -> str:
    """Returns the path of the key, if it and its directory are as they must be (R55).
    Raises AuthorityError and OSError."""
    path = os.path.join(directory, KEY)
    _check_directory(directory)
    _check_private(path, os.lstat(path))
    return path


def _check_private(path: str, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise AuthorityError(f"{path} is not a file")
    _check_owner(path, about)
    if about.st_mode & 0o077:
        raise AuthorityError(f"{path} can be read by others than its owner: chmod 600 "
                             f"{shlex.quote(path)}")


def read_authority(directory: str) -> Authority:
    """Reads certificate and key, to sign. Raises AuthorityError and OSError."""
    certificate = read_certificate(directory)
    path = check_key(directory)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        _check_private(path, os.fstat(fd))   # of the file that is read
        data = file.read()
    if data.startswith(SCHEME.encode()):
        token = TokenKey(data.decode("ascii", "replace"))
        if token.public != certificate.public_key():
            raise AuthorityError(f"{path} is not the key of {CERTIFICATE}")
        return Authority(certificate, token)
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthorityError(f"{path} has no key in PEM without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError(f"{path} is not an ECDSA key")
    if key.public_key() != certificate.public_key():
        raise AuthorityError(f"{path} is not the key of {CERTIFICATE}")
    return Authority(certificate, key)
