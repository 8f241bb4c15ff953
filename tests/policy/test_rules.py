"""Policy files: their meaning, and every mistake with its place and reason."""

import re
from pathlib import Path

import pytest

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Caller
from cutthrough.policy.patterns import canonical_network, host_patterns
from cutthrough.policy.rules import add_users, read_policy
from cutthrough.policy.source import Limits, Policy, PolicyError, Rule, User
from tests.support.policies import HASH, RULE, read

TREE = Path(__file__).resolve().parents[2]


def rule_of(text: str) -> Rule:
    return read(f"[[rules]]\naction = \"allow\"\n{text}").rules[0]


def test_a_whole_file():
    policy = read(f"""
default = "report"
cut = true

[users.alice]
password = "{HASH}"
groups = ["dev"]
expires = 2027-01-01T00:00:00Z

[users.bob]
password = "{HASH}"

[groups]
dev = ["bob", "carol"]

[lists]
social = {{ file = "social.txt" }}
office = ["10.1.0.0/16", "2001:db8::/32"]
api = ["/api/**", "/%61/é"]

[limits.default]
connections = 100

[limits.slow]
users = ["bob"]
groups = ["dev"]
requests_per_second = 0.5
bytes_per_second = "10MiB"
tunnel_bytes_per_second = 65536

[[rules]]
name = "no social networks"
action = "deny"
hosts = ["@social", ".example.org"]
cut = true

[[rules]]
action = "allow"
users = ["alice"]
groups = ["dev"]
clients = ["@office", "127.0.0.1"]
addresses = ["10.0.0.0/8"]
ports = [443, "8000-8999"]
methods = ["CONNECT", "GET"]
paths = ["@api", "/health"]
limits = "slow"
""")
    bob = User(name="bob", hash=HASH, groups=("dev",))
    assert policy == Policy(
        default="report", cut=True, source="policy.toml",
        users={"alice": User(name="alice", hash=HASH, groups=("dev",),
                             expires=1798761600.0), "bob": bob},
        groups={"dev": ("bob", "carol")},
        limits={"default": Limits(connections=100),
                "slow": Limits(requests_per_second=0.5, bytes_per_second=10 << 20,
                               tunnel_bytes_per_second=65536)},
        user_limits={"bob": "slow"}, group_limits={"dev": "slow"},
        rules=(
            Rule(action="deny", name="no social networks", cut=True,
                 hosts=("*.facebook.com", "x.com", "example.org", "*.example.org"),
                 source="policy.toml:31"),
            Rule(action="allow", users=("alice",), groups=("dev",),
                 clients=("10.1.0.0/16", "2001:db8::/32", "127.0.0.1/32"),
                 addresses=("10.0.0.0/8",), ports=((443, 443), (8000, 8999)),
                 methods=("CONNECT", "GET"), paths=("/api/**", "/a/%C3%A9", "/health"),
                 limits="slow", source="policy.toml:37")))
    Acl(policy)


def test_an_empty_file_denies_everything():
    assert read("") == Policy(source="policy.toml")


# Canonical forms (R25).

@pytest.mark.parametrize(("text", "patterns"), [
    ("Example.COM", ("example.com",)),
    ("example.com.", ("example.com",)),
    ("*.Example.com", ("*.example.com",)),
    (".example.com", ("example.com", "*.example.com")),
    ("localhost", ("localhost",)),
    ("_dmarc.example.com", ("_dmarc.example.com",)),
    ("bücher.example", ("xn--bcher-kva.example",)),
    ("*.BÜCHER.example", ("*.xn--bcher-kva.example",)),
    ("XN--BCHER-KVA.example", ("xn--bcher-kva.example",)),
    ("例え。テスト", ("xn--r8jz45g.xn--zckzah",)),
    ("127.0.0.1", ("127.0.0.1",)),
    ("0x7f.1", ("127.0.0.1",)),
    ("2130706433", ("127.0.0.1",)),
    ("::1", ("::1",)),
    ("[2001:DB8:0::1]", ("2001:db8::1",)),
    ("*.com", ("*.com",)),
])
def test_a_pattern_has_one_spelling(text, patterns):
    assert host_patterns(text) == patterns


