"""A row of `[[listeners]]`: one address to listen on, with its protocols and settings.

`listen` and `proxy_protocol` are the short form; `Config.all_listeners` has both.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from cutthrough.config.mistake import raise_all
from cutthrough.config.option import ConfigError, Option, RowPath, defaults_of
from cutthrough.config.parents import parse_target
from cutthrough.config.user_names import parse_user
from cutthrough.config.values import (
    ADDRESS,
    COUNT,
    DESTINATIONS,
    FILE,
    FILES,
    FLAG,
    MODE,
    MOST_ITEMS,
    NETWORKS,
    OWNER,
    TEXT,
    Kind,
    choice,
    is_loopback,
    show_address,
    show_count,
    split_address,
)

Address = tuple[str, int]


def parse_protocol(text: str) -> str:
    if text not in ("http", "http2", "socks5", "socks4", "tls"):
        raise ValueError(f"{text!r} is not one of http, http2, socks5, socks4, tls")
    return text


def parse_by_name(text: str) -> tuple[str, str]:
    """Reads `name=FILE`, the name in the form of certificates."""
    name, _, path = text.partition("=")
    name = name.strip().lower()
    if not path or SERVER_NAME.fullmatch(name) is None:
        raise ValueError(f"{text!r} is not name=FILE, the name in ASCII")
    return name, path.strip()


# As a certificate has it: a name, or *. and a name
SERVER_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
BY_NAME = Kind("NAME=FILE", parse_by_name, "=".join, many=True,
               typed="str | tuple[str, str]")
PROTOCOLS = Kind("http|http2|socks5|socks4|tls", parse_protocol, many=True)


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one listener; valid once it exists."""

    address: Annotated[Address, Option(
        ADDRESS, "address to listen on; port 0 selects a free port; unix:/path: a "
        "socket in the file system", "none: required")]
    mode: Annotated[int, Option(
        MODE, "of unix:/path: the file's permissions; to call, a program must be "
        "allowed to write it", "its owner and its group, as of the admin listener")
        ] = 0o660
    owner: Annotated[str, Option(
        OWNER, "of unix:/path: the file's owner, group or both, by name or number",
        "none: the program's own")] = ""
    proxy_protocol: Annotated[bool, Option(
        FLAG, "for load balancers only: each connection must begin with a PROXY "
        "header, which names the client; docs/load-balancers.md",
        "a listener requires the header or refuses it, it never guesses (R50)")
        ] = False
    proxy_protocol_from: Annotated[tuple[str, ...], Option(
        NETWORKS, "with proxy_protocol: its load balancers, instead of those of the "
        "option of this name; refuses all other callers",
        "none: the option's")] = ()
    forwarded_from: Annotated[tuple[str, ...], Option(
        NETWORKS, "networks of proxies whose X-Forwarded-For names the client of each "
        "request, for rules, limits and logs: docs/load-balancers.md",
        "none: a client can write any address (R40)")] = ()
    pac: Annotated[bool, Option(
        FLAG, "serves /proxy.pac and /wpad.dat, the auto-configuration of browsers, "
        "to everybody: docs/listeners.md", "off: it reveals what the policy names",
        swapped=True)] = False
    pac_direct: Annotated[tuple[str, ...], Option(
        DESTINATIONS, "destinations that clients are to reach without the proxy, in "
        "that file", "none", swapped=True)] = ()
    pac_hosts: Annotated[tuple[str, ...], Option(
        Kind("HOST:PORT", parse_target, many=True), "proxies of a fleet, in that file "
        "in place of this one: a client gets them in an order by a hash of its "
        "address, and its browser takes the first that answers: docs/listeners.md",
        "none: the address under which the browser has reached this one",
        swapped=True)] = ()
    pac_protocol: Annotated[Literal["http", "socks5"], Option(
        choice("http", "socks5"), "what browsers are to speak with the proxy, in that "
        "file; http is HTTPS if the listener has certificates",
        "by SOCKS browsers send no credentials", swapped=True)] = "http"
    protocols: Annotated[tuple[str, ...], Option(
        PROTOCOLS, "what is spoken there; if there are several, the first byte of a "
        "connection decides: docs/socks.md; tls: the others inside TLS too, where "
        "certificates alone have them inside TLS only; http2: for clients that choose "
        "it in their handshake: docs/http2.md", "what `listen` speaks")
        ] = ("http",)
    udp: Annotated[bool, Option(
        FLAG, "with socks5: UDP ASSOCIATE, for which clients must reach UDP ports of "
        "this address; docs/socks.md", "it opens ports that a firewall may not expect")
        ] = False
    auth: Annotated[str, Option(
        choice("required", "none"), "none: a request without credentials is one of "
        "nobody, whom no rule with a user or group matches; wrong credentials are "
        "refused all the same", "R21")] = "required"
    auth_none_from: Annotated[tuple[str, ...], Option(
        NETWORKS, "with auth = \"none\": clients of these networks only",
        "none: every client; a listener beyond this host must have some")] = ()
    user: Annotated[str, Option(
        Kind("NAME", parse_user), "with auth = \"none\": requests without credentials "
        "are this user's, for rules, groups, limits, hooks and logs", "none: nobody's")
        ] = ""
    transparent: Annotated[str, Option(
        choice("off", "redirect", "tproxy"), "for connections that nftables brings "
        "here, of clients that know of no proxy; the kernel names the destination: "
        "docs/transparent.md", "clients are configured to use the proxy")] = "off"
    backlog: Annotated[int, Option(
        COUNT._replace(high=65535), "connections that wait to be accepted, of each "
        "worker; net.core.somaxconn cuts it; 0: 4096, and a socket of the service "
        "manager keeps its own", "4096 is the kernel's default of somaxconn")] = 0
    tcp_fingerprint: Annotated[bool, Option(
        FLAG, "have the kernel keep each connection's SYN, for the fingerprint of its "
        "client's TCP: docs/fingerprints.md", "off: it costs a system call for each "
        "connection")] = False

    certificates: Annotated[tuple[str, ...], Option(
        FILES, "TLS: files in PEM, each a certificate with its chain; the first serves "
        "clients that name no server, or an unknown one: docs/tls.md", "none: no TLS",
        swapped=True)] = ()
    certificate_keys: Annotated[tuple[str, ...], Option(
        FILES, "files with their private keys, in the same order, each readable by its "
        "owner alone", "each key is in its certificate's file", swapped=True)] = ()
    ocsp_responses: Annotated[tuple[str, ...], Option(
        FILES, "files with their OCSP responses (DER), in the same order, which are "
        "stapled", "none", swapped=True)] = ()
    tls_min_version: Annotated[Literal["1.2", "1.3"], Option(
        choice("1.2", "1.3"), "oldest version of TLS", "RFC 8996 (R47)", swapped=True)
        ] = "1.2"
    ciphers: Annotated[str, Option(
        TEXT, "OpenSSL's names of ciphers, with colons; TLS_… are those of TLS 1.3",
        "ECDHE with AES-GCM or ChaCha20", swapped=True)] = ""
    groups: Annotated[str, Option(
        TEXT, "OpenSSL's names of groups of the key exchange (curves), with colons, "
        "the preferred one first", "X25519MLKEM768 if known, X25519, P-256, P-384",
        swapped=True)] = ""
    client_ca: Annotated[str, Option(
        FILE, "file in PEM with the authorities of client certificates", "none",
        swapped=True)] = ""
    client_crl: Annotated[str, Option(
        FILE, "file in PEM with their lists of revoked certificates", "none",
        swapped=True)] = ""
    client_certificate: Annotated[Literal["none", "optional", "required"], Option(
        choice("none", "optional", "required"), "a client's certificate names its "
        "user, who needs no password then", "none", swapped=True)] = "none"
    client_ca_by_name: Annotated[tuple[tuple[str, str], ...], Option(
        BY_NAME, "authorities of clients that name this server, or *.name: such a "
        "client needs a certificate, whatever client_certificate says", "none",
        swapped=True)] = ()
    sni_strict: Annotated[bool, Option(
        FLAG, "refuse clients that name no server, or one that no certificate has "
        "(unrecognized_name)", "off: they get the first certificate", swapped=True)
        ] = False
    host_strict: Annotated[bool, Option(
        FLAG, "a request for a named origin whose Host is not the server name of its "
        "connection gets a 421: client_ca_by_name protects a name then, and browsers "
        "ask again by another connection", "off: one connection may serve all names")
        ] = False
    session_tickets: Annotated[bool, Option(
        FLAG, "give clients tickets, by which they resume their sessions",
        "a resumed handshake takes less than half of a whole one's time", swapped=True)
        ] = True

    def __post_init__(self) -> None:
        raise_all([*self._contradictions()])

    def _contradictions(self) -> Iterator[ConfigError]:
        if not self.protocols:
            yield ConfigError("", "protocols", "is empty")
        elif "tls" in self.protocols and not self.certificates:
            yield ConfigError("", "protocols", "tls needs certificates")
        elif self.protocols == ("tls",):
            yield ConfigError("", "protocols", "tls carries another protocol: add "
                              "http, socks5 or socks4")
        if "http2" in self.protocols and not (
                "http" in self.protocols and self.certificates):
            yield ConfigError("", "protocols", "http2 needs http and certificates: "
                              "clients choose it in their TLS handshake")
        if self.udp and "socks5" not in self.protocols:
            yield ConfigError("", "udp", "has no effect without socks5 in protocols")
        if "socks4" in self.protocols and self.auth == "required":
            yield ConfigError("", "protocols", "socks4 has no credentials: it needs "
                              "auth = \"none\"")
        if self.auth_none_from and self.auth == "required":
            yield ConfigError("", "auth_none_from", "has no effect without "
                              "auth = \"none\"")
        if self.user and self.auth == "required":
            yield ConfigError("", "user", "has no effect without auth = \"none\"")
        if self.auth == "none" and not (self.auth_none_from or self.is_local):
            yield ConfigError("", "auth", f"anybody could use {self.shown}: give "
                              "auth_none_from, the networks of the clients")
        if self.proxy_protocol_from and (self.is_path or not self.proxy_protocol):
            yield ConfigError("", "proxy_protocol_from", "has no effect on unix:/path"
                              if self.is_path else "has no effect without "
                              "proxy_protocol = true")
        if self.forwarded_from and ("http" not in self.protocols or self.is_path):
            yield ConfigError("", "forwarded_from", "has no effect on unix:/path"
                              if self.is_path else "is of requests of HTTP: it needs "
                              "http in protocols")
        if self.tcp_fingerprint and self.is_path:
            yield ConfigError("", "tcp_fingerprint", f"{self.shown}: only connections "
                              "of TCP begin with a SYN")
        yield from self._contradictions_of_pac()
        for key in ("mode", "owner"):
            if not self.is_path and getattr(self, key) != DEFAULTS[key]:
                yield ConfigError("", key, f"{self.shown} has no file: only unix:/path "
                                  "has one")
        for key in ("certificate_keys", "ocsp_responses"):
            files = getattr(self, key)
            if files and len(files) != len(self.certificates):
                certificates = show_count(len(self.certificates), "certificate")
                yield ConfigError(
                    "", key, f"has {show_count(len(files), 'file')} for {certificates}")
        for key in ("ciphers", "groups", "client_ca", "client_crl", "sni_strict",
                    "client_ca_by_name", "host_strict", "session_tickets"):
            if getattr(self, key) != DEFAULTS[key] and not self.certificates:
                yield ConfigError("", key, "has no effect without certificates")
        if self.client_certificate != "none" and not self.client_ca:
            yield ConfigError("", "client_certificate", "needs client_ca, which "
                              "verifies the certificates")
        elif self.client_ca and self.client_certificate == "none":
            yield ConfigError("", "client_ca", "has no effect without "
                              "client_certificate = \"optional\" or \"required\"")
        if self.client_crl and not (self.client_ca or self.client_ca_by_name):
            yield ConfigError("", "client_crl", "has no effect without client_ca")
        names = [name for name, _ in self.client_ca_by_name]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield ConfigError("", "client_ca_by_name", f"{name} is given twice")
        if self.transparent != "off":
            yield from self._contradictions_of_transparent()

    def _contradictions_of_pac(self) -> Iterator[ConfigError]:
        if not self.pac:
            for key in ("pac_direct", "pac_hosts", "pac_protocol"):
                if getattr(self, key) != DEFAULTS[key]:
                    yield ConfigError("", key, "has no effect without pac = true")
            return
        if self.is_path:
            yield ConfigError("", "pac", "no browser reads a file from unix:/path")
        if "http" not in self.protocols:
            yield ConfigError("", "pac", "browsers read the file by HTTP: it needs "
                              "http in protocols")
        if self.pac_protocol == "socks5":
            if "socks5" not in self.protocols:
                yield ConfigError("", "pac_protocol", "needs socks5 in protocols")
            elif self.needs_tls:
                yield ConfigError("", "pac_protocol", "browsers speak no SOCKS inside "
                                  "TLS: it needs tls in protocols")
            if self.auth == "required":
                yield ConfigError("", "pac_protocol", "browsers send no credentials by "
                                  "SOCKS: it needs auth = \"none\"")

    def _contradictions_of_transparent(self) -> Iterator[ConfigError]:
        if self.auth == "required":
            yield ConfigError("", "transparent", "its clients know of no proxy and "
                              "cannot log in: it needs auth = \"none\"")
        if self.is_path:
            yield ConfigError("", "transparent", f"{self.shown}: nftables brings "
                              "nothing to a path")
        for key in ("protocols", "proxy_protocol", "forwarded_from", "pac",
                    "certificates"):
            if getattr(self, key) != DEFAULTS[key]:
                yield ConfigError("", key, "contradicts transparent: its connections "
                                  "were on their way to other servers")

    @property
    def is_path(self) -> bool:
        """Whether it is a socket in the file system."""
        return self.address[0].startswith("unix:")

    @property
    def needs_tls(self) -> bool:
        """Whether every connection must be TLS."""
        return bool(self.certificates) and "tls" not in self.protocols

    @property
    def tls_files(self) -> tuple[str, ...]:
        """Every file that its TLS needs."""
        return tuple(path for path in (
            *self.certificates, *self.certificate_keys, *self.ocsp_responses,
            self.client_ca, self.client_crl,
            *(path for _, path in self.client_ca_by_name)) if path)

    @property
    def is_local(self) -> bool:
        """Whether it serves this host alone: a path or a loopback address (a wildcard
        is not one), without load balancers, because their clients may be anywhere."""
        return is_loopback(self.address[0]) and not (
            self.proxy_protocol or self.forwarded_from)

    @property
    def shown(self) -> str:
        return show_address(self.address)


