"""Rows of `[parents.NAME]` and `[groups.NAME]`: the ways out through other proxies."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from cutthrough.config.mistake import raise_all
from cutthrough.config.option import ConfigError, Option, defaults_of
from cutthrough.config.values import (
    COUNT,
    DURATION,
    DURATION_OR_0,
    FILE,
    FLAG,
    TEXT,
    Kind,
    choice,
    parse_host,
    parse_row_name,
    show_address,
    split_address,
)

DIRECT = "direct"
# As in policy.parents: a request remembers the members it tried in 64 bits
MOST_MEMBERS = 64
MOST_CHAIN = 8
# Of all parents together: half of the descriptors that process.descriptors keeps from
# clients
MOST_STANDBY = 128
# RFC 1929 section 2
MOST_SOCKS_NAME = 255

_URL = re.compile(r"(https?|socks5|socks4a)://([^/?#@]*)(/?)")


def parse_target(text: str) -> str:
    """Reads `host:port` of any host; returns it in the form that is compared."""
    host, port = split_address(text)
    if not 1 <= port <= 65535:
        raise ValueError(f"{text!r}: a port is between 1 and 65535")
    return show_address((host if ":" in host else parse_host(host), port))


def parse_parent(text: str) -> str:
    """Reads a parent's URL; returns it without a slash at its end."""
    if "@" in text:
        raise ValueError("takes no credentials: give credentials_file")
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not http://host:port, https://host:port, "
                         "socks5://host:port or socks4a://host:port")
    return f"{match[1]}://{parse_target(match[2])}"


def parse_server_name(text: str) -> str:
    return text if ":" in text else parse_host(text)


