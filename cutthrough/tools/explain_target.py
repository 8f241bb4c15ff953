"""The target of a request that an operator describes, read as a worker reads it."""

import re
from typing import Any

from cutthrough.config.config import ConfigError
from cutthrough.tools.dry_run import printable
from cutthrough.wire.target import read_request_target


def read_target(method: str, target: str, host: str = "") -> tuple[str, int] | str:
    """Host and port, parsed like a request's, or a refusal's label. `host`: the field
    Host, of a path. Raises ConfigError if the target has no host."""
    parts = _parse_target(method, target, host)
    if isinstance(parts, str):
        return parts
    if parts["form"] not in ("absolute", "authority") and not (
            host and parts["form"] == "origin"):
        raise ConfigError("", "TARGET", f"{printable(target)!r} is neither host:port "
                          "for CONNECT nor a URL" + (
                              "; a path needs --host" if target[:1] == "/" else ""))
    return parts["host"], parts["port"]


def is_origin_form(method: str, target: str) -> bool:
    return method != "CONNECT" and target[:1] == "/"


def read_path(method: str, target: str) -> bytes | None:
    """Path and query of a valid target, as they go up; None: a tunnel has none."""
    parts = _parse_target(method, target)
    if isinstance(parts, str) or parts["form"] == "authority":
        return None
    path: bytes = parts["path"]
    if not path and method == "OPTIONS":
        return b"*"
    return path if path[:1] == b"/" else b"/" + path


def is_https(method: str, target: str) -> bool:
    """Whether the request goes by a tunnel of its own."""
    return method != "CONNECT" and target[:8].lower() == "https://"


def _parse_target(method: str, target: str, named: str = "") -> dict[str, Any] | str:
    if is_https(method, target):            # which no proxy is sent
        authority = re.split(r"[/?#]", target[8:], maxsplit=1)[0]
        port = "" if re.search(r":\d*$", authority) else ":443"
        target = f"http://{authority}{port}{target[8 + len(authority):]}"
    host = target if method == "CONNECT" else named or "localhost"
    head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    try:
        return read_request_target(head)
    except ValueError:
        return "bad_request"


def remark(method: str, target: str) -> str:
    """The mistake in a target that could not be read; "" if it is not one about the
    host:port of CONNECT."""
    if method != "CONNECT":
        return ""
    if "://" in target:
        return "CONNECT takes host:port, without scheme and path"
    for host in (f"[{target}]", target):     # an IPv6 address without brackets
        if not isinstance(read_target(method, f"{host}:443"), str):
            return f"the port is missing: CONNECT {host}:443"
    return ""
