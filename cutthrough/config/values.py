"""The values of options: text to value, and back.

A `Kind` defines how one option's text is parsed, how its value is written so that it
can be parsed again, and its bounds. Flags, environment, file and embedding all use this
module, so `10s` means the same everywhere. It knows no option by name.

Every `parse_*` raises ValueError with the reason. The reasons of `parse_text` do not
repeat the text, because it may be a password (R37).
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cutthrough.config.items import parse_items

DAY = 86400.0

# A whole configuration is sent to a worker as one message of bounded size.
MOST_ITEMS = 256
MOST_CHARACTERS = 4096       # PATH_MAX


class Kind(NamedTuple):
    metavar: str
    parse: Callable[[str], Any]              # one value, or one item of a list
    show: Callable[[Any], str] = str         # returns a text that `parse` accepts
    low: float | None = None                 # inclusive bounds; None: no bound
    high: float | None = None
    many: bool = False                       # a list: commas, or a repeated flag
    bare: bool = False                       # a number or truth value in TOML
    words: Mapping[str, Any] = {}            # texts with a special value
    noun: str = ""                           # in docs/config.md; "": the metavar
    typed: str = "str"                       # type of a value or item, in `Options`
    separator: str = ","                     # between the items of a list in one text


_SECONDS = {"d": DAY, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile("(?=.)" + "".join(
    rf"(?:([0-9]{{1,12}}(?:\.[0-9]{{1,6}})?){unit})?" for unit in _SECONDS))
_BYTES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1, "": 1}
# `10m`, `10MB` are 10 MiB, as nginx, HAProxy and squid read them
_SIZE = re.compile(r"([0-9]{1,15}) ?(?:B|([KMGT])(?:i?B)?)?", re.I)
_TRUTH = {"true": True, "on": True, "yes": True, "1": True,
          "false": False, "off": False, "no": False, "0": False}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")      # RFC 9110 5.6.2
_HOST = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.-]{0,251}[0-9A-Za-z])?\.?")
_NAME = re.compile(r"(?=.{1,253}\Z)[0-9a-z_-]{1,63}(\.[0-9a-z_-]{1,63})*")
_ROW_NAME = re.compile(r"[0-9A-Za-z_-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def parse_duration(text: str) -> float:
    """Reads `100ms`, `10s`, `1m30s`, `1.5h`, `1d` or `0`; returns seconds."""
    if text == "0":
        return 0.0
    match = _DURATION.fullmatch(text)
    if match is None:
        unit = "" if re.fullmatch(r"[0-9]{1,9}", text) is None else (
            f": {text}s is in seconds, {text}ms in milliseconds")
        raise ValueError(
            f"{text!r} is not a duration such as 100ms, 10s, 1m30s or 1h{unit}")
    parts = zip(match.groups(), _SECONDS.values(), strict=True)
    # To the microsecond, so that 0.1s and 100ms are the same float.
    return round(sum(float(number) * unit for number, unit in parts if number), 6)


def show_duration(seconds: float) -> str:
    if seconds == 0:
        return "0"
    for unit in ("h", "m", "s"):             # no days: bounds are shown as 720h
        if seconds % _SECONDS[unit] == 0:
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    return f"{round(seconds * 1000, 3):.15g}ms"


def parse_size(text: str) -> int:
    """Reads `64KiB`, `64K`, `64kB` (all the same), `1MiB`, `1GiB`, `512B` or a plain
    number of bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512B, 64KiB or 1MiB")
    return int(match[1]) * _BYTES[f"{match[2].upper()}iB" if match[2] else ""]


def show_size(size: int) -> str:
    unit = next(u for u, n in _BYTES.items() if size and size % n == 0) if size else ""
    return f"{size // _BYTES[unit]}{unit}"


def parse_count(text: str) -> int:
    if re.fullmatch(r"[0-9]+", text) is None:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text.lstrip("0")[:20] or "0")     # 20 digits: more than every bound


