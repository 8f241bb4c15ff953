"""Parses a format of the access log, text with squid's %-codes, into steps.

    % [encoding] [-] [[0]width][.most] [{argument}] code [{argument}]

The codes have the meaning of squid's `logformat`, as far as it applies to this proxy.
A field without a code in squid is `%ct::name`. docs/logs.md lists all codes.

`config` refuses with this module every format that `log.formatline` cannot write.
"""

import re
import time
from typing import NamedTuple

from cutthrough.config.mistake import nearest
from cutthrough.config.values import parse_text

# squid's own presets, except for the encoding of the user: a space in the user's name
# would split the column.
PRESETS = {
    "squid": "%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %un %Sh/%<a %mt",
    "common": '%>a %ui %un [%tl] "%rm %ru HTTP/%rv" %>Hs %<st %Ss:%Sh',
    "combined": '%>a %ui %un [%tl] "%rm %ru HTTP/%rv" %>Hs %<st "%{Referer}>h" '
                '"%{User-Agent}>h" %Ss:%Sh',
    # The labels of ltsv.org; `reason` is our own
    "ltsv": r"time:%tl\thost:%>a\tuser:%un\tmethod:%rm\turi:%ru\tprotocol:HTTP/%rv"
            r"\tstatus:%>Hs\tsize:%<st\treqsize:%>st\treferer:%{Referer}>h"
            r"\tua:%{User-Agent}>h\treqtime:%ct::total_s\treason:%ct::reason",
    "w3c": "%{%Y-%m-%d}tg %{%H:%M:%S}tg %>a %un %rm %ru HTTP/%rv %>Hs %<st %>st "
           "%ct::total_s %<a %ct::reason %{User-Agent}>h %{Referer}>h",
    "csv": "%{%Y-%m-%dT%H:%M:%SZ}tg,%>a,%,un,%,rm,%,ru,%>Hs,%ct::reason,%<st,%>st,"
           "%ct::total_ms,%,<a,%,ct::rule,%,{User-Agent}>h",
    # HAProxy's `option httplog`; the braces hold what it captures
    "haproxy": '%>a:%>p [%ct::start] cutthrough %<A/%<a %ct::haproxy_timers %>Hs %<st '
               '- - %ct::haproxy_state 0/0/0/0/0 0/0 {%un} "%rm %ru HTTP/%rv"',
    # For people
    "terminal": "%{%H:%M:%S}tl %ct::color%>Hs %-18ct::reason%ct::uncolor %-10un "
                "%-7rm %ru  %<st B  %ct::total_ms ms",
}
AUTO = "auto"                # by the file's name, "terminal" on one, else "squid"
BY_ENDING = {"json": "json", "jsonl": "json", "ltsv": "ltsv", "csv": "csv"}
# What stands at the beginning of a file that is empty
HEADINGS = {
    "w3c": "#Version: 1.0\n#Fields: date time c-ip cs-username cs-method cs-uri "
           "cs-version sc-status sc-bytes cs-bytes time-taken r-ip x-reason "
           "cs(User-Agent) cs(Referer)\n",
    "csv": "time,client,user,method,url,status,reason,bytes_down,bytes_up,total_ms,"
           "origin,rule,user_agent\n",
}

# Bytes of a line: each long field (see LONG) has room for at least LEAST_LONG, however
# many there are, and everything else takes at most MOST_FIXED. Together they fit into
# PIPE_BUF, the size of one atomic write to a pipe.
LEAST_LONG = 64
MOST_FIXED = 3500
MOST_WIDTH = 255
MOST_TIME = 64               # bytes of a formatted time

