"""A user's name is one name, however the operator's file spells it."""

import pytest

from cutthrough.config.settings import load
from cutthrough.policy.acl import Acl
from cutthrough.policy.answer import Caller
from cutthrough.policy.rules import add_users
from cutthrough.policy.smokescreen import read_smokescreen
from cutthrough.policy.source import Policy, PolicyError
from cutthrough.policy.users import read_htpasswd
from tests.support.policies import HASH, read
from tests.support.toml import toml

NAME = "jos\u00e9 b"
SPELLINGS = ["jose\u0301 b", "jos\u00e9\u00a0b", NAME]
RULE = "default = 'allow'\n[[rules]]\naction = 'deny'\n"


def outcome(policy: Policy, user: str = NAME) -> str:
    caller = Caller(user, policy.groups_of(user))
    return Acl(policy).ask(host="a.test", port=443, caller=caller).outcome


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_rule_denies_its_user(spelling):
    """The client's name is composed, and the rule's was not: it denied nobody."""
    assert outcome(read(f"{RULE}users = ['{spelling}']")) == "destination_denied"
    assert outcome(read(f"{RULE}users = ['{spelling}']"), "jose b") == "ok"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_group_has_its_members(spelling):
    policy = read(f"{RULE}groups = ['guests']\n[groups]\nguests = ['{spelling}']")
    assert outcome(policy) == "destination_denied"
    users = add_users(policy, read_htpasswd(f"{NAME}:{HASH}", "users"), "users").users
    assert users[NAME].groups == ("guests",)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_limits_and_users_of_every_file_have_the_same_name(spelling):
    text = f"[limits.slow]\nusers = ['{spelling}']\nconnections = 1\n"
    assert read(text).user_limits == {NAME: "slow"}
    assert [*read(f"[users.'{spelling}']\npassword = '{HASH}'").users] == [NAME]
    assert [*read_htpasswd(f"{spelling}:{HASH}", "users")] == [NAME]


def test_two_spellings_are_no_two_users():
    lines = [f"[users.'{spelling}']\npassword = '{HASH}'\n" for spelling in SPELLINGS]
    with pytest.raises(PolicyError, match="is defined twice, in two spellings"):
        read("".join(lines[:2]))
    with pytest.raises(PolicyError, match="is already defined in line 1"):
        read_htpasswd("".join(f"{name}:{HASH}\n" for name in SPELLINGS), "users")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_configuration_has_the_same_name(spelling, tmp_path):
    text = (f"user = '{spelling}'\npassword = 'one'\n[[listeners]]\n"
            f"address = '127.0.0.1:0'\nauth = 'none'\nuser = '{spelling}'\n"
            f"[sources.home]\naddresses = ['127.0.0.2']\nusers = ['{spelling}']\n")
    config = load((), {}, toml(tmp_path, text))
    assert config.user == NAME
    assert [listener.user for listener in config.listeners] == [NAME]
    assert config.sources[0].users == (NAME,)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_role_of_smokescreen_has_the_same_name(spelling):
    policy = read_smokescreen(f"""
version: v1
services:
  - {{name: "{spelling}", project: one, action: enforce, allowed_domains: [b.test]}}
default: {{project: other, action: open}}
""", "acl.yaml")
    assert outcome(policy) == "destination_denied"
    assert outcome(policy, "ann") == "ok"