def show_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def parse_flag(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(f"{text!r} is neither true nor false")
    return _TRUTH[text.lower()]


def parse_text(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("contains a control character")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"is longer than {MOST_CHARACTERS} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("is not UTF-8")     # surrogates: Python's surrogateescape
    return text


def split_address(text: str) -> tuple[str, int]:
    """Splits `host:port` or `[v6]:port` without validating the host."""
    host, colon, port = text.rpartition(":")
    if "://" in text:
        bare = text.partition("://")[2].partition("/")[0]
        raise ValueError(f"{text!r} is not host:port" + (
            f"; did you mean {bare}?" if bare else ""))
    if colon and re.fullmatch(r"[0-9]{5,9}", port) and int(port) > 65535:
        raise ValueError(f"{text!r}: port {port} is above 65535")
    if not colon or re.fullmatch(r"[0-9]{1,5}", port) is None:
        raise ValueError(f"{text!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets, [::1]:8888")
    return host, int(port)


def parse_listen(text: str) -> tuple[str, int]:
    """Reads an address to listen on.

    A name other than localhost is refused, because its addresses may change from start
    to start, and R29 and the address floor depend on whether a listener is loopback.
    RFC 6761 6.3 defines localhost.
    """
    host, port = split_address(text)
    if host.lower() == "localhost":
        host = "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        raise ValueError(f"{text!r}: {host!r} is not an address, such as 127.0.0.1, "
                         "0.0.0.0 or [::]") from None


def parse_address(text: str) -> tuple[str, int]:
    """Reads an address to listen on, or `unix:/path`, which has port 0."""
    if not text.startswith("unix:"):
        return parse_listen(text)
    # struct sockaddr_un, and its NUL
    if not text.startswith("unix:/") or len(text.encode()) > 112:
        raise ValueError(f"{text!r} is not unix:/path, of at most 107 bytes")
    return parse_text(text), 0


def parse_mode(text: str) -> int:
    """Reads the permissions of a file, as chmod(1) takes them in octal."""
    if re.fullmatch("0?[0-7]{3}", text) is None:
        raise ValueError(f"{text!r} is not a mode such as 660")
    return int(text, 8)


def parse_owner(text: str) -> str:
    """Reads `user`, `user:group` or `:group`, names or numbers, or nothing."""
    if text and re.fullmatch(r"(?=.)[\w.-]{0,32}(:[\w.-]{1,32})?", text) is None:
        raise ValueError(f"{text!r} is not user, user:group or :group")
    return text


def show_address(address: tuple[str, int]) -> str:
    host, port = address
    if host.startswith("unix:"):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_origin(text: str) -> str:
    """Reads `http://host[:port]` or nothing; returns `http://host:port` or ''."""
    if not text:
        return ""
    scheme, mark, authority = text.removesuffix("/").partition("://")
    if not mark or scheme.lower() != "http":
        raise ValueError(f"{text!r} is not http://host:port")
    if not re.search(r":[0-9]+\Z", authority) or authority.endswith("]"):
        authority += ":80"
    host, port = split_address(authority)
    if not port or not (":" in host or _HOST.fullmatch(host)):
        raise ValueError(f"{text!r} is not http://host:port")
    return f"http://{show_address((host, port))}"


def parse_network(text: str) -> str:
    """Reads `192.0.2.0/24`, `2001:db8::/32`, or an address: a network of one host."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not a network such as 192.0.2.0/24, nor an "
                         "address") from None
    if ipaddress.ip_address(text.partition("/")[0]) != network.network_address:
        raise ValueError(f"{text!r} has bits after its prefix; did you mean {network}?")
    return str(network)


def parse_override(text: str) -> tuple[str, str]:
    """Reads `name=address`; returns the name in the requests' form (R25)."""
    name, mark, address = text.partition("=")
    name = name.strip().lower().removesuffix(".")
    if not mark or _NAME.fullmatch(name) is None:
        raise ValueError(f"{text!r} is not name=address, the name in ASCII")
    # WHATWG URL 3.5: a host that ends in a number is an address, and never looked up
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]):
        raise ValueError(f"{text!r}: {name!r} is an address, not a name")
    if "%" in address:
        raise ValueError(f"{text!r}: expected an address without a zone")
    return name, str(ipaddress.ip_address(address.strip()))


def show_override(override: tuple[str, str]) -> str:
    return "=".join(override)


def parse_admin(text: str) -> str:
    """Reads `host:port` of an address, or `unix:` and a path; returns the same."""
    if not text.startswith("unix:"):
        return show_address(parse_listen(text))
    # struct sockaddr_un, less the suffix of the name while the socket is being made
    if not text.startswith("unix:/") or len(text.encode()) > 90:
        raise ValueError(f"{text!r} is not unix:/path, of at most 85 bytes")
    return parse_text(text)


