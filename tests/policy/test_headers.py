"""Header rules of a policy: how they are read, and what they make of a head."""

import pytest

from cutthrough.policy.headers import KNOWN, make_edits
from cutthrough.policy.rules import read_policy
from cutthrough.policy.source import Edits, Headers, Policy, PolicyError
from tests.doors.wire import change_head

HEAD = (b"GET / HTTP/1.1\r\nHost: a\r\nCookie: c\r\nX-Team: forged\r\nx-team: twice\r\n"
        b"Accept: */*\r\nVia: 1.1 p\r\n\r\n")


def read(text: str) -> Policy:
    return read_policy(text, "policy.toml", lambda name: "")


def changed(text: str, names: str = "all", head: bytes = HEAD, user: bytes = b"ann",
            cap: int = 4096) -> list[bytes]:
    """The lines of the changed head, without the first and the last."""
    policy = read(f"{text}\n[[rules]]\naction = \"allow\"\nheaders = "
                  f"{names.split()}".replace("'", '"'))
    edits = make_edits(policy)[0][0]
    assert edits is not None
    out: bytes = change_head(edits, head, user, b"10.0.0.1", cap)
    lines = out.split(b"\r\n")
    assert lines[0] == head.split(b"\r\n")[0] and lines[-2:] == [b"", b""]
    return lines[1:-2]


def test_all_keys_are_read():
    policy = read("""
        [headers.team.request]
        set = { X-Team = "platform", X-User = "{user}" }
        add = { Via2 = "a" }
        remove = ["Cookie"]
        [headers.team.response]
        remove = ["Server"]
    """)
    assert policy.headers["team"] == Headers(
        request=Edits(set=(("X-Team", "platform"), ("X-User", "{user}")),
                      add=(("Via2", "a"),), remove=("Cookie",)),
        response=Edits(remove=("Server",)))


def test_what_is_set_replaces_every_field_of_its_name():
    assert changed("[headers.all.request]\nset = { X-TEAM = \"platform\" }") == [
        b"Host: a", b"Cookie: c", b"Accept: */*", b"Via: 1.1 p", b"X-TEAM: platform"]


def test_what_is_added_stands_beside_its_like():
    text = "[headers.all.request]\nadd = { X-Team = \"3\" }"
    assert changed(text)[-5:] == [
        b"X-Team: forged", b"x-team: twice", b"Accept: */*", b"Via: 1.1 p",
        b"X-Team: 3"]


def test_what_is_removed_is_gone_and_all_else_stays():
    text = "[headers.all.request]\nremove = [\"x-team\", \"COOKIE\", \"No\"]"
    assert changed(text) == [b"Host: a", b"Accept: */*", b"Via: 1.1 p"]


def test_the_next_table_changes_what_the_one_before_made():
    text = """
        [headers.first.request]
        set = { X-Team = "first", X-Kept = "k" }
        [headers.second.request]
        remove = ["x-team"]
        add = { Accept = "a/b" }
    """
    assert changed(text, "first second") == [
        b"Host: a", b"Cookie: c", b"Accept: */*", b"Via: 1.1 p", b"X-Kept: k",
        b"Accept: a/b"]
    assert changed(text, "second first")[-2:] == [b"X-Team: first", b"X-Kept: k"]


def test_a_value_names_the_user_and_the_client():
    text = "[headers.all.request]\nset = { X-Who = \"<{user}> at {client}{user}\" }"
    assert changed(text)[-1] == b"X-Who: <ann> at 10.0.0.1ann"
    assert changed(text, user=b"")[-1] == b"X-Who: <> at 10.0.0.1"


def test_a_name_of_a_user_ends_no_line():
    """R41: what a client has chosen cannot become a field."""
    text = "[headers.all.request]\nset = { X-Who = \"{user}\" }"
    assert changed(text, user=b"a\r\nX-Admin: 1\x00\x7f\xff")[-1] == (
        b"X-Who: a??X-Admin: 1??\xff")


@pytest.mark.parametrize("cap", range(len(HEAD), len(HEAD) + 30))
def test_a_head_that_does_not_fit_is_none(cap):
    policy = read("[headers.all.request]\nadd = { Long = \"0123456789\" }\n"
                  "[[rules]]\naction = \"allow\"\nheaders = \"all\"")
    edits = make_edits(policy)[0][0]
    fits = cap >= len(HEAD) + len("Long: 0123456789\r\n")
    assert bool(change_head(edits, HEAD, b"", b"", cap)) == fits