def parse_name(text: str) -> str:
    return parse_row_name(text) if text else text


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """One parent; valid once it exists."""

    table: ClassVar[str] = "parents"
    name: str
    url: Annotated[str, Option(
        Kind("URL", parse_parent), "`http://host:port`, `https://host:port`, "
        "`socks5://host:port` or `socks4a://host:port`", "none: required",
        swapped=True)]
    credentials: Annotated[str, Option(
        TEXT, "name and password for the parent", "none",
        file="credentials_file", swapped=True)] = ""
    credentials_file: Annotated[str, Option(
        FILE, "file with `name:password` on one line", "none", swapped=True)] = ""
    pass_credentials: Annotated[bool, Option(
        FLAG, "the parent gets the client's own Proxy-Authorization, if it has sent "
        "one", "false: another proxy is none of the client's (R45)", swapped=True)
        ] = False
    resolve: Annotated[Literal["here", "parent"], Option(
        choice("here", "parent"), "where names are resolved. here: the parent gets the "
        "address that was checked. parent: it gets the name, and rules and the floor "
        "cannot judge its addresses", "R43", swapped=True)] = "here"
    plain: Annotated[Literal["connect", "absolute"], Option(
        choice("connect", "absolute"), "how plain requests go: through CONNECT, or "
        "themselves in absolute form, for a parent that filters or caches; absolute "
        "needs `resolve = \"parent\"`", "one way for all requests", swapped=True)
        ] = "connect"
    proxy_protocol: Annotated[Literal["off", "v1", "v2"], Option(
        choice("off", "v1", "v2"), "send a PROXY header that names the client, first "
        "on each connection", "off: the parent must expect it (R50)", swapped=True)
        ] = "off"
    by_source: Annotated[bool, Option(
        FLAG, "connections to the parent come from the source of the rule, or of the "
        "user: docs/sources.md", "false: a source is of direct connections",
        swapped=True)] = False
    ca: Annotated[str, Option(
        FILE, "of https://: file in PEM with the authorities of the parent's "
        "certificate", "the system's", swapped=True)] = ""
    server_name: Annotated[str, Option(
        Kind("HOST", parse_server_name), "of https://: name or address that the "
        "parent's certificate must have", "the host of `url`", swapped=True)] = ""
    certificate: Annotated[str, Option(
        FILE, "of https://: file in PEM with our certificate and its chain, for a "
        "parent that wants one", "none", swapped=True)] = ""
    certificate_key: Annotated[str, Option(
        FILE, "file with its private key, readable by its owner alone",
        "the key is in the certificate's file", swapped=True)] = ""
    check: Annotated[str, Option(
        Kind("HOST:PORT", parse_target), "a destination that the parent must connect "
        "to, every check_interval; it gets the name as it stands. While it does not "
        "connect, the parent is passed over", "none: a parent is judged by its "
        "requests alone", swapped=True)] = ""
    check_tls: Annotated[bool, Option(
        FLAG, "the check makes a TLS handshake with the destination, whose certificate "
        "must be valid for its name, by the system's authorities", "false: to connect "
        "is enough", swapped=True)] = False
    check_interval: Annotated[float, Option(
        DURATION, "time between two checks, by one of the workers, and up to a tenth "
        "more or less", "our choice", swapped=True)] = 10.0
    standby: Annotated[int, Option(
        COUNT._replace(high=64), "connections to the parent, TLS included, that each "
        "worker keeps ready for the next CONNECT, each for upstream_idle_timeout",
        "none, as squid's", swapped=True)] = 0
    via: Annotated[str, Option(
        Kind("NAME", parse_name), "the parent through which this one is reached",
        "none: directly", swapped=True)] = ""

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        if self.name == DIRECT:
            yield ConfigError("", "url", "a parent cannot be named direct, which "
                              "stands for the way without one")
        if self.credentials_file and self.credentials != "-":
            name, colon, password = self.credentials.partition(":")
            if not name or not colon:
                yield ConfigError("", "credentials_file", "the file's line is not "
                                  "name:password")
            elif self.scheme == "socks5" and max(
                    len(name.encode()), len(password.encode())) > MOST_SOCKS_NAME:
                yield ConfigError("", "credentials_file", "SOCKS5 has room for "
                                  f"{MOST_SOCKS_NAME} bytes of name and password each")
            elif self.scheme == "socks4a" and password:
                yield ConfigError("", "credentials_file", "SOCKS4 has no passwords: "
                                  "give the name and a colon alone")
        if self.pass_credentials and not self.is_http:
            yield ConfigError("", "pass_credentials", "is for http:// and https:// "
                              "parents")
        for key in ("ca", "server_name", "certificate", "certificate_key"):
            if getattr(self, key) and self.scheme != "https":
                yield ConfigError("", key, "is for https:// parents")
        if self.check_interval != DEFAULTS["check_interval"] and not self.check:
            yield ConfigError("", "check_interval", "has no effect without check")
        if self.check_tls and not self.check:
            yield ConfigError("", "check_tls", "has no effect without check")
        if self.certificate_key and not self.certificate:
            yield ConfigError("", "certificate_key", "has no effect without "
                              "certificate")
        if self.standby and self.via:
            yield ConfigError("", "standby", "is for parents that are reached "
                              "directly: give it to the first one of the chain")
        if self.by_source and self.via:
            yield ConfigError("", "by_source", "is for parents that are reached "
                              "directly: give it to the first one of the chain")
        if self.standby and self.by_source:
            yield ConfigError("", "standby", "with by_source the address of each "
                              "connection depends on its request")
        if self.standby and self.proxy_protocol != "off":
            yield ConfigError("", "standby", "with proxy_protocol the first bytes of "
                              "each connection name its client, who is not known yet")
        if self.plain == "absolute" and not self.is_http:
            yield ConfigError("", "plain", "absolute is for http:// and https:// "
                              "parents")
        elif self.plain == "absolute" and self.resolve == "here":
            yield ConfigError("", "plain", "a request in absolute form has the name, "
                              "which the parent resolves: give resolve = \"parent\"")

    @property
    def row(self) -> str:
        """The name of the row that its keys stand in."""
        return self.name

    @property
    def check_name(self) -> str:
        """The name or address in the certificate of `check`; "": it needs none."""
        return split_address(self.check)[0] if self.check_tls else ""

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def is_http(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def expected_name(self) -> str:
        """The name or address in its certificate."""
        return self.server_name or split_address(self.authority)[0]

    @property
    def tls_files(self) -> tuple[str, ...]:
        """Every file that its TLS needs."""
        return tuple(path for path in (
            self.ca, self.certificate, self.certificate_key) if path)

    @property
    def authority(self) -> str:
        return self.url.partition("://")[2]

    @property
    def user(self) -> str:
        return self.credentials.partition(":")[0]

    @property
    def password(self) -> str:
        return self.credentials.partition(":")[2]

    @property
    def identity(self) -> tuple[Any, ...]:
        """All that makes a connection through it what it is, except `via`."""
        return (self.name, self.url, self.credentials, self.pass_credentials,
                self.resolve, self.plain, self.proxy_protocol, self.server_name)


DEFAULTS = defaults_of(Parent)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group of parents; valid once it exists."""

    name: str
    parents: Annotated[tuple[str, ...], Option(
        Kind("NAME", parse_row_name, many=True), "the members, by name; `direct` "
        "stands for the way without a parent", "none: required; without `direct` "
        "nothing goes directly (R44)", swapped=True)]
    choose: Annotated[
        Literal["failover", "round_robin", "least_connections", "fastest", "hash_user",
                "hash_client", "hash_destination"], Option(
        choice("failover", "round_robin", "least_connections", "fastest", "hash_user",
               "hash_client", "hash_destination"), "which member a request takes, of "
        "those that work. failover: the first. hash: the same one for the same user, "
        "client address or destination", "failover: the order says it all",
        swapped=True)] = "failover"
    weights: Annotated[tuple[int, ...], Option(
        COUNT._replace(low=1, high=1000, many=True), "one for each member",
        "none: all are equal", swapped=True)] = ()
    tolerance: Annotated[float, Option(
        DURATION_OR_0, "for fastest: members that are slower than the fastest by no "
        "more take turns with it", "our choice: less is noise", swapped=True)] = 0.01

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        if self.name == DIRECT:
            yield ConfigError("", "parents", "a group cannot be named direct")
        if not self.parents:
            yield ConfigError("", "parents", "is empty")
        if len(self.parents) > MOST_MEMBERS:
            yield ConfigError("", "parents", f"has more than {MOST_MEMBERS} members")
        if len(set(self.parents)) < len(self.parents):
            yield ConfigError("", "parents", "names a parent twice")
        if self.weights and len(self.weights) != len(self.parents):
            yield ConfigError("", "weights", f"has {len(self.weights)} numbers for "
                              f"{len(self.parents)} parents")
        if self.weights and self.choose in ("failover", "fastest"):
            yield ConfigError("", "weights", f"has no effect with {self.choose}")
        if DIRECT in self.parents and self.choose in ("least_connections", "fastest"):
            yield ConfigError("", "parents", "direct has neither connections nor a "
                              f"time of its own, which {self.choose} compares")


def contradictions(parents: Sequence[Parent], groups: Sequence[Group],
                   route: str) -> Iterator[ConfigError]:
    by_name = {parent.name: parent for parent in parents}
    for parent in parents:
        if parent.via and parent.via not in by_name:
            yield ConfigError("", "parents", f"no parent is named {parent.via!r}",
                              path=(parent.name, "via"))
            continue
        depth, before, over_tls = 1, parent, [parent.scheme == "https"]
        while before.via in by_name and depth <= MOST_CHAIN:
            before, depth = by_name[before.via], depth + 1
            over_tls.append(before.scheme == "https")
        if depth > MOST_CHAIN:
            yield ConfigError("", "parents", "is a circle, or has more than "
                              f"{MOST_CHAIN} parents", path=(parent.name, "via"))
        elif over_tls[0] and sum(over_tls) > 1:
            yield ConfigError("", "parents", "leads through another https:// parent: "
                              "there is no TLS inside TLS", path=(parent.name, "via"))
        elif parent.check_tls and any(over_tls):
            yield ConfigError("", "parents", "is for ways without an https:// parent: "
                              "there is no TLS inside TLS",
                              path=(parent.name, "check_tls"))
        elif parent.via and parent.proxy_protocol != "off":
            yield ConfigError("", "parents", "behind another parent the header would "
                              "not be the first bytes of its connection",
                              path=(parent.name, "proxy_protocol"))
    if sum(parent.standby for parent in parents) > MOST_STANDBY:
        yield ConfigError("", "parents", "have more than "
                          f"{MOST_STANDBY} connections of standby in all")
    for group in groups:
        if group.name in by_name:
            yield ConfigError("", "groups", "is also a parent's name",
                              path=(group.name,))
        for name in group.parents:
            if name not in by_name and name != DIRECT:
                yield ConfigError("", "groups", f"no parent is named {name!r}",
                                  path=(group.name, "parents"))
    known = {*by_name, *(group.name for group in groups), DIRECT}
    if route and route not in known:
        yield ConfigError("", "route", f"no parent or group is named {route!r}")
