"""The proxy auto-configuration file: JavaScript that a browser asks about each URL.

    in `pac_direct`                      DIRECT
    local, and an allow rule names it    the proxy
    local, and the floor is on           DIRECT: the proxy would refuse it
    anything else                        the proxy

The proxy is the address under which the browser has reached this one, or the proxies of
`pac_hosts`, in an order of the client's own: the first one that answers.

The proxy decides about everything that reaches it. So a destination that a rule refuses
goes to the proxy too, which says why; and no answer continues with DIRECT behind the
proxy, because a proxy that is down must not open a way around it (R44).

ECMAScript 3, because Windows evaluates it with JScript. Networks are compared with
literal addresses only: a name would have to be resolved, which blocks browsers.
"""

import hashlib
import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from cutthrough.config.config import Config
from cutthrough.config.listeners import Listener
from cutthrough.policy.source import Policy

# Networks that a client may reach without the proxy, and the floor refuses: RFC 1122,
# 1918, 3927, 4193, 4291, 6598
LOCAL = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
         "169.254.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7", "fe80::/10")
# Suffixes of names that never leave a host or its link (RFC 6761, 6762)
LOCAL_NAMES = ("*.localhost", "*.local")
MOST_BYTES = 12288                           # one head's block, less the head

BEFORE = 'var proxy = "'
AFTER = """\
";
var direct = {direct};
var proxied = {proxied};
var local = {local};

function FindProxyForURL(url, host) {
  var bits;
  host = host.toLowerCase().replace(/^\\[|\\]$/g, "").replace(/\\.$/, "");
  bits = bitsOf(host);
  if (isIn(direct, host, bits)) return "DIRECT";
  if (isIn(proxied, host, bits)) return proxy;
  if (isIn(local, host, bits)) return "DIRECT";
  return proxy;
}

// "4" or "6" and the bits of an address in text; "": a name
function bitsOf(host) {
  var i, parts, tail, bits = "6";
  if (/^\\d+(\\.\\d+){3}$/.test(host)) {
    parts = host.split(".");
    for (bits = "4", i = 0; i < 4; i++) bits += binary(+parts[i], 8);
    return bits;
  }
  if (host.indexOf(":") < 0) return "";
  host = host.replace(/%.*$/, "");
  tail = /^(.*:)(\\d+)\\.(\\d+)\\.(\\d+)\\.(\\d+)$/.exec(host);
  if (tail) {
    host = tail[1] + (+tail[2] * 256 + +tail[3]).toString(16) + ":" +
      (+tail[4] * 256 + +tail[5]).toString(16);
  }
  parts = host.split("::");
  for (i = 0; i < parts.length; i++) parts[i] = parts[i] ? parts[i].split(":") : [];
  if (parts.length > 1) {
    while (parts[0].length + parts[1].length < 8) parts[0].push("0");
    parts[0] = parts[0].concat(parts[1]);
  }
  for (i = 0; i < parts[0].length; i++) bits += binary(parseInt(parts[0][i], 16), 16);
  // ::ffff:a.b.c.d is IPv4
  return bits.length == 129 && bits.substring(1, 97) == mapped ?
    "4" + bits.substring(97) : bits;
}

var mapped = binary(0, 80) + binary(65535, 16);

function binary(number, width) {
  var text = number.toString(2);
  while (text.length < width) text = "0" + text;
  return text;
}

// An entry: "=host", ".suffix" of hosts below it, "-" of names without a dot, or bits
function isIn(entries, host, bits) {
  var i, entry, kind;
  for (i = 0; i < entries.length; i++) {
    entry = entries[i];
    kind = entry.charAt(0);
    if (kind == "=" ? host == entry.substring(1)
        : kind == "." ? !bits && host.length > entry.length &&
          host.substring(host.length - entry.length) == entry
        : kind == "-" ? !bits && host.indexOf(".") < 0
        : bits && bits.substring(0, entry.length) == entry) {
      return true;
    }
  }
  return false;
}
"""


class PacError(ValueError):
    """A file that is too long to be served."""


class Pac(NamedTuple):
    """The texts before and after the proxy's own `host:port`; or before and after what
    `order` makes of the client's address."""

    before: bytes
    behind: bytes
    order: Callable[[bytes], bytes] | None = None


def make_pac(listener: Listener, config: Config, policy: Policy) -> Pac:
    """Raises PacError."""
    direct = [entry for text in listener.pac_direct for entry in entries_of(text)]
    proxied = list(dict.fromkeys(
        entry for text in opened_by(policy) for entry in entries_of(text)))
    local = [] if not config.floor else ["=localhost", "-", *(
        entry for text in (*LOCAL_NAMES, *LOCAL) for entry in entries_of(text))]
    after = AFTER
    for name, entries in (("direct", direct), ("proxied", proxied), ("local", local)):
        after = after.replace(f"{{{name}}}", json.dumps(entries), 1)
    scheme = ("SOCKS5" if listener.pac_protocol == "socks5"
              else "HTTPS" if listener.certificates else "PROXY")
    ways = [f"{scheme} {host}" for host in listener.pac_hosts]
    before = BEFORE if ways else f"{BEFORE}{scheme} "
    total = len(before) + len(after) + len("; ".join(ways))
    if total > MOST_BYTES:
        raise PacError(f"its PAC file has {total} bytes; at most {MOST_BYTES} can be "
                       "served")
    return Pac(before.encode(), after.encode(),
               partial(order_for, [way.encode() for way in ways]) if ways else None)


def order_for(ways: Sequence[bytes], client: bytes) -> bytes:
    """`ways` in the order of this client, by rendezvous hash: every host of a fleet
    gives it the same order, whatever the order of its list. If a way is removed, only
    its clients get another first one, and they are spread over all that are left."""
    return b"; ".join(sorted(ways, reverse=True, key=lambda way: hashlib.blake2b(
        way, digest_size=8, salt=hashlib.blake2b(client, digest_size=16).digest()
    ).digest()))


def opened_by(policy: Policy) -> Iterator[str]:
    """The local destinations that an allow rule names: only these pass the floor."""
    for rule in policy.rules:
        if rule.action == "deny":
            continue
        networks = [text for text in rule.addresses if is_local(text)]
        yield from networks
        for host in rule.hosts:
            name = host.removeprefix("*.")
            if networks or is_address(name):
                yield host


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_local(text: str) -> bool:
    network = ipaddress.ip_network(text)
    return any(network.version == local.version and network.overlaps(local)
               and network.prefixlen >= local.prefixlen
               for local in map(ipaddress.ip_network, LOCAL))


def entries_of(text: str) -> Iterable[str]:
    """The entry of a host, of `*.suffix`, of `.suffix` (both), or of a network."""
    if text.startswith("*."):
        return (text[1:],)
    if text.startswith("."):
        return (f"={text[1:]}", text)
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return (f"={text}",)
    bits = format(int(network.network_address), f"0{network.max_prefixlen}b")
    return (f"{network.version}{bits[:network.prefixlen]}",)
