"""A row of `[origins.NAME]`: servers that get requests in origin form.

A rule of the policy names an origin, or the option `origin` does. docs/origins.md.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from cutthrough.config.mistake import raise_all
from cutthrough.config.option import ConfigError, Option, defaults_of
from cutthrough.config.parents import (
    DIRECT,
    MOST_MEMBERS,
    Group,
    Parent,
    parse_server_name,
    parse_target,
)
from cutthrough.config.values import (
    COUNT,
    DURATION,
    DURATION_OR_0,
    FILE,
    FLAG,
    NETWORKS,
    Kind,
    choice,
    parse_origin,
)

_URL = re.compile(r"(https?)://([^/?#@]*)(/?)", re.I)
_ROW_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PATH = re.compile(r"/[!-~]*")
_STATUSES = re.compile(r"([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?")
_PORTS = {"http": 80, "https": 443}
KEPT, OF_URL = "keep", "url"
# A check that asks for nothing
TCP = "tcp"
# Of the files of its TLS, and of a list that is compared with them
TLS_KEYS = ("ca", "server_name", "certificate", "certificate_key")
CHECK_KEYS = ("check_interval", "check_status", "check_failures", "check_successes")


def parse_url(text: str) -> str:
    """Reads a server's URL; returns it with its port, without a slash at its end."""
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not http://host[:port] or https://host[:port], "
                         "without a path")
    scheme, authority = match[1].lower(), match[2]
    if not re.search(r":[0-9]*\Z", authority) or authority.endswith("]"):
        authority += f":{_PORTS[scheme]}"
    return f"{scheme}://{parse_target(authority)}"


def parse_origin_or_name(text: str) -> str:
    """Reads `http://host[:port]`, or the name of a row."""
    return text if _ROW_NAME.fullmatch(text) else parse_origin(text)


def parse_sent_host(text: str) -> str:
    """Reads `keep`, `url`, or a host with or without a port."""
    if text in (KEPT, OF_URL):
        return text
    if re.search(r":[0-9]+\Z", text) and not text.endswith("]"):
        return parse_target(text)
    return parse_target(f"{text}:1").removesuffix(":1")


def parse_check_path(text: str) -> str:
    if text not in ("", TCP) and _PATH.fullmatch(text) is None:
        raise ValueError(f"{text!r} is neither a path such as /healthz, nor {TCP}")
    return text


def parse_statuses(text: str) -> str:
    """Reads `204`, or `200-399`."""
    match = _STATUSES.fullmatch(text)
    if match is None or int(match[1]) > int(match[2] or match[1]):
        raise ValueError(f"{text!r} is neither a status such as 204, nor a range such "
                         "as 200-399")
    return text


