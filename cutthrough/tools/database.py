"""The database of captured exchanges, or of recorded sessions, that an operator names:
a file or a URL.

A URL comes from a file or the environment, because it has a password, and ps shows
flags.
"""

import os
from collections.abc import Mapping

from cutthrough.config.config import ConfigError
from cutthrough.config.database import check_url
from cutthrough.config.files import home_of
from cutthrough.config.settings import read_secret_file, variable_name

FILE, URL, URL_FILE = map(variable_name, (
    "capture_file", "capture_url", "capture_url_file"))
RECORDING_URL, RECORDING_URL_FILE = map(variable_name, (
    "recording_url", "recording_url_file"))
# Of `cutthrough inspect`, in its directory
FLOWS = "flows.db"


def state_directory(name: str, environ: Mapping[str, str]) -> str:
    """In the user's state directory (XDG Base Directory Specification)."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(home_of(environ), ".local", "state")
    return os.path.join(state, "cutthrough", name)


def default_flows(environ: Mapping[str, str]) -> str:
    return os.path.join(state_directory("inspect", environ), FLOWS)


def find_database(file: str | None, url_file: str | None, environ: Mapping[str, str]
                  ) -> str:
    """Finds the database of the flags --file and --url-file, or of the variables that
    `serve` reads, or the file of `cutthrough inspect` if there is one. Raises
    ConfigError."""
    if file and url_file:
        raise ConfigError("command line", "--url-file", "and --file are both given")
    if file:
        return file
    if url_file:
        return read_url_file(url_file, "--url-file")
    if url := environ.get(URL):
        return check(url, "environment", URL)
    if path := environ.get(URL_FILE):
        return read_url_file(path, URL_FILE, "environment")
    if path := environ.get(FILE):
        return path
    if os.path.exists(path := default_flows(environ)):
        return path
    raise ConfigError("command line", "--file", "is missing: give the file of "
                      f"capture_file or, with --url-file, of capture_url_file; or set "
                      f"{FILE}, {URL} or {URL_FILE}")


def find_recordings(url_file: str | None, environ: Mapping[str, str]) -> str:
    """The URL of the database of recorded sessions, by the flag --url-file, or the
    variables that `serve` reads; "": they are files. Raises ConfigError."""
    if url_file:
        return read_url_file(url_file, "--url-file")
    if url := environ.get(RECORDING_URL):
        return check(url, "environment", RECORDING_URL)
    if path := environ.get(RECORDING_URL_FILE):
        return read_url_file(path, RECORDING_URL_FILE, "environment")
    return ""


def read_url_file(path: str, key: str, source: str = "command line") -> str:
    """Raises ConfigError."""
    return check(read_secret_file(path, source, key), source, key)


def check(url: str, source: str, key: str) -> str:
    if reason := check_url(url):
        raise ConfigError(source, key, reason)
    return url