DEFAULTS = defaults_of(Listener)


def merge(listen: Sequence[Address], proxy_protocol: Sequence[Address],
          rows: Sequence[Listener]) -> tuple[Listener, ...]:
    """The short form as rows, and behind them the rows."""
    plain = (Listener(address=address, proxy_protocol=address in proxy_protocol)
             for address in listen)
    return (*plain, *rows)


def origin_of(number: int, listen: Sequence[Address]) -> tuple[str, RowPath]:
    """The option of the listener with this number in `merge`, and the place in it."""
    if number < len(listen):
        return "listen", ()
    return "listeners", (number - len(listen), "address")


def contradictions(listen: Sequence[Address], proxy_protocol: Sequence[Address],
                   proxy_protocol_from: Sequence[str],
                   rows: Sequence[Listener]) -> Iterator[ConfigError]:
    merged = merge(listen, proxy_protocol, rows)
    if not merged:
        yield ConfigError("", "listen", "at least one address is needed")
    if len(merged) > MOST_ITEMS:
        yield ConfigError("", "listeners", f"more than {MOST_ITEMS} addresses")
    fixed = [listener.address for listener in merged
             if listener.address[1] or listener.is_path]
    for address in dict.fromkeys(fixed):
        if fixed.count(address) > 1:
            last = max(n for n, listener in enumerate(merged)
                       if listener.address == address)
            key, path = origin_of(last, listen)
            yield ConfigError(
                "", key, f"{show_address(address)} is given twice", path=path)
    for address in proxy_protocol:
        if address not in listen:
            yield ConfigError("", "proxy_protocol", f"{show_address(address)} is not "
                              "in listen")
    yield from _contradictions_of_proxy_protocol(
        merged, len(listen), bool(proxy_protocol), bool(proxy_protocol_from))