def parse_host(text: str) -> str:
    """Reads a host name; returns it in the form that is compared."""
    name = text.lower().removesuffix(".")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{text!r} is not a host name in ASCII")
    return name


def parse_destination(text: str) -> str:
    """Reads a host, `*.suffix`, `.suffix` for both, an address or a network."""
    if "/" in text or ":" in text or re.fullmatch(r"[0-9.]+", text):
        return parse_network(text)
    mark = re.match(r"\*?\.|", text)
    begin = mark[0] if mark else ""
    return begin + parse_host(text[len(begin):])


def parse_cpus(text: str) -> tuple[int, ...]:
    """Reads `0-3,8`: the kernel's numbers of CPUs, in the order of the slots."""
    cpus: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        first, last = (int(n) for n in (match[1], match[2] or match[1])) if match else (
            1, 0)
        if first > last:
            raise ValueError(f"{text!r} is not a list of CPUs such as 0-3,8")
        for cpu in range(first, last + 1):
            if cpu in cpus:
                raise ValueError(f"{text!r}: CPU {cpu} is given twice")
            cpus[cpu] = None
    return tuple(cpus)


def show_cpus(cpus: Iterable[int]) -> str:
    """Writes CPUs in the kernel's form: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])
                    for run in runs)


# Placeholders for secrets, compared without case and punctuation
_PLACEHOLDERS = frozenset((
    "replace this", "replace me", "replaceme", "replace it", "replace", "change this",
    "changethis", "change me", "changeme", "change it", "changeit", "your password",
    "yourpassword", "your token", "your secret", "my password", "placeholder",
    "secret here", "password here", "token here", "example", "todo", "fixme", "tbd"))
# Placeholders for a token only: as a password these are weak, but a user's choice
_NO_TOKENS = frozenset(("token", "admin token", "secret", "password", "admin"))


def is_placeholder(text: str, token: bool = False) -> bool:
    """Whether this secret is an example's placeholder: `replace this`, `<password>`,
    `${TOKEN}`, `xxxx`."""
    words = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    return (words in _PLACEHOLDERS or (token and words in _NO_TOKENS)
            or re.fullmatch(r"<[^<>]*>|\$?\{+[^{}]*\}+|[xX]{3,}|\.{3}|…", text.strip())
            is not None)


def parse_row_name(text: str) -> str:
    """Reads the name of a table's row, which is a bare key of TOML."""
    if _ROW_NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a name of letters, digits, - and _")
    return text


def is_loopback(host: str) -> bool:
    """Whether this host alone can call there."""
    if host.startswith("unix:"):
        return True
    address = ipaddress.ip_address(host)
    # ::ffff:127.0.0.1 is loopback since Python 3.13, and not before: here it never is
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def parse_token(text: str) -> str:
    if text and _TOKEN.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a token of RFC 9110")
    return text


def choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        raise ValueError(f"{text!r} is not one of {', '.join(words)}")
    return Kind("|".join(words), parse, words={word: word for word in words},
                typed=f"Literal[{', '.join(map(json.dumps, words))}]")


DURATION = Kind("TIME", parse_duration, show_duration, 0.001, 30 * DAY, noun="time",
                typed="float | str")
DURATION_OR_0 = DURATION._replace(low=0.0)
SIZE = Kind("SIZE", parse_size, show_size, low=0, high=1 << 50, noun="size",
            typed="int | str")
COUNT = Kind("N", parse_count, low=0, high=10_000_000, bare=True, noun="number",
             typed="int | str")
TEXT = Kind("TEXT", parse_text)
FILE = TEXT._replace(metavar="FILE", typed="str | PathLike[str]")
ADDRESS = Kind("HOST:PORT|unix:PATH", parse_address, show_address,
               noun="address:port or unix:path", typed="str | tuple[str, int]")
MODE = Kind("MODE", parse_mode, lambda mode: f"{mode:03o}", noun="octal mode, quoted")
OWNER = Kind("USER:GROUP", parse_owner)
FILES = FILE._replace(many=True)
ADDRESSES = ADDRESS._replace(many=True)
WORKERS = COUNT._replace(metavar="auto|N", low=1, high=1024, words={"auto": 0})
CPUS = Kind("off|auto|CPUS", parse_cpus, show_cpus,
            words={"off": "off", "auto": "auto"})