def test_a_direction_without_changes_costs_nothing():
    policy = read("[headers.all.request]\nremove = [\"Cookie\"]\n[[rules]]\naction = "
                  "\"allow\"\n[[rules]]\naction = \"allow\"\nheaders = [\"all\"]")
    (number, (request, response)), = make_edits(policy).items()
    assert (number, response) == (1, None)
    assert request is not None and request.dropped == (b"cookie",)


OF_MESSAGE = (
    "Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade", "TE",
    "Trailer", "Via", "Expect", "Keep-Alive", "Max-Forwards", "HTTP2-Settings",
    "Proxy-Authorization", "proxy-connection")


@pytest.mark.parametrize("name", OF_MESSAGE)
@pytest.mark.parametrize("key", ["set", "add", "remove"])
def test_fields_that_end_or_lead_a_message_are_the_proxys(key, name):
    value = f'["{name}"]' if key == "remove" else f'{{ {name} = "1" }}'
    with pytest.raises(PolicyError, match="is the proxy's own"):
        read(f"[headers.bad.request]\n{key} = {value}")


@pytest.mark.parametrize(("text", "reason"), [
    ("", "changes nothing"),
    ("request = {}", "changes nothing"),
    ("request = \"a\"", "takes a table with set, add, remove"),
    ("request = { drop = [\"a\"] }", "takes a table with set, add, remove"),
    ("request = { remove = \"a\" }", "remove takes a list of names"),
    ("request = { remove = [\"a b\"] }", "'a b' is no name of a field"),
    ("request = { remove = [1] }", "1 is no name of a field"),
    ("request = { set = [\"a\"] }", "set takes a table of fields"),
    ("request = { set = { \"a:\" = \"1\" } }", "no name of a field"),
    ("request = { set = { a = 1 } }", "set.a takes a text of one line"),
    ("request = { set = { a = \" b\" } }", "set.a takes a text of one line"),
    ("request = { set = { a = \"1\\r\\nb: 2\" } }", "set.a takes a text of one line"),
    ("request = { set = { a = \"\\u0000\" } }", "set.a takes a text of one line"),
    ("request = { add = { a = \"" + "x" * 1025 + "\" } }", "at most 1024 bytes"),
    ("request = { add = { a = \"{host}\" } }", "{host} is none of {user}, {client},"),
    ("request = { add = { a = \"{traceparent}\" } }", "is of set, in requests"),
    ("response = { set = { a = \"{traceparent}\" } }", "is of set, in requests"),
    ("request = { remove = [" + "\"a\"," * 33 + "] }", "more than 32 fields"),
    ("requests = { remove = [\"a\"] }", "requests")])
def test_what_cannot_be_used_is_an_error(text, reason):
    with pytest.raises(PolicyError) as caught:
        read(f"[headers.bad]\n{text}")
    assert reason in str(caught.value)


@pytest.mark.parametrize(("rule", "reason"), [
    ("action = \"deny\"\nheaders = \"all\"", "has no effect in a rule that denies"),
    ("action = \"allow\"\nheaders = \"al\"", "all")])
def test_a_rule_names_tables_that_are_there(rule, reason):
    with pytest.raises(PolicyError) as caught:
        read(f"[headers.all.request]\nremove = [\"a\"]\n[[rules]]\n{rule}")
    assert reason in str(caught.value)


def test_the_names_of_values_are_known_to_both_sides():
    assert KNOWN == (
        "user", "client", "client_ja4", "http2_fingerprint", "tcp_fingerprint",
        "client_ja4_r", "client_ja4_o", "client_ja4_ro", "client_ja3", "dropped",
        "traceparent")


def test_the_names_of_what_was_dropped_are_told():
    text = ('[headers.all.request]\nremove = ["X-Gone", "Cookie"]\n'
            'set = { X-Team = "a", X-Forged = "{dropped}" }')
    assert changed(text)[-1] == b"X-Forged: cookie, x-team", "each once"
    forged = HEAD.replace(b"Accept: */*", b"X-FORGED: none")
    assert changed(text, head=forged)[-1] == b"X-Forged: cookie, x-forged, x-team"
    plain = b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 p\r\n\r\n"
    assert changed(text, head=plain)[-1] == b"X-Forged: "
