"""Parses the target of the access log.

    -  off  /path  ./path  journal[:/socket]
    syslog[:facility[.severity]][@/socket|@address:port]

Facilities and severities have the names of squid's `syslog:` and of syslog.conf(5).
`config` refuses with this module every text that `log.sinks` cannot interpret.
"""

import ipaddress
import re
from typing import NamedTuple

from cutthrough.config.mistake import nearest
from cutthrough.config.values import parse_text

JOURNAL = "/run/systemd/journal/socket"
DEV_LOG = "/dev/log"

# The numbers of RFC 5424 section 6.2.1, by the names of syslog.conf(5)
FACILITIES = {
    "user": 1, "mail": 2, "daemon": 3, "auth": 4, "syslog": 5, "lpr": 6, "news": 7,
    "uucp": 8, "cron": 9, "authpriv": 10, "ftp": 11,
    **{f"local{n}": 16 + n for n in range(8)}}
SEVERITIES = {"emerg": 0, "alert": 1, "crit": 2, "err": 3, "warning": 4, "notice": 5,
              "info": 6, "debug": 7}

# Words of other programs, which would otherwise be names of files
MEANT = {"stdout": "-", "stderr": "/dev/stderr", "none": "off", "no": "off",
         "false": "off"}

# Beyond doubt the name of a file, in the working directory
_PLAIN = re.compile(r"[\w-]+\.(log|json|jsonl|csv|ltsv|txt)")

# squid's modules, before a path and before a server's address
_MODULE = re.compile(r"(stdio|daemon):")
_SERVER = re.compile(r"(udp|tcp)://([^/]*)")

_SYSLOG = re.compile(r"syslog(?::(?P<facility>[^.@]*)(?:\.(?P<severity>[^@]*))?)?"
                     r"(?:@(?P<address>.*))?")


class Target(NamedTuple):
    kind: str                                # file, stdout, off, syslog, journal
    path: str = ""                           # of a file or a unix socket
    host: str = ""                           # of a syslog server, an address
    port: int = 0
    facility: int = 3
    severity: int = 6


def read_target(text: str) -> Target:
    """Raises ValueError with the reason."""
    if text in ("-", "off"):
        return Target("stdout" if text == "-" else "off")
    if text == "journal" or text.startswith("journal:"):
        path = text[len("journal:"):] or JOURNAL
        return Target("journal", _check_path(text, path))
    match = _SYSLOG.fullmatch(text)
    if match is None:
        if _PLAIN.fullmatch(text):
            return Target("file", f"./{text}")
        if "/" not in text:
            raise ValueError(_explain(text))
        server = _SERVER.match(text)
        if server is not None:
            raise ValueError(f"{text!r}: the only servers are syslog's, over UDP; did "
                             f"you mean syslog@{server[2]}?")
        module = _MODULE.match(text)
        if module is not None:
            raise ValueError(f"{text!r}: a path is given without {module[0]}; did you "
                             f"mean {text[module.end():]}?")
        return Target("file", text)
    facility = _find(FACILITIES, "facility", match["facility"], "daemon")
    severity = _find(SEVERITIES, "severity", match["severity"], "info")
    address = match["address"]
    if address is None or address.startswith("/"):
        return Target("syslog", _check_path(text, address or DEV_LOG),
                      facility=facility, severity=severity)
    host, _, port = address.rpartition(":")
    try:
        known = str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
        if (":" in known) != host.startswith("[") or not 0 < int(port) < 65536:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r}: expected @/path of a socket or @address:port, "
                         "and no name") from None
    return Target("syslog", "", known, int(port), facility, severity)


def _explain(text: str) -> str:
    words = ("-", "off", "journal", "syslog")
    said = text.lower()
    near = MEANT.get(said) or next(filter(said.startswith, words), "") or (
        nearest(said, words, 0.7))
    hint = f"; did you mean {near}?" if near else f"; for a file here give ./{text}"
    return (f"{text!r} is not one of {', '.join(words)}, nor a path, which contains a /"
            f"{hint if text else ''}")


def _find(known: dict[str, int], what: str, said: str | None, default: str) -> int:
    if said is None:
        return known[default]
    if said not in known:
        near = nearest(said, known)
        hint = f"; did you mean {near}?" if near else f"; known: {', '.join(known)}"
        raise ValueError(f"{said!r} is not a {what} of syslog{hint}")
    return known[said]


def _check_path(text: str, path: str) -> str:
    # struct sockaddr_un: 108 bytes with the NUL
    if not path.startswith("/") or len(path.encode()) > 107:
        raise ValueError(f"{text!r}: expected the path of a unix socket")
    return path


def parse_log_target(text: str) -> str:
    """Validates the option; returns it unchanged."""
    read_target(parse_text(text))
    return text