# Each code and the most bytes of its field. Numbers have 64 bits.
NUMBER = 20
CODES = {
    "sn": NUMBER, "err_code": 28, "err_detail": 40,
    ">a": 46, ">p": 5, "la": 46, "lp": 5, "<a": 46, "<A": LEAST_LONG, "<p": 5,
    "<la": 46, "<lp": 5,
    "ts": NUMBER, "tu": 3, "tl": MOST_TIME, "tg": MOST_TIME, "tr": NUMBER,
    "tS": NUMBER + 4, "dt": NUMBER, "<pt": NUMBER,
    "un": LEAST_LONG, "ul": LEAST_LONG, "ui": 1,
    "rm": 32, "ru": LEAST_LONG, "rp": LEAST_LONG, ">rs": 8, ">rd": LEAST_LONG,
    ">rP": 5, "rv": 3, ">h": LEAST_LONG, ">Hs": 3, "mt": 1,
    "st": NUMBER, ">st": NUMBER, "<st": NUMBER,
    "Ss": 24, "Sh": 14,
    "ct::id": 2 * NUMBER, "ct::reason": 28, "ct::worker": NUMBER, "ct::path": 6,
    "ct::rule": LEAST_LONG, "ct::hook": LEAST_LONG, "ct::kind": 7,
    "ct::tried_user": LEAST_LONG, "ct::proxied_by": 46, "ct::tlv": LEAST_LONG,
    "ct::client_tls_version": 4, "ct::client_cipher": 60, "ct::client_sni": LEAST_LONG,
    "ct::client_alpn": LEAST_LONG, "ct::client_resumed": 7,
    "ct::client_certificate": LEAST_LONG,
    "ct::client_ja4": 36, "ct::client_ja3": 32, "ct::client_ja4_r": LEAST_LONG,
    "ct::client_ja4_o": 36, "ct::client_ja4_ro": LEAST_LONG,
    "ct::http2_fingerprint": LEAST_LONG, "ct::tcp_fingerprint": LEAST_LONG,
    "ct::tunnel_protocol": 12, "ct::sni": LEAST_LONG, "ct::alpn": LEAST_LONG,
    "ct::tls_version": 4, "ct::ja4": 36, "ct::ja3": 32, "ct::ech": 4,
    "ct::intercepted": 11, "ct::pinned": 6,
    "ct::report": 6, "ct::upgrade": 7, "ct::changed": 8, "ct::breakpoint": 10,
    "ct::parent": LEAST_LONG, "ct::parent_status": NUMBER, "ct::source": LEAST_LONG,
    "ct::client_http": 3, "ct::origin_http": 3,
    "ct::peer_tls_version": 4, "ct::peer_cipher": 60,
    "ct::held_ms": NUMBER + 4, "ct::client_tls_ms": NUMBER + 4,
    "ct::origin_tls_ms": NUMBER + 4,
    "ct::head_ms": NUMBER + 4, "ct::auth_ms": NUMBER + 4,
    "ct::hook_ms": NUMBER + 4, "ct::dns_ms": NUMBER + 4,
    "ct::connect_ms": NUMBER + 4, "ct::first_byte_ms": NUMBER + 4,
    "ct::total_ms": NUMBER + 4, "ct::total_s": NUMBER + 4,
    "ct::start": MOST_TIME, "ct::haproxy_timers": 5 * NUMBER + 4,
    "ct::haproxy_state": 4, "ct::color": 5, "ct::uncolor": 4,
    "ct::client_rtt_ms": NUMBER + 4, "ct::client_retransmits": NUMBER,
    "ct::origin_rtt_ms": NUMBER + 4, "ct::origin_retransmits": NUMBER,
}
# These fields are cut to the room that the line has
LONG = frozenset(code for code, most in CODES.items() if most == LEAST_LONG)
# Codes of a tunnel's first bytes: if a format has one of them, the worker looks at them
PEEKED = frozenset(("ct::tunnel_protocol", "ct::sni", "ct::alpn", "ct::tls_version",
                    "ct::ja4", "ct::ja3", "ct::ech"))