@pytest.mark.parametrize("text", [
    "", "*", "*.", ".", "..", "*.*.example.com", "a.*.example.com", "*example.com",
    "www.*", "*.127.0.0.1", ".127.0.0.1", "*.[::1]", "http://example.com",
    "example.com/", "example.com:443", "[::1]:443", "[::1]:1", "127.0.0.1:1",
    "example.com:1", "user@example.com", "a b", "a..b", "ex%61mple.com", "a" * 64,
    "fe80::1%eth0", "10.0.0.0/8", "1.2.3.4.5", "bü cher.example", "@x", "a,b"])
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(ValueError):
        host_patterns(text)


@pytest.mark.parametrize(("text", "network"), [
    ("10.0.0.0/8", "10.0.0.0/8"), ("10.1.2.3", "10.1.2.3/32"), ("::1", "::1/128"),
    ("2001:DB8::/32", "2001:db8::/32"), ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
    ("::ffff:0:0/96", "0.0.0.0/0"), ("::/0", "::/0"),
    ("10.0.0.0/255.0.0.0", "10.0.0.0/8")])
def test_a_network_has_one_spelling(text, network):
    assert canonical_network(text) == network


@pytest.mark.parametrize(("text", "reason"), [
    ("10.0.0.1/8", "did you mean 10.0.0.0/8?"), ("10/8", "not an address or a"),
    ("10.0.0.0/33", "not an address or a"), ("a.example", "not an address or a"),
    ("fe80::1%1/64", "not an address or a"),
    ("fe80::1%eth0", "not an address or a"), ("0x7f.1", "not an address or a"),
    ("010.0.0.1", "not an address or a"), ("", "not an address or a")])
def test_what_is_no_network_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason.replace("?", r"\?")):
        canonical_network(text)


# Lists.

def test_a_list_is_read_from_its_file_and_put_in_once():
    text = "hosts = ['@s', 'x.com', 'y.com', '@s']\n[lists]\ns = {file='social.txt'}"
    assert rule_of(text).hosts == ("*.facebook.com", "x.com", "y.com")


def test_a_list_can_hold_networks():
    text = "addresses = ['@n']\nclients = ['@n']\n[lists]\nn = {file = 'nets.txt'}"
    assert rule_of(text).addresses == ("10.0.0.0/8", "192.0.2.1/32")
    assert rule_of(text).clients == ("10.0.0.0/8", "192.0.2.1/32")


@pytest.mark.parametrize("key", ["hosts", "addresses", "clients", "paths"])
@pytest.mark.parametrize("found", ["{ file = 'empty.txt' }", "[]"])
def test_a_rule_whose_list_is_empty_matches_nothing(key, found):
    """Left as it is, the rule would ask nothing there, and match everything."""
    policy = read(f"[lists]\nnone = {found}\n[[rules]]\naction = 'allow'\n"
                  f"{key} = ['@none']\n[[rules]]\naction = 'deny'\n")
    assert [rule.action for rule in policy.rules] == ["deny"]
    assert policy.rules[0].source == "policy.toml:6"


def test_one_list_in_many_rules_is_one_tuple():
    policy = read("[lists]\ns = {file = 'social.txt'}\n"
                  + "[[rules]]\naction = 'deny'\nhosts = ['@s']\n" * 2)
    assert policy.rules[0].hosts is policy.rules[1].hosts


# TLVs.

def test_tlvs_are_a_table_of_values():
    text = (RULE + "[rules.tlvs]\nauthority = ['.A.test', 'b.test']\nalpn = ['h2']\n"
            "type_e0 = ['0x00Ff']\ntls_cn = ['@staff']\n"
            "[lists]\nstaff = ['Ann', 'Bob']")
    assert read(text).rules[0].tlvs == (
        ("alpn", ("h2",)), ("authority", ("a.test", "*.a.test", "b.test")),
        ("tls_cn", ("Ann", "Bob")), ("type_e0", ("0x00Ff",)))
    assert rule_of("tlvs.netns = ['blue']").tlvs == (("netns", ("blue",)),)
    Acl(read(text))


