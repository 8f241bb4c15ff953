"""Formats of the access log, and their fields."""

import re

FIELDS = {
    "time",
    "id",
    "client",
    "user",
    "kind",
    "method",
    "host",
    "port",
    "url",
    "status",
    "reason",
    "peer",
    "bytes_up",
    "bytes_down",
    "head_ms",
    "auth_ms",
    "dns_ms",
    "connect_ms",
    "first_byte_ms",
    "total_ms",
    "path",
    "worker",
}

SQUID = re.compile(
    r"^(?P<time>\d+\.\d{3}) +(?P<elapsed>\d+) (?P<client>\S+) (?P<tag>[A-Z_]+)"
    r"/(?P<status>\d{3}) (?P<bytes>\d+) (?P<method>\S+) (?P<url>\S+) (?P<user>\S+)"
    r" (?P<hier>HIER_(?:DIRECT|NONE))/(?P<peer>\S+) (?P<type>\S+)$"
)
