"""The arguments of an activity tracker's functions."""

import msgspec


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A client's connection. `number` counts the connections of one worker process."""

    number: int
    worker: int
    client: str                         # address, without port
    client_port: int
    intercepted: bool = False           # the TLS is that inside its tunnel
    tls_version: str | None = None      # "1.3"; None: no TLS, or not yet
    cipher: str | None = None


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its response, or a tunnel, as far as it is known at the event.

    Names and values are those of the access log, where it has them.
    """

    id: str
    connection: int                     # its Connection's number; 0: taken over
    client: str
    client_port: int
    method: str | None = None
    host: str | None = None             # canonical
    port: int | None = None
    user: str | None = None             # None: none, or not yet known
    kind: str = "request"               # or tunnel
    intercepted: bool = False
    parent: str | None = None           # or a named origin's server
    peer: str | None = None             # the origin's address, without port
    peer_port: int | None = None
    reused: bool = False                # the connection to the origin is a kept one
    connect_ms: float | None = None     # None: not connected, or a kept connection
    peer_tls_version: str | None = None
    peer_cipher: str | None = None
    status: int | None = None           # sent to the client
    bytes_up: int = 0
    bytes_down: int = 0
    reason: str | None = None           # of the end; None: it goes on