@pytest.mark.parametrize("name", ["authority", "netns"])
def test_a_rule_whose_tlv_has_an_empty_list_matches_nothing(name):
    policy = read(f"[lists]\nnone = []\n[[rules]]\naction = 'allow'\n"
                  f"tlvs.alpn = ['h2']\ntlvs.{name} = ['@none']\n"
                  "[[rules]]\naction = 'deny'\n")
    assert [rule.action for rule in policy.rules] == ["deny"]


# Users of another file.

def test_users_of_another_file_get_the_groups_of_this_one():
    policy = read("[groups]\ndev = ['bob']\n[[rules]]\naction='allow'\ngroups=['dev']")
    users = {"bob": User(name="bob", hash=HASH), "cyd": User(name="cyd", hash=HASH)}
    policy = add_users(policy, users, "users.htpasswd")
    assert policy.users["bob"].groups == ("dev",)
    acl = Acl(policy)
    assert acl.ask(host="a.b", port=1, caller=Caller("bob")).outcome == "ok"
    assert acl.ask(host="a.b", port=1, caller=Caller("cyd")).outcome != "ok"


def test_one_user_in_two_files_is_an_error():
    policy = read(f"[users.bob]\npassword = '{HASH}'")
    with pytest.raises(PolicyError, match=r"^users: bob: policy\.toml already defines"):
        add_users(policy, {"bob": User(name="bob", hash=HASH)}, "users")


def test_a_name_that_a_certificate_may_have_is_valid_where_no_password_is():
    """docs/tls.md names users by SPIFFE URIs, which were refused: they have colons."""
    name = "spiffe://example.org/ns/ci/builder"
    policy = read(f"[groups]\nci = ['{name}']\n[limits.slow]\nusers = ['{name}']\n"
                  f"[[rules]]\naction = 'allow'\nusers = ['{name}']\n")
    assert Acl(policy).ask(host="a.b", port=1, caller=Caller(name)).outcome == "ok"


# The document.

@pytest.mark.parametrize("text", re.findall(
    r"```toml\n(.*?)```", (TREE / "docs" / "policy.md").read_text(), re.S))
def test_every_example_of_the_document_is_a_policy(text):
    policy = read_policy(text, "policy.md", lambda name: "example.net\n")
    assert len(policy.rules) == text.count("[[rules]]")
    Acl(policy)


# Mistakes: the text, and the whole message.

NO_HASH = ("not a complete bcrypt, argon2id, SHA-crypt or apr1 hash; plain text is not "
           "accepted; `cutthrough passwd` creates an accepted hash")
NO_SUCH_GROUP = ("groups: 'dev': no such group: define it in [groups], or add it to a "
                 "user's `groups` in [users]")
NO_PORT = 'is neither a port such as 443 nor a range such as "8000-8999"'
KEYS = ("the keys are default, cut, users, groups, lists, limits, faults, filters, "
        "headers, rules")
