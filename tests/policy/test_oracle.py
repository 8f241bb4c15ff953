"""Random policies as text, decided twice: by the program, and by a model that was
written from docs/policy.md and docs/paths.md alone."""

import ipaddress
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Caller
from tests.support.policies import HASH, read

NUMBERED = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT")
GROUPS = {"ann": ("dev",), "bob": ("ops", "dev"), "cyd": ()}
LISTS = {"names": ("*.a.test", "b.test"), "nets": ("10.0.0.0/8", "2001:db8::/32"),
         "paths": ("/api/**", "/x"), "none": ()}

# The model

Rule = dict[str, Any]


def expand(entries: Any) -> list[str]:
    return [text for entry in entries for text in (
        LISTS[entry[1:]] if entry.startswith("@") else (entry,))]


def as_address(text: str) -> Any:
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def canonical(host: str) -> str:
    """Lower case, no dot at the end, A-labels, numbers in disguise as addresses."""
    host = {"0x7f.1": "127.0.0.1", "2130706433": "127.0.0.1"}.get(host, host)
    return host.lower().removesuffix(".").encode("idna").decode() if (
        as_address(host) is None) else str(as_address(host))


def carried(address: Any) -> list[Any]:
    """The table "IPv4 within IPv6", and the unspecified addresses."""
    if address.version == 4:
        return [ipaddress.ip_address("127.0.0.1")] if int(address) == 0 else []
    number = int(address)
    if number == 0:
        return [ipaddress.ip_address("::1")]
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return [ipaddress.IPv4Address(number & 0xffffffff)]
    if address in ipaddress.ip_network("2002::/16"):
        return [ipaddress.IPv4Address(number >> 80 & 0xffffffff)]
    if number >> 32 & 0xfcffffff == 0x00005efe:
        return [ipaddress.IPv4Address(number & 0xffffffff)]
    if number >> 32 in (0, 0xffff0000) and number > 1:
        return [ipaddress.IPv4Address(number & 0xffffffff)]
    return []


def is_in(address: Any, networks: list[str], action: str = "allow") -> bool:
    addresses = [address, *(carried(address) if action == "deny" else ())]
    return any(each.version == net.version and each in net for each in addresses
               for net in map(as_network, networks))


def as_network(text: str) -> Any:
    return ipaddress.ip_network(
        "10.0.0.0/8" if text == "::ffff:10.0.0.0/104" else text)


def meets_host(rule: Rule, host: str, address: Any) -> bool:
    for entry in expand(rule["hosts"]):
        plain = canonical(entry.removeprefix("*").removeprefix("."))
        literal = as_address(plain)
        if literal is not None:
            if address is not None and is_in(address, [str(literal)], rule["action"]):
                return True
        elif as_address(host) is None and (
                (entry[0] in "*." and host.endswith("." + plain)) or (
                    entry[0] != "*" and host == plain)):
            return True
    return False


def meets_method(rule: Rule, method: str, own: str) -> bool:
    def is_named(text: str) -> bool:
        return text in rule["methods"] or (
            "OTHER" in rule["methods"] and text not in NUMBERED)
    denies = rule["action"] == "deny"
    spellings = [is_named(text) for text in (own, own.upper())]
    fits = any(spellings) if denies else all(spellings)
    if method != "UPGRADE":
        return fits
    offered = "UPGRADE" in rule["methods"]
    return offered or fits if denies else offered and (fits or own == "GET")


def glob(entry: str) -> re.Pattern[str]:
    text = "".join("(/[^/]*)*" if part == "**" else "/" + ".*".join(
        map(re.escape, part.split("*"))).replace(".*", "[^/]*")
        for part in entry[1:].split("/"))
    return re.compile(text)


def meets_path(rule: Rule, path: str) -> bool:
    denies = rule["action"] == "deny"
    path = path.partition("?")[0]
    if "//" in path or "/.." in path or "%2F" in path:
        return denies
    readings = {path}
    for old, new in (("%61", "a"), (";v=1", "")):
        readings |= {reading.replace(old, new) for reading in readings}
    met = [any(glob(entry).fullmatch(reading) for entry in expand(rule["paths"]))
           for reading in readings]
    return any(met) if denies else all(met)