RESOLVERS = Kind("IP", lambda text: str(ipaddress.ip_address(text)), many=True)
NETWORKS = Kind("NETWORK", parse_network, many=True)
OVERRIDES = Kind("NAME=IP", parse_override, show_override, many=True,
                 typed="str | tuple[str, str]")
PORTS = COUNT._replace(metavar="auto|any|PORT", low=1, high=65535, many=True,
                       words={"auto": "auto", "any": "any"})
ADMIN = Kind("off|HOST:PORT|unix:PATH", parse_admin, words={"off": "off"},
             noun="address:port or unix:path")
NAMES = Kind("NAME", parse_host, many=True)
DESTINATIONS = Kind("HOST|NETWORK", parse_destination, many=True,
                    noun="host, *.suffix, .suffix or network")
FLAG = Kind("true|false", parse_flag, lambda value: str(value).lower(), bare=True,
            noun="true or false", typed="bool | str")


def parse_value(kind: Kind, value: str | Iterable[str]) -> Any:
    """Reads an option's text, or the texts of an option that takes a list."""
    if not kind.many:
        if not isinstance(value, str):
            raise ValueError("takes one value, not a list")
        return kind.words[value] if value in kind.words else _parse_one(kind, value)
    texts = [value] if isinstance(value, str) else list(value)
    items = [item.strip() for text in texts for item in text.split(kind.separator)]
    items = [item for item in items if item]
    if len(items) == 1 and items[0] in kind.words:
        return kind.words[items[0]]
    if not items and kind.words:             # no ports could mean all or none
        raise ValueError(f"is an empty list; give {' or '.join(kind.words)}")
    if len(items) > MOST_ITEMS:
        raise ValueError(f"has more than {MOST_ITEMS} items")
    alone = next((item for item in items if item in kind.words), None)
    if alone is not None:
        raise ValueError(f"{alone!r} cannot be combined with other items")
    return parse_items(
        lambda item: _parse_one(kind, item), items, len(items) == len(texts))


def _parse_one(kind: Kind, text: str) -> Any:
    try:
        value = kind.parse(text)
    except ValueError as error:
        if kind.parse is not parse_count or not kind.words:
            raise
        raise ValueError(f"{error}, nor {' or '.join(kind.words)}") from None
    if kind.low is not None and value < kind.low:
        raise ValueError(f"{text!r} is below {kind.show(type(value)(kind.low))}")
    if kind.high is not None and value > kind.high:
        raise ValueError(f"{text!r} is above {kind.show(type(value)(kind.high))}")
    return value


def show_value(kind: Kind, value: Any) -> str:
    """Writes a value as a text that `parse_value` accepts."""
    for word, meaning in kind.words.items():
        if value == meaning:
            return word
    return kind.separator.join(map(kind.show, value)) if kind.many else kind.show(value)


# The same for typed values: those of a TOML file, and of a caller.

def text_of_toml(kind: Kind, value: Any) -> str | list[str]:
    """Turns a value of a TOML file into the text of the equivalent flag."""
    if isinstance(value, list) and kind.many:
        return [str(text_of_toml(kind, item)) for item in value]
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        if kind is FLAG:
            return str(value).lower()
    elif isinstance(value, int) and kind.low is not None:
        return str(value)
    elif isinstance(value, float) and kind.typed == "float":
        return f"{value:.9f}"
    raise ValueError(f"expected {kind.metavar} as a string")


def text_of_value(kind: Kind, value: Any) -> str | list[str] | None:
    """Turns a value in Python into its text. Raises TypeError if it has none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return [item if isinstance(item, str) else kind.show(item) for item in value]
    return kind.show(value)


def show_toml(kind: Kind, value: Any) -> str:
    """Writes a value as TOML, which has JSON's syntax for strings and lists."""
    shown = show_value(kind, value)
    if shown in kind.words or not kind.many:
        bare = kind.bare and shown not in kind.words
        return shown if bare else json.dumps(shown, ensure_ascii=False)
    items = [kind.show(item) for item in value]
    return f"[{', '.join(items)}]" if kind.bare else json.dumps(items)