MISTAKES = [
    ("defualt = 'deny'", "defualt: no such key; did you mean default?"),
    ("frobnicate = 1", f"frobnicate: no such key; {KEYS}"),
    ("head_timeout = '1s'", "head_timeout: is an option of `serve`: it belongs in "
                            "the file that `-c` names"),
    ("listen = []", "listen: is an option of `serve`: it belongs in the file that "
                    "`-c` names"),
    ("user = 'ann'", "user: no such key; did you mean users?"),
    ("default = 'maybe'", "default: 'maybe' is not one of allow, deny, report"),
    ("default = 1", "default: 1 is not one of allow, deny, report"),
    ("default = []", "default: [] is not one of allow, deny, report"),
    ("cut = 'yes'", "cut: takes true or false"),
    ("rules = 1", "rules: takes [[rules]] tables"),
    ("rules = [1]", "takes a table"),
    ("rules = [{hosts = ['a.b']}]", "action: is missing"),
    ("x = '''\n[[rules]]\n'''", f"x: no such key; {KEYS}"),
    # rules, by their line
    ("[[rules]]\nhosts = ['a.b']", "action: is missing"),
    ("\n\n  [[ rules ]]\naction = 'alow'",
     "action: 'alow' is not one of allow, deny, report"),
    ("[[rules]]\naction = ['deny']",
     "action: ['deny'] is not one of allow, deny, report"),
    (RULE + "host = ['a.b']", "host: no such key; did you mean hosts?"),
    (RULE + "[[rules]]\naction = 'deny'\nname = 1", "name: takes a string"),
    (RULE + "message = 'no'",
     "message: is for those that a rule refuses: action = \"deny\""),
    ("[[rules]]\naction = 'deny'\nmessage = \"a\\nb\"",
     "message: is not one line of at most 300 characters"),
    (RULE + "hosts = 'a.b'", "hosts: takes a list of strings"),
    (RULE + "hosts = [1]", "hosts: takes a list of strings"),
    (RULE + "hosts = []",
     "hosts: the list is empty: add an entry, or leave out the key"),
    (RULE + "hosts = ['*']",
     "hosts: '*' matches every host: leave out `hosts` instead"),
    (RULE + "hosts = ['a.*.b']",
     "hosts: 'a.*.b': * is allowed only as the first label, as in *.example.com"),
    (RULE + "hosts = ['a.b:443']", "hosts: 'a.b:443' is not a host name or "
                                   "address; ports belong in `ports`"),
    (RULE + "hosts = ['a_b/']", "hosts: 'a_b/' is not a host name or address; "
                                "leave out the scheme and the path"),
    (RULE + "hosts = ['http://a.b']", "hosts: 'http://a.b' is not a host name or "
     "address; leave out the scheme and the path"),
    (RULE + "hosts = ['10.0.0.0/8']", "hosts: '10.0.0.0/8' is not a host name or "
     "address; networks belong in `addresses`"),
    (RULE + "hosts = ['*.10.0.0.1']",
     "hosts: '*.10.0.0.1': an address has no subdomains"),
    (RULE + "addresses = ['10.0.0.1/8']",
     "addresses: '10.0.0.1/8' has host bits set; "
     "did you mean 10.0.0.0/8?"),
    (RULE + "clients = ['office']",
     "clients: 'office' is not an address or a network such as 10.0.0.0/8"),
    (RULE + "clients = []",
     "clients: the list is empty: add an entry, or leave out the key"),
    (RULE + "users = []",
     "users: the list is empty: add an entry, or leave out the key"),
    (RULE + "users = ['']", "users: the user name is empty"),
    (RULE + "groups = ['dev']", f"{NO_SUCH_GROUP}"),
    (RULE + "groups = ['dve']\n[groups]\ndev = ['a']",
     "groups: 'dve': no such group; did you mean dev?"),
    (RULE + "ports = 443", "ports: takes a list of ports"),
    (RULE + "ports = []",
     "ports: the list is empty: add an entry, or leave out the key"),
    (RULE + "ports = [true]", f"ports: True {NO_PORT}"),
    (RULE + "ports = ['http']", f"ports: 'http' {NO_PORT}"),
    (RULE + "ports = [0]", "ports: 0 is not within 1 to 65535, the lower port first"),
    (RULE + "ports = [65536]",
     "ports: 65536 is not within 1 to 65535, the lower port first"),
    (RULE + "ports = ['90-80']",
     "ports: '90-80' is not within 1 to 65535, the lower port first"),
    (RULE + "methods = ['patch']",
     "methods: 'patch' is not a method in capitals, such as GET, HEAD, POST, PUT, "
     "DELETE, OPTIONS, TRACE, CONNECT, UPGRADE, OTHER (OTHER: any that this list "
     "lacks; UPGRADE: any request that offers an upgrade)"),
    (RULE + "tlvs = []", "tlvs: takes a table of TLVs by name"),
    (RULE + "tlvs = {}", "tlvs: is empty: add a TLV, or leave out the key"),
    (RULE + "tlvs.vpce = ['a']", "tlvs: vpce: no such key; did you mean aws_vpce?"),
    (RULE + "tlvs.alpn = 'h2'", "tlvs: alpn: takes a list of strings"),
    (RULE + "tlvs.alpn = []",
     "tlvs: alpn: the list is empty: add an entry, or leave out the key"),
    (RULE + "tlvs = { authority = ['a b'] }",
     "tlvs: authority: 'a b' is not a host name or address"),
    (RULE + "tlvs.netns = ['']", "tlvs: netns: '' has 0 octets, not 1 to 255"),
    (RULE + "tlvs.type_e0 = ['0x123']",
     "tlvs: type_e0: '0x123': behind 0x, two hexadecimal digits are an octet"),
    (RULE + "paths = []",
     "paths: the list is empty: add an entry, or leave out the key"),
    (RULE + "paths = ['api/*']", "paths: 'api/*' does not begin with /"),
    (RULE + "paths = ['/a']\nmethods = ['CONNECT']",
     "paths: is of plain requests only: a tunnel has no path"),
    (RULE + "paths = ['/a']\nsni = 'match'",
     "sni: is of tunnels only, which have no `paths`"),
    (RULE + "cut = 1", "cut: takes true or false"),
    (RULE + "limits = 'slo'\n[limits.slow]",
     "limits: 'slo': no such limits; did you mean slow?"),
    (RULE + "limits = ''", "limits: '': no such limits"),
    # lists
    (RULE + "hosts = ['@socal']\n[lists]\nsocial = []",
     "hosts: @socal: no such list; did you mean social?"),
    ("[lists]\nx = 1", "lists: x: takes a list of strings, or { file = \"name\" }"),
    ("[lists]\nx = {path = 'a'}",
     "lists: x: takes a list of strings, or { file = \"name\" }"),
    ("[lists]\nx = [1]", "lists: x: takes a list of strings, or { file = \"name\" }"),
    (RULE + "hosts = ['@x']\n[lists]\nx = ['@y']",
     "lists.x: '@y' is not a host name or address"),
    (RULE + "hosts = ['@x']\n[lists]\nx = {file = 'none.txt'}",
     "lists.x: none.txt: No such file or directory"),
    # users, groups, limits
    ("users = 1", "users: takes a table"),
    ("[users]\nann = 'x'", "users.ann: takes a table"),
    ("[users.'a:b']", "users.a:b: a user name cannot contain a colon"),
    (f"[users.ann]\npassword = '{HASH}'\ngroup = 'dev'",
     "users.ann: group: no such key; did you mean groups?"),
    ("[users.ann]", "users.ann: password: is missing: `cutthrough passwd ann` prints "
                    "the name, a colon and the value for this key"),
    ("[users.ann]\npassword = 'secret'", f"users.ann: password: {NO_HASH}"),
    ("[users.ann]\npassword = '{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc='",
     "users.ann: password: unsalted SHA-1, which one table breaks for every user at "
     "once: not accepted; `cutthrough passwd` creates an accepted hash"),
    ("[users.'']", "users.: the user name is empty"),
    ("[users.ann]\npassword = 1", "users.ann: password: takes a string"),
    (f"[users.ann]\npassword = '{HASH}'\nexpires = 2027-01-01T00:00:00",
     "users.ann: expires: takes a time with a zone, as 2027-01-01T00:00:00Z"),
    (f"[users.ann]\npassword = '{HASH}'\nexpires = 2027-01-01",
     "users.ann: expires: takes a time with a zone, as 2027-01-01T00:00:00Z"),
    ("[groups]\ndev = 'bob'", "groups: dev: takes a list of user names"),
    ("[groups]\ndev = ['#b']", "groups: dev: a user name cannot begin or end with a "
                               "space, or begin with #"),
    ("[limits.slow]\nspeed = 1", "limits.slow: speed: no such key; the keys are "
     "per, ipv4_prefix, ipv6_prefix, connections, tunnels, requests_per_second, "
     "burst, queue, queue_timeout, bytes_per_second, bytes_per_second_up, "
     "bytes_per_second_down, tunnel_bytes_per_second, bytes_per_day, users, groups"),
    ("[limits.slow]\nqueue = 5",
     "limits.slow: queue: has no effect without requests_per_second"),
    ("[limits.slow]\nrequests_per_second = 5\nqueue_timeout = '5s'",
     "limits.slow: queue_timeout: has no effect without queue"),
    ("[limits.slow]\nrequests_per_second = 5\nqueue = 0",
     "limits.slow: queue: takes a number of requests, 1 to 100000"),
    ("[limits.slow]\nrequests_per_second = 5\nqueue = 5\nqueue_timeout = '11m'",
     "limits.slow: queue_timeout: takes a duration up to 10m, such as \"5s\""),
    ("[limits.slow]\nper = 'address'",
     "limits.slow: per: takes one of user, client, all, field:NAME"),
    ("[limits.slow]\nper = 'field:@'", "limits.slow: per: '@' is no name of a field"),
    ("[limits.slow]\nper = 'field:Upgrade'",
     "limits.slow: per: upgrade is not of the request, but of one connection"),
    ("[limits.slow]\nipv4_prefix = 24",
     "limits.slow: ipv4_prefix: belongs to per = \"client\""),
    ("[limits.slow]\nper = 'client'\nipv6_prefix = 65",
     "limits.slow: ipv6_prefix: takes a length of 16 to 64 bits"),
    ("[limits.slow]\ntunels = 1", "limits.slow: tunels: no such key; did you mean "
                                  "tunnels?"),
    ("[limits.slow]\ntunnels = -1",
     "limits.slow: tunnels: takes a whole number"),
    ("[limits.slow]\ntunnels = true",
     "limits.slow: tunnels: takes a whole number"),
    ("[limits.slow]\ntunnels = 1.5",
     "limits.slow: tunnels: takes a whole number"),
    ("[limits.slow]\nrequests_per_second = nan",
     "limits.slow: requests_per_second: takes a number"),
    ("[limits.slow]\nbytes_per_day = '10 MBit'",
     "limits.slow: bytes_per_day: '10 MBit' is not a size such as 512B, 64KiB or 1MiB"),
    ("[limits.slow]\nbytes_per_day = 1.5",
     'limits.slow: bytes_per_day: takes a size such as "10MiB"'),
    # It was "no limit": tunnels = 0 let all of them pass
    *((f"[limits.slow]\n{key} = {none}",
       f"limits.slow: {key}: cannot be 0; leave it out for {what}")
      for key, none, what in (
          ("tunnels", "0", "no limit, or deny CONNECT and UPGRADE to forbid tunnels"),
          ("requests_per_second", "0.0", "no limit"),
          ("bytes_per_day", "0", "no limit"),
          ("bytes_per_day", "'0B'", "no limit"),
          ("burst", "0", "one second's worth"))),
    ("[limits.default]\nusers = ['a']",
     "limits.default: applies to all other users: it takes no `users` or `groups`"),
    ("[limits.a]\nusers = ['ann']\n[limits.b]\nusers = ['ann']",
     "limits.b: users: 'ann' already has limits.a"),
    ("[limits.a]\ngroups = ['dev']", f"limits.a: {NO_SUCH_GROUP}"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_is_told_with_its_place(text, message):
    with pytest.raises(PolicyError) as caught:
        read(text)
    error = caught.value
    assert f"{error.key}: {error.reason}".removeprefix(": ") == message
    assert error.source == "policy.toml" and error.others == []
    assert error.place is not None


def test_what_is_not_toml_is_told():
    told = "^policy.toml:2: Invalid value; a string needs quotes: cut = .maybe.$"
    with pytest.raises(PolicyError, match=told):
        read("default = 'deny'\ncut = maybe\n")


def test_a_mistake_in_a_list_file_is_told_with_its_line():
    text = RULE + "hosts = ['@bad']\n[lists]\nbad = {file = 'bad.txt'}"
    with pytest.raises(PolicyError, match=r"^bad\.txt:3: 'http://bad\.example/'"):
        read(text)


def test_no_message_repeats_a_password():
    with pytest.raises(PolicyError) as caught:
        read("[users.ann]\npassword = 'hunter2'")
    assert "hunter2" not in str(caught.value)