class Server(Parent, frozen=True, kw_only=True):
    """One server of an origin, as parents are made, checked and shown."""

    table: ClassVar[str] = "origins"
    origin: str = ""                         # the row's name
    host: str = ""                           # in Host; "": the client's stays
    check_status: tuple[str, ...] = ()
    check_failures: int = 1
    check_successes: int = 1

    @property
    def row(self) -> str:
        return self.origin

    @property
    def statuses(self) -> tuple[tuple[int, int], ...]:
        """The statuses of a passed check, as ranges with both ends."""
        ends = (text.partition("-") for text in self.check_status)
        return tuple((int(low), int(high or low)) for low, _, high in ends)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """One origin; valid once it exists."""

    name: str
    urls: Annotated[tuple[str, ...], Option(
        Kind("URL", parse_url, many=True), "its servers, `http://host[:port]` or "
        "`https://host[:port]`", "none: required", swapped=True)]
    choose: Annotated[
        Literal["failover", "round_robin", "least_connections", "fastest", "hash_user",
                "hash_client", "hash_destination"], Option(
        choice("failover", "round_robin", "least_connections", "fastest", "hash_user",
               "hash_client", "hash_destination"), "which server a request gets, of "
        "those that work. hash: the same one for the same user, client address or Host",
        "nginx's and HAProxy's", swapped=True)] = "round_robin"
    weights: Annotated[tuple[int, ...], Option(
        COUNT._replace(low=1, high=1000, many=True), "one for each URL",
        "none: all are equal", swapped=True)] = ()
    tolerance: Annotated[float, Option(
        DURATION_OR_0, "for fastest: servers that are slower than the fastest by no "
        "more take turns with it", "as of groups", swapped=True)] = 0.01
    host: Annotated[str, Option(
        Kind("keep|url|HOST", parse_sent_host), "what a server gets as Host. keep: "
        "what the client sent; url: host and port of its URL; or this one",
        "keep: the server may make links of it", swapped=True)] = KEPT
    forwarded: Annotated[Literal["keep", "remove", "x", "rfc7239", "both"], Option(
        choice("keep", "remove", "x", "rfc7239", "both"), "the fields about the "
        "client: X-Forwarded-…, X-Real-IP and Forwarded. keep: as the client sent "
        "them. remove: none. x, rfc7239, both: ours in their place, X-Forwarded-For, "
        "-Host, -Proto and -Port, or Forwarded",
        "keep: no server is told who a client is", swapped=True)] = "keep"
    forwarded_from: Annotated[tuple[str, ...], Option(
        NETWORKS, "networks of proxies whose own such fields are believed: ours are "
        "added to theirs", "none: a client can name any address (R40)", swapped=True)
        ] = ()
    ca: Annotated[str, Option(
        FILE, "of https://: file in PEM with the authorities of the servers' "
        "certificates", "the system's", swapped=True)] = ""
    server_name: Annotated[str, Option(
        Kind("HOST", parse_server_name), "of https://: name or address that the "
        "servers' certificates must have", "the host of each URL", swapped=True)] = ""
    certificate: Annotated[str, Option(
        FILE, "of https://: file in PEM with our certificate and its chain, for "
        "servers that want one", "none", swapped=True)] = ""
    certificate_key: Annotated[str, Option(
        FILE, "file with its private key, readable by its owner alone",
        "the key is in the certificate's file", swapped=True)] = ""
    proxy_protocol: Annotated[Literal["off", "v1", "v2"], Option(
        choice("off", "v1", "v2"), "send a PROXY header that names the client, first "
        "on each connection, which serves one request then", "off: the servers must "
        "expect it (R50)", swapped=True)] = "off"
    reuse: Annotated[bool, Option(
        FLAG, "a connection serves further requests; false: one request each",
        "a new connection costs a request a round trip", swapped=True)] = True
    check: Annotated[str, Option(
        Kind("PATH|tcp", parse_check_path), "a path that each server must answer, "
        "every check_interval; tcp: a connection, with its TLS handshake, is enough. "
        "While the check fails, the server is passed over",
        "none: a server is judged by its requests alone", swapped=True)] = ""
    check_status: Annotated[tuple[str, ...], Option(
        Kind("STATUS", parse_statuses, many=True), "the statuses of a good answer to "
        "the check, such as `204` or `200-399`", "any success, and any redirect",
        swapped=True)] = ("200-399",)
    check_failures: Annotated[int, Option(
        COUNT._replace(low=1, high=100), "checks that must fail in a row until a "
        "server is passed over", "the first one counts", swapped=True)] = 1
    check_successes: Annotated[int, Option(
        COUNT._replace(low=1, high=100), "checks that must succeed in a row until it "
        "gets requests again", "the first one counts", swapped=True)] = 1
    check_interval: Annotated[float, Option(
        DURATION, "time between two checks, by one of the workers, and up to a tenth "
        "more or less", "our choice", swapped=True)] = 10.0

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        if not self.urls:
            yield ConfigError("", "urls", "is empty")
        if len(self.urls) > MOST_MEMBERS:
            yield ConfigError("", "urls", f"has more than {MOST_MEMBERS} servers")
        if len({_authority(url) for url in self.urls}) < len(self.urls):
            yield ConfigError("", "urls", "names a server twice: give it a weight")
        if self.weights and len(self.weights) != len(self.urls):
            yield ConfigError("", "weights", f"has {len(self.weights)} numbers for "
                              f"{len(self.urls)} urls")
        if self.weights and self.choose in ("failover", "fastest"):
            yield ConfigError("", "weights", f"has no effect with {self.choose}")
        for key in TLS_KEYS:
            if getattr(self, key) and not any(
                    url.startswith("https:") for url in self.urls):
                yield ConfigError("", key, "is for https:// servers")
        if self.certificate_key and not self.certificate:
            yield ConfigError("", "certificate_key", "has no effect without "
                              "certificate")
        if self.forwarded_from and self.forwarded in ("keep", "remove"):
            yield ConfigError("", "forwarded_from", "has no effect with forwarded = "
                              f"\"{self.forwarded}\"")
        for key in CHECK_KEYS:
            if getattr(self, key) != DEFAULTS[key] and not self.check:
                yield ConfigError("", key, "has no effect without check")
        if self.check == TCP and self.check_status != DEFAULTS["check_status"]:
            yield ConfigError("", "check_status", "has no effect with check = \"tcp\"")
        if not self.check_status:
            yield ConfigError("", "check_status", "is empty")

    @property
    def servers(self) -> tuple[Server, ...]:
        """One for each URL, in their order."""
        return tuple(self._server(url) for url in self.urls)

    def _server(self, url: str) -> Server:
        authority = _authority(url)
        tls: dict[str, Any] = {key: getattr(self, key) for key in TLS_KEYS} if (
            url.startswith("https:")) else {}
        return Server(
            name=f"{self.name}/{authority}", url=url, origin=self.name,
            host={KEPT: "", OF_URL: _shown(url)}.get(self.host, self.host),
            check=self.check, proxy_protocol=self.proxy_protocol,
            **{key: getattr(self, key) for key in CHECK_KEYS}, **tls)


DEFAULTS = defaults_of(Origin)


def _authority(url: str) -> str:
    return url.partition("://")[2]


def _shown(url: str) -> str:
    """Host and port as a client of the server would send them."""
    scheme, _, authority = url.partition("://")
    return authority.removesuffix(f":{_PORTS[scheme]}")


def check_host(server: Server) -> str:
    """Returns the Host of a check's request."""
    return server.host or _shown(server.url)


def contradictions_of_origins(
        origins: Sequence[Origin], origin: str, parents: Sequence[Parent],
        groups: Sequence[Group]) -> Iterator[ConfigError]:
    others = {DIRECT, *(row.name for row in parents), *(row.name for row in groups)}
    for row in origins:
        if row.name in others:
            yield ConfigError("", "origins", "is also the name of a parent or a group",
                              path=(row.name,))
    is_url = "://" in origin
    if origin and not is_url and origin not in {row.name for row in origins}:
        yield ConfigError("", "origin", f"no origin is named {origin!r}: give "
                          f"[origins.{origin}], or http://host:port")
    if is_url and origins:
        yield ConfigError("", "origin", "is a URL beside [origins]: make it one of "
                          "them, and give its name")