def beside_admin(admin: str, rows: Sequence[Listener]) -> Iterator[ConfigError]:
    """The admin listener's address is no other's; that of all addresses contains it."""
    for listener in rows:
        if listener.is_path or admin == "off" or admin.startswith("unix:"):
            meets = listener.is_path and listener.shown == admin
        else:
            meets = _meets(listener.address, split_address(admin))
        if meets:
            where = "" if listener.shown == admin else f", as {listener.shown}"
            yield ConfigError(
                "", "admin", f"{admin} is also an address of listen{where}")


def _meets(address: Address, other: Address) -> bool:
    (host, port), (other_host, other_port) = address, other
    return port == other_port != 0 and (host == other_host or (
        (":" in host) == (":" in other_host)        # [::] has no address of IPv4
        and not {host, other_host}.isdisjoint(("0.0.0.0", "::"))))


def _contradictions_of_proxy_protocol(merged: Sequence[Listener], short: int,
                                      have_protocol: bool, have_from: bool
                                      ) -> Iterator[ConfigError]:
    # A path needs no networks: the permissions of its file select the callers
    behind = [number for number, listener in enumerate(merged)
              if listener.proxy_protocol and not listener.is_path
              and not listener.proxy_protocol_from]
    if have_from and not (behind or have_protocol):
        yield ConfigError(
            "", "proxy_protocol_from", "has no effect: each listener has its own"
            if any(listener.proxy_protocol_from for listener in merged)
            else "has no effect without --proxy-protocol")
    elif not have_from and (behind or have_protocol):
        first = behind[0] if behind else 0
        key, path = ("proxy_protocol", ()) if first < short else (
            "listeners", (first - short, "proxy_protocol"))
        yield ConfigError("", key, "any caller could name any client: give "
                          "--proxy-protocol-from, the networks of the load balancers",
                          path=path)
