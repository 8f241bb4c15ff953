"""Smokescreen's ACL files: its own semantics, and its own refusals."""

import re
from typing import Any

import pytest
import yaml

from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Caller
from cutthrough.policy.smokescreen import read_smokescreen
from cutthrough.policy.source import PolicyError

ACL = """---
version: v1
services:
  - name: strict
    project: billing
    action: enforce
    allowed_domains:
      - example1.com
      - bad1.example          # goes before the global deny list
      - "*.glob.example"
  - name: watched
    project: search
    action: report
    allowed_domains: [example2.com]
  - name: free
    project: batch
    action: open

default:
  project: other
  action: report
  allowed_domains:
    - default.example

global_allow_list:
  - good.example
  - both.example

global_deny_list:
  - bad1.example
  - bad2.example
  - both.example
"""

ALLOW, REPORT, DENY = "allow", "report", "deny"

TABLE = [
    ("strict", "example1.com", ALLOW),
    ("strict", "www.example1.com", DENY),
    ("strict", "a.glob.example", ALLOW),
    ("strict", "a.b.glob.example", ALLOW),
    ("strict", "glob.example", DENY),
    ("strict", "xglob.example", DENY),
    ("strict", "bad1.example", ALLOW),
    ("strict", "bad2.example", DENY),
    ("strict", "good.example", ALLOW),
    ("strict", "default.example", DENY),
    ("watched", "example2.com", ALLOW),
    ("watched", "example1.com", REPORT),
    ("watched", "bad1.example", DENY),
    ("watched", "good.example", ALLOW),
    ("watched", "both.example", DENY),
    ("free", "anything.example", ALLOW),
    ("free", "bad2.example", DENY),
    ("free", "both.example", DENY),
    ("nobody", "default.example", ALLOW),
    ("nobody", "good.example", ALLOW),
    ("nobody", "bad2.example", DENY),
    ("nobody", "anything.example", REPORT),
    ("nobody", "example1.com", REPORT),
    ("", "anything.example", REPORT),
]


def verdict(acl: Acl, role: str, host: str, groups: tuple[str, ...] = ()) -> str:
    answer = acl.ask(host=host, port=443, caller=Caller(role, groups))
    return DENY if answer.outcome != "ok" else REPORT if answer.report else ALLOW


@pytest.mark.parametrize(("role", "host", "expected"), TABLE)
def test_it_decides_as_smokescreen_does(role, host, expected):
    acl = Acl(read_smokescreen(ACL, "acl.yaml"))
    assert verdict(acl, role, host) == expected


def decide(file: dict[str, Any], role: str, host: str) -> str:
    """Smokescreen's own order of questions, for one role."""
    def among(globs: list[str] | None) -> bool:
        return any(host == glob or (glob[0] == "*" and host.endswith(glob[1:]))
                   for glob in globs or ())
    found = [service for service in file["services"] if service["name"] == role]
    rule = found[0] if found else file.get("default")
    if rule is None:
        return DENY
    if among(rule.get("allowed_domains")):
        return ALLOW
    if among(file.get("global_deny_list")):
        return DENY
    if among(file.get("global_allow_list")):
        return ALLOW
    return {"enforce": DENY, "report": REPORT, "open": ALLOW}[rule["action"]]


@pytest.mark.parametrize("without", [
    (), ("default",), ("global_allow_list",), ("global_deny_list",),
    ("default", "global_allow_list", "global_deny_list")])
def test_every_role_and_host_agree_with_its_order_of_questions(without):
    file = yaml.safe_load(ACL)
    for key in without:
        del file[key]
    acl = Acl(read_smokescreen(yaml.safe_dump(file), "acl.yaml"))
    for role in ("strict", "watched", "free", "nobody"):
        for host in {host for _, host, _ in TABLE}:
            assert verdict(acl, role, host) == decide(file, role, host), (role, host)


def test_a_member_of_the_group_has_the_role():
    acl = Acl(read_smokescreen(ACL, "acl.yaml"))
    assert verdict(acl, "ann", "example1.com", ("strict",)) == ALLOW
    assert verdict(acl, "ann", "anything.example", ("strict",)) == DENY


def test_of_several_roles_the_strictest_action_holds():
    acl = Acl(read_smokescreen(ACL, "acl.yaml"))
    assert verdict(acl, "free", "anything.example", ("strict",)) == DENY
    assert verdict(acl, "free", "example1.com", ("strict",)) == ALLOW
    assert verdict(acl, "free", "anything.example", ("watched",)) == REPORT


