#!/opt/cutthrough/bin/python
"""Asks the admin listener's /healthz: exit status 0 where it answers 200, else 1.

For a container's HEALTHCHECK, where there is no curl. CUTTHROUGH_ADMIN names the
listener, as `host:port` or `unix:/path`; the first argument goes before it.
"""

import http.client
import os
import socket
import sys

PATIENCE_S = 2.0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self.path)


def connection_to(where: str) -> http.client.HTTPConnection:
    if where.startswith("unix:"):
        return UnixConnection(where.removeprefix("unix:"))
    host, _, port = where.rpartition(":")
    host = host.strip("[]")
    # What listens everywhere is asked on loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)


def main() -> int:
    where = (sys.argv[1:] or [os.environ.get("CUTTHROUGH_ADMIN", "off")])[0]
    try:
        connection = connection_to(where)
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{where}: {error}", file=sys.stderr)
        return 1
    print(f"{where}: {status}", file=sys.stderr)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