def meets_opening(rules: list[Rule], default: str, rule: Rule, q: dict) -> bool:
    protocol, name = q["opening"]
    if "protocol" in rule and protocol not in rule["protocol"]:
        return False
    if "sni" not in rule:
        return True
    if protocol != "tls" or name == "!":
        return False
    host = canonical(q["host"])
    literal = as_address(host) is not None
    if (literal and not name) or (name and canonical(name) == host):
        return True
    if rule["sni"] == "any":
        return bool(name)
    return rule["sni"] == "allowed" and bool(name) and as_address(name) is None and (
        decide(rules, default, {**q, "host": name})[0] == "ok")


def matches(rules: list[Rule], default: str, rule: Rule, q: dict) -> dict[str, bool]:
    """Key -> whether it is met."""
    met = {}
    tunnel = q["method"] == "CONNECT"
    if "users" in rule or "groups" in rule:
        met["user"] = q["user"] in rule.get("users", ()) or bool(
            set(GROUPS.get(q["user"], ())) & set(rule.get("groups", ())))
    if "clients" in rule:
        met["clients"] = is_in(as_address(q["client"]), expand(rule["clients"]))
    if "hosts" in rule:
        met["hosts"] = meets_host(rule, canonical(q["host"]), q["address"])
    if "addresses" in rule:
        met["addresses"] = q["address"] is not None and is_in(
            q["address"], expand(rule["addresses"]), rule["action"])
    if "ports" in rule:
        met["ports"] = any(
            q["port"] == entry if isinstance(entry, int) else
            int(entry.split("-")[0]) <= q["port"] <= int(entry.split("-")[1])
            for entry in rule["ports"])
    if "methods" in rule:
        met["methods"] = meets_method(rule, q["method"], q["own"])
    if "paths" in rule:
        met["paths"] = not tunnel and meets_path(rule, q["path"])
    if "protocol" in rule or "sni" in rule:
        met["opening"] = tunnel and meets_opening(rules, default, rule, q)
    return met


def decide(rules: list[Rule], default: str, q: dict) -> tuple[str, int]:
    by_path = False
    for number, rule in enumerate(rules):
        met = matches(rules, default, rule, q)
        if all(met.values()):
            denied = "path_denied" if "paths" in rule or by_path else (
                "destination_denied")
            return denied if rule["action"] == "deny" else "ok", number
        by_path |= rule["action"] != "deny" and q["method"] != "CONNECT" and [
            key for key, value in met.items() if not value] == ["paths"]
    return ("ok" if default != "deny" else
            "path_denied" if by_path else "destination_denied"), -1


# The policies

HOSTS = ("a.test", "www.a.test", "x.www.a.test", "b.test", "A.Test.",
         "xn--bcher-kva.test", "10.0.0.1", "[2001:db8::1]", "0x7f.1", "2130706433")
PATTERNS = ("a.test", "*.a.test", ".a.test", "B.test", "*.test", "bücher.test",
            "10.0.0.1", "2001:db8::1", "127.0.0.1", "@names")
ADDRESSES = ("10.0.0.1", "10.1.2.3", "192.0.2.1", "127.0.0.1", "0.0.0.0", "::1", "::",
             "2001:db8::1", "2002:a00:1::1", "64:ff9b::a00:1", "::ffff:10.0.0.1",
             "2001:db9::5efe:a00:1", "::10.0.0.1", "2606::1")
NETWORKS = ("10.0.0.0/8", "10.0.0.1", "127.0.0.0/8", "::/0", "0.0.0.0/0",
            "2001:db8::/32", "::1", "64:ff9b::/96", "::ffff:10.0.0.0/104", "@nets",
            "@none")
PATHS = ("/", "/x", "/x/", "/api", "/api/v1/a", "/%61pi/a", "/api;v=1/b", "/a//b",
         "/a/../b", "/x%2Fy", "/x?q=/api", "/a.js")
ENTRIES = ("/x", "/api/**", "/*.js", "/**/a", "/*", "@paths", "/api/*/a")


def some(*items: Any) -> Any:
    return st.lists(st.sampled_from(items), min_size=1, max_size=3, unique=True)