def test_a_rule_knows_its_service_and_line():
    policy = read_smokescreen(ACL, "acl.yaml")
    assert [(rule.name, rule.source) for rule in policy.rules[:2]] == [
        ("strict", "acl.yaml:4"), ("watched", "acl.yaml:11")]


def test_anchors_and_no_services_are_read():
    text = ("version: v1\nservices:\n- &a {name: a, action: open}\n"
            "- {<<: *a, name: b, action: enforce}\n")
    acl = Acl(read_smokescreen(text, "x"))
    assert verdict(acl, "a", "c.d") == ALLOW
    assert verdict(acl, "b", "c.d") == DENY
    acl = Acl(read_smokescreen("version: v1\nservices: []\ndefault: {action: open}",
                               "x"))
    assert verdict(acl, "a", "c.d") == ALLOW


def test_external_proxies_may_stand():
    text = "{name: a, action: enforce, allowed_external_proxies: [p.example]}"
    assert read_smokescreen(f"version: v1\nservices: [{text}]", "x").rules


def service(text: str) -> str:
    return f"version: v1\nservices:\n- {{name: a, {text}}}"


@pytest.mark.parametrize(("text", "message"), [
    ("a: [", "line "),
    ("a: b: c", "line 1: mapping values are not allowed"),
    ("!!python/object:os.system {}", "line 1: could not determine a constructor"),
    ("", "takes a mapping"),
    ("- 1", "takes a mapping"),
    ("[a]: 1", "line 1: a key that is not a string"),
    ("version: v1\nversion: v1", "line 1: version occurs twice"),
    ("version: v2\nservices: []", "version: takes v1, not 'v2'"),
    ("services: []", "version: takes v1, not None"),
    ("version: v1", "services: is missing"),
    ("version: v1\nservices: {a: b}", "services: takes a list"),
    ("version: v1\nservices: [a]", "services: takes mappings"),
    ("version: v1\nservices: []\ndefaults: {}",
     "defaults: no such key; did you mean default?"),
    ("version: v1\nservices: []\ndefault: open", "default: takes a mapping"),
    ("version: v1\nservices: []\ndefault: {action: deny}",
     "line 3: action: 'deny' is not one of open, report, enforce"),
    ("version: v1\nservices:\n- action: open", "line 3: name: takes a string"),
    ("version: v1\nservices:\n- {name: 7, action: open}",
     "line 3: name: takes a string"),
    (service("action: open") + "\n- {name: a, action: open}",
     "line 4: name: 'a' occurs twice"),
    (service("action: allow"),
     "line 3: action: 'allow' is not one of open, report, enforce"),
    (service("project: x"), "line 3: action: None is not one of open, report, enforce"),
    (service("action: open, domains: []"), "line 3: domains: no such key; did you mean "
                                           "mitm_domains?"),
    (service("action: open, mitm_domains: [{domain: a.b}]"),
     "line 3: mitm_domains: is not supported: tunnels are not decrypted"),
    (service("action: open, allowed_domains: a.b"),
     "line 3: allowed_domains: takes a list of strings"),
    *((service(f"action: open, allowed_domains: ['{glob}']"),
       f"line 3: allowed_domains: '{glob}'{why}") for glob, why in (
        ("*", " matches every host"),
        ("*.", " matches every host"),
        ("", " matches every host"),
        ("*.*.a.com", ": * is allowed only as the first label, as in *.example.com"),
        ("a.*.com", ": * is allowed only as the first label, as in *.example.com"),
        ("*a.com", ": * is allowed only as the first label, as in *.example.com"),
        ("A.com", ": use a.com"),
        ("*.A.com", ": use *.a.com"),
        ("a.com.", ": use a.com"),
        ("bücher.example", ": use xn--bcher-kva.example"),
        ("*.10.0.0.1", ": an address has no subdomains"),
        ("a.com:443", " is not a host name or address; ports belong in `ports`"),
    )),
    ("version: v1\nservices: []\nglobal_deny_list: ['*']",
     "global_deny_list: '*' matches every host"),
    ("version: v1\nservices: []\nglobal_allow_list: 7",
     "global_allow_list: takes a list of strings"),
    (f"services: []\nversion: 0x{'f' * 5000}",
     "line 2: an integer has more than 64 bits"),
])
def test_a_mistake_is_told_with_its_place(text, message):
    with pytest.raises(PolicyError) as caught:
        read_smokescreen(text, "acl.yaml")
    said = str(caught.value)
    assert re.sub(r"^acl.yaml:([0-9]+):", r"acl.yaml: line \1:", said).startswith(
        f"acl.yaml: {message}")