# Codes of the fingerprints of a client's own connection
PRINTS = frozenset(("ct::client_ja4", "ct::client_ja3", "ct::client_ja4_r",
                    "ct::client_ja4_o", "ct::client_ja4_ro", "ct::http2_fingerprint"))
# TLVs of a PROXY header, by the names of wire.proxy_header
TLVS = ("alpn", "authority", "unique_id", "tls_version", "tls_cn", "tls_cipher",
        "netns", "aws_vpce", *(f"type_{kind:02x}" for kind in range(0xE0, 0xF0)))
# Other names of the same codes; `http::` may precede any code of squid's
ALIASES = {">rm": "rm", "<rm": "rm", ">ru": "ru", "<ru": "ru", ">rp": "rp",
           "<rp": "rp", ">rv": "rv", "<rv": "rv", ">la": "la", ">lp": "lp",
           "<rd": ">rd", "<rs": ">rs", "<rP": ">rP",
           "ssl::>negotiated_version": "ct::client_tls_version",
           "ssl::>negotiated_cipher": "ct::client_cipher",
           "ssl::<negotiated_version": "ct::peer_tls_version",
           "ssl::<negotiated_cipher": "ct::peer_cipher", "ssl::>sni": "ct::sni"}
# Fields of a request that are never logged (R37)
SECRET = frozenset(("authorization", "proxy-authorization", "cookie"))
DEFAULT_TIME = "%d/%b/%Y:%H:%M:%S %z"
START_TIME = "%d/%b/%Y:%H:%M:%S"    # milliseconds follow
AROUND_CSV = 3               # bytes that `,` adds to a field

_CODE = re.compile(
    r"%(?P<encoding>[\"\[#/,']?)(?P<left>-?)(?P<zero>0?)(?P<width>[1-9][0-9]*)?"
    r"(?:\.(?P<most>[0-9]+))?(?:\{(?P<before>[^}]*)\})?"
    r"(?P<code>(?:[a-z]+::)?[<>]?[A-Za-z_0-9]*)(?:\{(?P<behind>[^}]*)\})?")
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
# Longest first: %tsx is %ts and an x
_BY_LENGTH = sorted([*CODES, *ALIASES], key=lambda code: (-len(code), code))


class Step(NamedTuple):
    """One piece of a line: `text` itself if `code` is empty, else the code's field,
    with `text` as its argument."""

    code: str
    text: str
    encoding: str = ""
    left: bool = False
    zero: bool = False
    width: int = 0
    most: int = 0                            # octets; 0: no limit


def parse_format(text: str) -> tuple[Step, ...]:
    r"""Reads a format, in which `\t` is a tab. Raises ValueError with the reason."""
    text = text.replace(r"\t", "\t")
    steps: list[Step] = []
    quoted = False
    braces = 0                               # open ones
    at = 0
    while at < len(text):
        end = text.find("%", at)
        literal = text[at:] if end < 0 else text[at:end]
        if text[at:at + 2] == "%%":
            literal = "%"
            at += 2
        elif literal:
            at += len(literal)
        else:
            step, at = _parse_code(text, at, quoted)
            if braces > 0 and not step.encoding:
                step = step._replace(encoding="{")
            steps.append(step)
            continue
        quoted ^= literal.count('"') % 2 == 1
        braces += literal.count("{") - literal.count("}")
        steps.append(Step("", literal))
    if not any(step.code for step in steps):
        raise ValueError("contains no code such as %>a")
    fixed = sum(map(most_bytes, steps))
    if fixed > MOST_FIXED:
        raise ValueError(f"makes lines of {fixed} bytes without their long fields; at "
                         f"most {MOST_FIXED} are possible")
    return tuple(steps)


def most_bytes(step: Step) -> int:
    """The bytes that a step takes at most; a long field is cut to what is left."""
    if not step.code:
        return len(step.text.encode())
    return max(CODES[step.code], step.width) + AROUND_CSV * (step.encoding == ",")


