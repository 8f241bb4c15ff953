"""The options of `cutthrough.serve`, for type checkers.

Made by `make docs` from cutthrough/config/config.py; change it there.
docs/config.md says what each of them means. Left out are those that only the program
has; `policy` and `policy_hook` are parameters of their own, because they take objects.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypedDict


class Options(TypedDict, total=False):
    listen: str | Sequence[str | tuple[str, int]]
    user: str
    password: str
    password_file: str | PathLike[str]
    users_file: str | PathLike[str]
    auth_cache_ttl: float | str
    auth_threads: int | str
    auth_queue: int | str
    auth_backoff: float | str
    origin: str
    via: str
    access_log: str
    access_log_format: str
    error_log_format: Literal["text", "logfmt", "json"]
    flight_recorder: int | str
    head_timeout: float | str
    body_timeout: float | str
    auth_timeout: float | str
    dns_timeout: float | str
    connect_timeout: float | str
    response_timeout: float | str
    idle_timeout: float | str
    half_closed_timeout: float | str
    keepalive_timeout: float | str
    linger_timeout: float | str
    min_rate: int | str
    min_rate_grace: float | str
    lifetime: float | str
    upstream_idle_timeout: float | str
    drain_timeout: float | str
    handover: bool | str
    max_line: int | str
    max_head: int | str
    max_fields: int | str
    max_response_head: int | str
    max_body: int | str
    max_connections: int | str
    max_connections_total: int | str
    max_connections_per_client: int | str
    upstream_idle: int | str
    upstream_idle_per_origin: int | str
    resolvers: str | Sequence[str]
    dns_cache_entries: int | str
    dns_stale: float | str
    dns_overrides: str | Sequence[str | tuple[str, str]]
    policy_hook_timeout: float | str
    address_floor: Literal["auto", "on", "off"]
    connect_ports: str | Sequence[int | str]
    splice: bool | str
