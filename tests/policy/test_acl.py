"""The compiled rules, against a list scan of the same rules in Python (R25, R26)."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Answer, Caller, Look
from cutthrough.policy.source import Limits, Policy, Rule, User
from cutthrough.wire.proxy_header import pack_tlvs
from tests.policy.acls import acl_of, allow, deny, report

# The slow, obvious twin: (outcome, rule, report, maybe, opens_floor).


def unmapped(text: str) -> Any:
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def is_in(text: str, networks: tuple[str, ...]) -> bool:
    return any(unmapped(text) in ipaddress.ip_network(n) for n in networks)


def is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def names(patterns: tuple[str, ...], host: str) -> bool:
    return any(host == p or (p.startswith("*.") and host.endswith(p[1:]))
               for p in patterns)


def has(values: tuple[str, ...], tlv: str, value: str) -> bool:
    return names(values, value) if tlv == "authority" else value in values


def same(text: str, pattern: str, mark: str) -> bool:
    parts = text.split(mark)
    return bool(text) and all(part in ("*", parts[i])
                              for i, part in enumerate(pattern.split(mark)))


def scan(policy: Policy, *, host: str, port: int, user: str, client: str, method: str,
         address: str | None, tlvs: dict[str, bytes], ja4: str, http2: str,
         for_origin: bool
         ) -> tuple[str, int, bool, bool, bool]:
    is_name = not is_literal(host)
    address = address if is_name else host
    known = policy.users.get(user)
    groups = known.groups if known else ()
    for i, rule in enumerate(policy.rules):
        maybe = False
        if (rule.users or rule.groups) and user not in rule.users and (
                not set(groups) & set(rule.groups)):
            continue
        if rule.origin and not for_origin:
            continue
        if rule.clients and not is_in(client, rule.clients):
            continue
        if not all(name in tlvs and has(values, name, tlvs[name].decode())
                   for name, values in rule.tlvs):
            continue
        if rule.client_ja4 and not any(same(ja4, one, "_") for one in rule.client_ja4):
            continue
        if rule.http2_fingerprint and not any(
                same(http2, one, "|") for one in rule.http2_fingerprint):
            continue
        if rule.ports and not any(a <= port <= b for a, b in rule.ports):
            continue
        if rule.methods and method not in rule.methods:
            continue
        literals = tuple(h for h in rule.hosts if is_literal(h))
        if rule.hosts and not (is_name and names(rule.hosts, host)):
            if address is None:
                if not literals:
                    continue
                maybe = True
            elif not any(unmapped(address) == unmapped(h) for h in literals):
                continue
        if rule.addresses:
            if address is None:
                maybe = True
            elif not is_in(address, rule.addresses):
                continue
        if maybe and (rule.action == "deny" or for_origin):
            continue
        floor = rule.action == "allow" and address is not None and (
            bool(rule.addresses) or any(
                unmapped(address) == unmapped(h) for h in literals))
        return (outcome_of(rule.action), i, rule.action == "report", maybe, floor)
    return (outcome_of(policy.default), -1, policy.default == "report", False, False)


def outcome_of(action: str) -> str:
    return "destination_denied" if action == "deny" else "ok"


LABELS = ("a", "b", "xn--bcher-kva", "a" * 17)
HOSTS = st.lists(st.sampled_from(LABELS), min_size=1, max_size=4).map(".".join)
ADDRESSES = st.sampled_from((
    "10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.1", "11.0.0.0", "0.0.0.0",
    "255.255.255.255", "::", "::1", "fd00::1", "2001:db8::1", "2001:db8:0:1::",
    "::ffff:10.0.0.1", "::fffe:ffff:ffff", "::1:0:0:0",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
NETWORKS = st.sampled_from((
    "0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.0.0.1/32",
    "10.0.0.2/32", "10.0.1.0/24", "10.1.0.0/16", "255.255.255.255/32", "0.0.0.0/32",
    "::/0", "::/1", "8000::/1", "::/64", "::/80", "::8000:0:0/81", "::fffe:0:0/95",
    "::/96", "fd00::/8", "2001:db8::/32",
    "2001:db8::/64", "2001:db8::1/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"))
LITERALS = st.sampled_from(("10.0.0.1", "10.0.0.2", "::1", "2001:db8::1"))
PATTERNS = st.one_of(HOSTS, HOSTS.map("*.".__add__), LITERALS)
METHODS = st.sampled_from(("GET", "POST", "CONNECT", "OTHER"))
RANGES = st.sampled_from(((1, 65535), (80, 80), (443, 443), (80, 443), (65535, 65535)))


def some(items: Any) -> Any:
    """None at all half of the time: a condition that a rule does not have."""
    return st.one_of(st.just(()), st.lists(items, max_size=3).map(tuple))


def some_tlvs() -> Any:
    wanted = st.fixed_dictionaries({}, optional={
        "authority": st.lists(st.one_of(HOSTS, HOSTS.map("*.".__add__)), min_size=1),
        "alpn": st.lists(st.sampled_from(("h2", "h3", "")), min_size=1)})
    return st.one_of(st.just(()), wanted.map(lambda found: tuple(
        (name, tuple(filter(None, values)) or ("h",))
        for name, values in sorted(found.items()))))


JA4S = ("t13d1516h2_8daaf6152771_e5627efa2ab1", "t12i0102h1_8daaf6152771_e5627efa2ab1")
HTTP2 = ("1:65536|2|0|m,a,s,p", "|2|0|m,s,p,a", "1:65536|00|0|m,a,s,p")
RULES = st.builds(
    Rule, action=st.sampled_from(("allow", "deny", "report")),
    users=some(st.sampled_from(("ann", "bob"))), groups=some(st.sampled_from("gh")),
    clients=some(NETWORKS), hosts=some(PATTERNS), addresses=some(NETWORKS),
    client_ja4=some(st.sampled_from((f"{JA4S[0][:11]}*_*", JA4S[1]))),
    http2_fingerprint=some(st.sampled_from((HTTP2[0], "*|2|0|*"))),
    ports=some(RANGES), methods=some(METHODS), tlvs=some_tlvs(),
    route=st.sampled_from(("", "", "direct", "corp")),
    origin=st.sampled_from(("", "", "", "api")))
POLICIES = st.builds(
    Policy, rules=st.lists(RULES, max_size=12).map(tuple),
    default=st.sampled_from(("allow", "deny", "report")),
    users=st.just({"ann": User(name="ann", hash=""),
                   "cyd": User(name="cyd", hash="", groups=("g", "h"))}))
QUESTIONS = st.fixed_dictionaries({
    "host": st.one_of(HOSTS, LITERALS), "port": st.sampled_from((1, 80, 443, 65535)),
    "user": st.sampled_from(("ann", "bob", "cyd", "")), "client": ADDRESSES,
    "ja4": st.sampled_from((*JA4S, "")), "http2": st.sampled_from((*HTTP2, "")),
    "for_origin": st.booleans(), "method": METHODS,
    "address": st.one_of(st.none(), ADDRESSES),
    "tlvs": st.fixed_dictionaries({}, optional={
        "authority": HOSTS.map(str.encode), "alpn": st.sampled_from((b"h2", b"h"))})})


def answer_to(acl: Acl, user: str, client: str, tlvs: dict[str, bytes], ja4: str = "",
              http2: str = "", **more: Any) -> Answer:
    return acl.ask(caller=Caller(
        user, client=client, tlvs=pack_tlvs(tlvs), ja4=ja4, http2=http2), **more)


@given(POLICIES, st.lists(QUESTIONS, min_size=1, max_size=8))
def test_it_decides_as_a_scan_of_the_rules_does(policy, questions):
    acl = Acl(policy)
    for question in questions:
        literal = ":" in question["host"]
        host = f"[{question['host']}]" if literal else question["host"]
        got = answer_to(acl, **{**question, "host": host})
        assert (got.outcome, got.rule, got.report, got.maybe,
                got.opens_floor) == scan(policy, **question)
        assert got.route == (policy.rules[got.rule].way if got.rule >= 0 else "")
        if got.rule >= 0:
            assert got.looked[-1] == Look(got.rule, "")
        assert [look.rule for look in got.looked] == sorted(
            {look.rule for look in got.looked})


@given(POLICIES, QUESTIONS)
def test_what_an_address_could_save_is_not_refused_before_it_is_known(policy, question):
    acl = Acl(policy)
    question["host"] = "a.b"
    before = answer_to(acl, **{**question, "address": None})
    after = [answer_to(acl, **{**question, "address": address}) for address in
             ("10.0.0.1", "10.1.0.1", "11.0.0.0", "::1", "2001:db8::1", "fe80::1")]
    if before.outcome != "ok":
        assert all(answer.outcome != "ok" for answer in after)


# Names.

@pytest.mark.parametrize(("pattern", "host", "matches"), [
    ("example.com", "example.com", True),
    ("example.com", "EXAMPLE.com.", True),
    ("example.com", "www.example.com", False),
    ("example.com", "example.com.evil.org", False),
    ("example.com", "badexample.com", False),
    ("example.com", "com", False),
    ("*.example.com", "www.example.com", True),
    ("*.example.com", "a.b.example.com", True),
    ("*.example.com", "example.com", False),
    ("*.example.com", "wwwexample.com", False),
    ("*.com", "example.com", True),
    ("*.com", "com", False),
    ("com", "com", True),
])
def test_a_pattern_matches_whole_labels(pattern, host, matches):
    acl = acl_of(allow(hosts=(pattern,)))
    assert (acl.ask(host=host, port=443).outcome == "ok") is matches


def test_a_host_of_127_labels_matches_each_of_its_suffixes():
    host = ".".join("a" * 127)
    rules = [deny(hosts=("*." + host[2 * i:],), ports=((1, 1),)) for i in range(1, 127)]
    answer = acl_of(*rules, allow(hosts=(host,))).ask(host=host, port=2)
    assert answer.rule == 126
    assert len(answer.looked) == 127


def test_labels_of_every_length_are_told_apart():
    hosts = [f"{'x' * n}.{'y' * (63 - n)}z" for n in range(1, 63)]
    acl = acl_of(*(allow(hosts=(host,)) for host in hosts))
    assert [acl.ask(host=host, port=1).rule for host in hosts] == list(range(62))
    assert acl.ask(host="x" * 8 + "." + "y" * 54 + "z", port=1).rule == -1


@pytest.mark.parametrize("spelling", [
    "127.0.0.1", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]"])
def test_an_address_in_disguise_meets_the_rule_of_the_address(spelling):
    for rule in (deny(addresses=("127.0.0.0/8",)), deny(hosts=("127.0.0.1",))):
        acl = acl_of(rule, default="allow")
        assert acl.ask(host=spelling, port=80).outcome == "destination_denied"


@pytest.mark.parametrize("host", ["", "a..b", "user@host", "a b", "host:99999", "*.a",
                                  "0x7f.0.0.0.1", "example.com:80", "[::1"])
def test_what_is_no_host_is_an_error(host):
    with pytest.raises(ValueError, match="is not a host"):
        acl_of().ask(host=host, port=80)


# The address that is not known yet.

def test_a_deny_that_hangs_on_the_address_lets_the_name_pass():
    acl = acl_of(deny(addresses=("10.0.0.0/8",)), default="allow")
    before = acl.ask(host="a.b", port=443)
    assert (before.outcome, before.rule, before.maybe) == ("ok", -1, False)
    assert acl.ask(host="a.b", port=443, address="10.1.2.3").rule == 0
    assert acl.ask(host="a.b", port=443, address="11.1.2.3").outcome == "ok"


def test_an_allow_that_hangs_on_the_address_is_a_maybe():
    acl = acl_of(allow(addresses=("10.0.0.0/8",)), deny(hosts=("a.b",)))
    before = acl.ask(host="a.b", port=443)
    assert (before.outcome, before.rule, before.maybe) == ("ok", 0, True)
    assert acl.ask(host="a.b", port=443, address="11.1.2.3").outcome != "ok"
    assert acl.ask(host="a.b", port=443, address="10.1.2.3").opens_floor


def test_a_definite_deny_before_the_maybe_refuses_at_once():
    acl = acl_of(deny(hosts=("a.b",)), allow(addresses=("10.0.0.0/8",)))
    assert acl.ask(host="a.b", port=443).outcome == "destination_denied"


def test_a_maybe_of_other_users_saves_nobody():
    acl = acl_of(allow(users=("ann",), addresses=("10.0.0.0/8",)))
    assert acl.ask(host="a.b", port=443, caller=Caller("bob")).outcome != "ok"
    assert acl.ask(host="a.b", port=443, caller=Caller("ann")).maybe


def test_host_and_address_must_both_match():
    acl = acl_of(allow(hosts=("a.b",), addresses=("10.0.0.0/8",)))
    assert acl.ask(host="a.b", port=443, address="10.0.0.1").outcome == "ok"
    assert acl.ask(host="a.c", port=443, address="10.0.0.1").outcome != "ok"
    assert acl.ask(host="a.b", port=443, address="11.0.0.1").outcome != "ok"
    assert acl.ask(host="10.0.0.1", port=443).outcome != "ok"


# The floor (R27).

@pytest.mark.parametrize(("rule", "opens"), [
    (allow(), False),
    (allow(hosts=("a.b",)), False),
    (allow(addresses=("10.0.0.0/8",)), True),
    (allow(hosts=("a.b",), addresses=("10.0.0.0/8",)), True),
    (allow(hosts=("10.0.0.1",)), True),
    (allow(hosts=("a.b", "10.0.0.1")), True),
    (allow(hosts=("a.b", "10.0.0.2")), False),
    (report(addresses=("10.0.0.0/8",)), False),
])
def test_only_an_allow_that_names_the_address_opens_the_floor(rule, opens):
    answer = acl_of(rule).ask(host="a.b", port=443, address="10.0.0.1")
    assert answer.outcome == "ok"
    assert answer.opens_floor is opens


def test_a_network_of_one_family_says_nothing_of_the_other():
    acl = acl_of(allow(addresses=("::/0",)))
    assert acl.ask(host="a.b", port=1, address="10.0.0.1").outcome != "ok"
    assert acl.ask(host="a.b", port=1, address="::ffff:10.0.0.1").outcome != "ok"
    assert acl.ask(host="a.b", port=1, address="::1").outcome == "ok"
    acl = acl_of(allow(clients=("0.0.0.0/0",)))
    inside, outside = Caller(client="::ffff:10.0.0.1"), Caller(client="::1")
    assert acl.ask(host="a.b", port=1, caller=inside).outcome == "ok"
    assert acl.ask(host="a.b", port=1, caller=outside).outcome != "ok"


@pytest.mark.parametrize("network", [
    "::/0", "::/1", "::/79", "::/80", "::8000:0:0/81", "::f000:0:0/84",
    "::fffe:0:0/95", "::ffff:0:0:0/80"])
def test_an_ipv6_network_holds_no_ipv4_whatever_its_length(network):
    """`::/80` has the same end as the mapped addresses, and held all of IPv4."""
    for rule in (allow(clients=(network,)), allow(addresses=(network,)),
                 allow(hosts=("a.b",), addresses=(network,))):
        acl = acl_of(rule)
        for text in ("0.0.0.0", "10.0.0.1", "255.255.255.255", "::ffff:10.0.0.1"):
            answer = acl.ask(
                host="a.b", port=1, caller=Caller(client=text), address=text)
            assert answer.outcome == "destination_denied", (rule, text)
    inside = str(ipaddress.ip_network(network)[0])
    answer = acl_of(allow(clients=(network,))).ask(
        host="a.b", port=1, caller=Caller(client=inside))
    assert answer.outcome == "ok"


@pytest.mark.parametrize("networks", [("0.0.0.0/0", "::/0"), ("ff00::/8",)])
def test_a_caller_on_a_unix_socket_is_in_no_network(networks):
    local = Caller(client="unix:1000")
    acl = acl_of(deny(clients=networks), default="allow")
    assert acl.ask(host="a.b", port=1, caller=local).outcome == "ok"
    acl = acl_of(allow(clients=networks), default="deny")
    assert acl.ask(host="a.b", port=1, caller=local).outcome != "ok"


# The rest of a verdict.

def test_the_verdict_carries_what_its_rule_says():
    acl = acl_of(
        deny(hosts=("a.b",), cut=True), report(hosts=("a.c",), limits="slow"),
        allow(hosts=("a.d",)), default="deny", cut=True,
        limits={"default": Limits(), "slow": Limits(tunnels=1)})
    cut, reported, plain, other = (
        acl.ask(host=host, port=1) for host in ("a.b", "a.c", "a.d", "a.e"))
    assert (cut.cut, cut.limits, cut.report) == (True, "", False)
    assert (reported.outcome, reported.report, reported.limits) == ("ok", True, "slow")
    assert (plain.cut, plain.limits, plain.report) == (False, "", False)
    assert (other.rule, other.cut, other.outcome) == (-1, True, "destination_denied")


def test_an_empty_policy_denies():
    assert acl_of().ask(host="a.b", port=443).outcome == "destination_denied"


def test_users_and_groups_are_one_question():
    acl = acl_of(
        allow(users=("ann",), groups=("dev",)),
        users={"bob": User(name="bob", hash="", groups=("dev",)),
               "cyd": User(name="cyd", hash="", groups=("ops",))})
    asked = {user: acl.ask(host="a.b", port=1, caller=Caller(user)).outcome == "ok"
             for user in ("ann", "bob", "cyd", "dev", "")}
    assert asked == {"ann": True, "bob": True, "cyd": False, "dev": False, "": False}
    member = Caller("cyd", ("dev",))
    assert acl.ask(host="a.b", port=1, caller=member).outcome == "ok"


def test_a_bitmap_has_room_for_many_distinct_sets_of_users():
    acl = acl_of(*(allow(users=(f"u{i}",), ports=((i + 1, i + 1),))
                   for i in range(300)))
    for i in (0, 6, 7, 8, 255, 256, 299):
        assert acl.ask(host="a.b", port=i + 1, caller=Caller(f"u{i}")).rule == i
        assert acl.ask(host="a.b", port=i + 2, caller=Caller(f"u{i}")).rule == -1
    assert acl.subjects_of(b"u7") == acl.subjects_of("u7") != acl.subjects_of("u8")


def test_methods_that_have_no_name_are_other():
    acl = acl_of(deny(methods=("OTHER",)), default="allow")
    assert acl.ask(host="a.b", port=80, method="PATCH").outcome != "ok"
    assert acl.ask(host="a.b", port=80, method="get").outcome != "ok"
    assert acl.ask(host="a.b", port=80, method="GET").outcome == "ok"


def test_a_rule_names_any_method():
    acl = acl_of(allow(methods=("PATCH", "GET")), allow(methods=("M-SEARCH",)))
    for method, rule in (("PATCH", 0), ("GET", 0), ("M-SEARCH", 1), ("PATCHY", -1),
                         ("PATC", -1), ("patch", -1), ("POST", -1), ("CONNECT", -1)):
        assert acl.ask(host="a.b", port=80, method=method).rule == rule, method


def test_explain_tells_which_question_each_rule_failed():
    acl = acl_of(
        allow(hosts=("a.b",), users=("ann",)), allow(hosts=("a.b",), ports=((80, 80),)),
        allow(hosts=("a.b",), methods=("GET",)),
        allow(hosts=("a.b",), clients=("10.0.0.0/8",)),
        allow(hosts=("a.b",), addresses=("10.0.0.0/8",)),
        allow(hosts=("a.c",)), deny(hosts=("a.b",)))
    answer = acl.ask(host="a.b", port=443, address="11.0.0.1")
    assert answer.looked == (
        (0, "user"), (1, "port"), (2, "method"), (3, "client"), (4, "address"), (6, ""))
    acl = acl_of(deny(hosts=("a.b",), addresses=("10.0.0.0/8",)), allow())
    looked = acl.ask(host="a.b", port=443).looked
    assert looked == ((0, "address not known yet"), (1, ""))


# Size.

def test_a_hundred_thousand_rules_and_one_rule_of_as_many_hosts():
    hosts = tuple(f"h{i}.example{i % 977}.com" for i in range(100_000))
    one = acl_of(allow(hosts=hosts))
    many = acl_of(*(allow(hosts=(host,)) for host in hosts))
    for i in (0, 1, 50_000, 99_999):
        assert one.ask(host=hosts[i], port=1).rule == 0
        assert many.ask(host=hosts[i], port=1).rule == i
        assert many.ask(host="x" + hosts[i], port=1).rule == -1
    # The project's own bound, so that a change of the layout does not go unseen.
    assert sum(many.sizes().values()) < 16 << 20


def test_ten_thousand_networks():
    networks = tuple(f"10.{i >> 8}.{i & 255}.0/24" for i in range(10_000))
    acl = acl_of(*(deny(addresses=(n,)) for n in networks),
                 allow(addresses=("10.0.0.0/8",)))
    for i in (0, 255, 256, 9_999):
        assert acl.ask(host=f"10.{i >> 8}.{i & 255}.7", port=1).rule == i
    assert acl.ask(host="10.200.0.1", port=1).rule == 10_000
    assert acl.ask(host="11.0.0.1", port=1).rule == -1