def costly_codes(text: str) -> frozenset[str]:
    """The codes of PEEKED and PRINTS in the value of the option."""
    if text in ("json", AUTO):
        return frozenset()
    return (PEEKED | PRINTS) & {
        step.code for step in parse_format(PRESETS.get(text, text))}


def _parse_code(text: str, at: int, quoted: bool) -> tuple[Step, int]:
    match = _CODE.match(text, at)
    assert match is not None                 # all of it may be empty
    said = match["code"]
    bare = said.removeprefix("http::")
    code = next((c for c in _BY_LENGTH if bare.startswith(c)), "")
    shown = "%" + (said or text[match.start("code"):match.start("code") + 1])
    if not code:
        near = _find_near(bare)
        hint = f"; did you mean %{near}?" if near else "; docs/logs.md lists them"
        raise ValueError(f"no such code {shown}{hint}")
    left = len(bare) - len(code)             # letters behind the code are text
    end = match.end("code") - left
    argument, behind = match["before"], match["behind"] if not left else None
    if behind is not None:
        end = match.end()
        if argument is not None:
            raise ValueError(f"%{code} has two arguments")
        argument = behind
    code = ALIASES.get(code, code)
    if match["encoding"] == "'":
        raise ValueError(f"%'{code}: without encoding a client could forge lines")
    width, most = int(match["width"] or 0), int(match["most"] or 0)
    if max(width, most) > MOST_WIDTH:
        raise ValueError(f"%{code}: the largest width is {MOST_WIDTH}")
    encoding = match["encoding"]
    if quoted and encoding in ("", "/", ","):     # their quotes would end those around
        encoding = '"'
    return Step(code, _check_argument(code, argument), encoding,
                left=bool(match["left"]), zero=bool(match["zero"]), width=width,
                most=most), end


def _find_near(said: str) -> str:
    """A similar code, if any: another case, or a missing or different sign."""
    known = [*CODES, *ALIASES]
    same = [c for c in known if c.lstrip("<>").lower() == said.lstrip("<>").lower()]
    same.sort(key=lambda code: code[0] != said[:1])
    return same[0] if same else nearest(said, known)


def _check_argument(code: str, argument: str | None) -> str:
    if code in ("tl", "tg", "ct::start"):
        default = START_TIME if code == "ct::start" else DEFAULT_TIME
        shown = default if argument is None else argument
        try:
            text = time.strftime(shown)
        except ValueError as error:
            raise ValueError(f"%{code}: {error}") from None
        if not text.isprintable() or not 0 < len(text.encode()) <= MOST_TIME - 16:
            raise ValueError(f"%{code}: {shown!r} makes {text!r}, which is not one "
                             f"line of at most {MOST_TIME - 16} bytes")
        return shown
    if code == ">h":
        if argument is None or not _FIELD.fullmatch(argument):
            raise ValueError("%>h takes the name of a field, as in %{User-Agent}>h")
        if argument.lower() in SECRET:
            raise ValueError(f"%{{{argument}}}>h: {argument} is never logged")
        return argument.lower()
    if code == "ct::tlv":
        if argument not in TLVS:
            raise ValueError(f"%ct::tlv takes one of {', '.join(TLVS[:-16])}, type_e0 "
                             "to type_ef, as in %{authority}ct::tlv")
        return argument
    if argument is not None:
        raise ValueError(f"%{code} takes no argument")
    return ""


def parse_log_format(text: str) -> str:
    """Reads the option: a preset's name, or a format, which it returns as it is."""
    if text in PRESETS or text in ("json", AUTO):
        return text
    if "%" not in text:
        near = nearest(text, [*PRESETS, "json", AUTO])
        hint = f"; did you mean {near}?" if near else ""
        raise ValueError(f"{text!r} is not one of {', '.join(PRESETS)}, json, auto, "
                         f"nor a format with %-codes{hint}")
    parse_format(parse_text(text.replace("\t", r"\t")))
    return text
