"""The authorities that an operator's requests trust beside the system's: those whose
certificates a proxy's tunnels show."""

import os
from collections.abc import Mapping

from cutthrough.config.config import ConfigError
from cutthrough.config.files import FileError, read_file
from cutthrough.config.settings import variable_name
from cutthrough.generation.ca_certificate import only_certificates

OWN, ORIGINS = map(variable_name, ("intercept_ca", "origin_ca"))
CERTIFICATE = "ca.pem"                       # as `cutthrough ca init` names it


def find_authorities(cacert: str | None, environ: Mapping[str, str]) -> str:
    """Certificates in PEM: of the file of --cacert, or of the variables that `serve`
    reads and of the directory in which `cutthrough ca init` makes an authority. Raises
    ConfigError."""
    if cacert:
        return _read(cacert, "command line", "--cacert")
    certificates = ""
    if folder := environ.get(OWN):
        certificates += _read(os.path.join(folder, CERTIFICATE), "environment", OWN)
    if path := environ.get(ORIGINS):
        certificates += _read(path, "environment", ORIGINS)
    from cutthrough.ca.store import default_directory

    try:
        certificates += only_certificates(read_file(os.path.join(
            default_directory(), CERTIFICATE)))
    except (OSError, FileError):             # there is none, or it is not ours
        pass
    return certificates


def _read(path: str, source: str, key: str) -> str:
    try:
        certificates = only_certificates(read_file(path))
    except (OSError, FileError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(source, key, f"{path}: {reason}") from None
    if not certificates:
        raise ConfigError(source, key, f"{path}: has no certificate in PEM")
    return certificates