def without_contradictions(rule: Rule) -> Rule:
    """A rule that could not match is a mistake in a file."""
    looks = "protocol" in rule or "sni" in rule
    if looks:
        rule.pop("paths", None)
    methods = rule.get("methods", ["CONNECT", "GET"])
    if (looks and "CONNECT" not in methods) or (
            "paths" in rule and methods == ["CONNECT"]):
        del rule["methods"]
    if "sni" in rule and "tls" not in rule.get("protocol", ["tls"]):
        del rule["protocol"]
    return rule


KEYS = {
    "users": some("ann", "bob"), "groups": some("dev", "ops"),
    "clients": some(*NETWORKS), "hosts": some(*PATTERNS),
    "addresses": some(*NETWORKS), "ports": some(80, 443, "1-100", "443-65535"),
    "methods": some(*NUMBERED[:5], "CONNECT", "OTHER", "UPGRADE", "PATCH"),
    "paths": some(*ENTRIES), "protocol": some("tls", "ssh", "http"),
    "sni": st.sampled_from(("match", "allowed", "any"))}


def with_keys(keys: Any) -> Any:
    return st.fixed_dictionaries({
        "action": st.sampled_from(("allow", "deny", "report")),
        **{key: KEYS[key] for key in sorted(keys)}}).map(without_contradictions)


RULES = st.sets(st.sampled_from(sorted(KEYS)), max_size=3).flatmap(with_keys)
QUESTIONS = st.fixed_dictionaries({
    "user": st.sampled_from(("ann", "bob", "cyd", "")),
    "client": st.sampled_from(("10.0.0.1", "2001:db8::7", "192.0.2.9", "::10.0.0.1")),
    "host": st.sampled_from(HOSTS), "address": st.sampled_from(ADDRESSES),
    "port": st.sampled_from((80, 100, 443, 8080)),
    "method": st.sampled_from((
        "GET", "POST", "CONNECT", "CONNECT", "UPGRADE", "PATCH", "patch", "delete")),
    "own": st.sampled_from(("GET", "POST", "PATCH", "delete")),
    "path": st.sampled_from(PATHS),
    "opening": st.sampled_from((
        ("tls", "a.test"), ("tls", "www.a.test"), ("tls", ""), ("tls", "b.test"),
        ("ssh", ""), ("http", "")))})


def text_of(rules: list[Rule], default: str) -> str:
    lines = [f'default = "{default}"', '[groups]', 'dev = ["bob"]', 'ops = ["bob"]',
             *(f'[users.{name}]\npassword = "{HASH}"' + (
                 '\ngroups = ["dev"]' if name == "ann" else "") for name in GROUPS),
             "[lists]", *(f"{name} = {list(items)!r}" for name, items in LISTS.items())]
    for number, rule in enumerate(rules):
        lines += ["[[rules]]", f'name = "{number}"',
                  *(f"{key} = {value!r}" for key, value in rule.items())]
    return "\n".join(lines)


@settings(max_examples=200)
@given(st.lists(RULES, max_size=6), st.sampled_from(("allow", "deny", "report")),
       st.lists(QUESTIONS, min_size=1, max_size=6))
def test_the_program_decides_as_its_pages_say(rules, default, questions):
    acl = Acl(read(text_of(rules, default)))
    for q in questions:
        literal = as_address(canonical(q["host"]))
        address = as_address(q["address"]) if literal is None else literal
        q = {**q, "address": address,
             "own": q["own"] if q["method"] == "UPGRADE" else q["method"]}
        more = {"host": q["host"], "port": q["port"],
                "caller": Caller(q["user"], client=q["client"]),
                "method": q["method"], "own_method": q["own"],
                "path": q["path"].encode()}
        opening = (*q["opening"], "")
        expected = decide(rules, default, q)
        got = acl.ask(**more, address=str(address), opening=opening)
        decided = int(acl.rules[got.rule].name) if got.rule >= 0 else -1
        assert decided == expected[1], (q, text_of(rules, default))
        assert (got.outcome == "ok") == (expected[0] == "ok")
        if q["method"] != "CONNECT":
            assert got.outcome == expected[0], q
        # What is known later saves nothing that was refused before
        if expected[0] == "ok":
            for less in ({}, {"address": str(address)}):
                assert acl.ask(**more, **less).outcome == "ok", (less, q)
