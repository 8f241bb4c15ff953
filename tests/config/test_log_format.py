"""Formats of the access log: valid ones, and refusals with their words."""

import re

import pytest

from cutthrough.config.log_format import (
    ALIASES,
    CODES,
    PRESETS,
    Step,
    parse_format,
    parse_log_format,
)
from cutthrough.log.fields import NUMBERS
from cutthrough.outcome import TABLE
from tests.support.proxy import ROOT

DOCS = (ROOT / "docs" / "logs.md").read_text()


@pytest.mark.parametrize(("text", "steps"), [
    ("%>a", [Step(">a", "")]),
    ("a%%b%ts", [Step("", "a"), Step("", "%"), Step("", "b"), Step("ts", "")]),
    ("%03tu", [Step("tu", "", zero=True, width=3)]),
    ("%-10.20un", [Step("un", "", left=True, width=10, most=20)]),
    ("%http::ru", [Step("ru", "")]),
    ("%>rm", [Step("rm", "")]),
    ("%tsx", [Step("ts", ""), Step("", "x")]),
    ("%{User-Agent}>h", [Step(">h", "user-agent")]),
    ("%>h{Referer}", [Step(">h", "referer")]),
    ('"%ru" %ru', [Step("", '"'), Step("ru", "", '"'), Step("", '" '),
                   Step("ru", "")]),
    ('"%[ru"', [Step("", '"'), Step("ru", "", "["), Step("", '"')]),
    ('"%/ru"', [Step("", '"'), Step("ru", "", '"'), Step("", '"')]),
    ("%{%H}tg", [Step("tg", "%H")]),
    ("%ct::id", [Step("ct::id", "")]),
    (r"%un\t%>a", [Step("un", ""), Step("", "\t"), Step(">a", "")]),
    ("%,un", [Step("un", "", ",")]),
    ('"%,un"', [Step("", '"'), Step("un", "", '"'), Step("", '"')]),
])
def test_a_format_is_read_as_squid_reads_it(text, steps):
    assert parse_format(text) == tuple(steps)


@pytest.mark.parametrize(("text", "reason"), [
    ("%Hs", "no such code %Hs; did you mean %>Hs?"),
    ("%TS", "no such code %TS; did you mean %ts?"),
    ("%ct::reson", "did you mean %ct::reason?"),
    ("%ssl::>cert_subject", "no such code"),
    ("%<h", "no such code %<h; did you mean %>h?"),
    ("%", "no such code %"),
    ("%>a %", "no such code %"),
    ("%>a %!", "no such code %!"),
    ("%%", "contains no code"),
    ("%'ru", "a client could forge lines"),
    ("%>h", "takes the name of a field"),
    ("%{a b}>h", "takes the name of a field"),
    ("%{Proxy-Authorization}>h", "never logged"),
    ("%{cookie}>h", "never logged"),
    ("%{x}un", "takes no argument"),
    ("%{a}>h{b}", "two arguments"),
    ("%{%n}tl", "not one line"),
    ("%{}tl", "not one line"),
    ("%{" + "%A" * 30 + "}tl", "not one line"),
    ("%300un", "the largest width is 255"),
    ("%.300un", "the largest width is 255"),
    ("%un" + "x" * 3500, "makes lines of"),
    ("%200ts" * 20, "makes lines of"),
])
def test_a_bad_format_is_refused(text, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_log_format(text)


def test_what_is_no_preset_and_no_format_is_refused():
    with pytest.raises(ValueError, match=r"did you mean combined\?"):
        parse_log_format("combinde")
    with pytest.raises(ValueError, match="is not one of squid, common, combined, ltsv"):
        parse_log_format("")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_format(name):
    assert parse_log_format(name) == name
    assert len(parse_format(PRESETS[name])) > 8


def test_every_code_is_compiled_and_documented():
    assert set(NUMBERS) - {""} == set(CODES)
    for code in [*CODES, *ALIASES]:
        assert f"`%{code}`" in DOCS, code
    assert set(ALIASES.values()) <= set(CODES)


def test_the_room_of_a_field_is_enough_for_its_longest_word():
    """FIRSTUP_PARENT has 14 letters, and %Sh had room for 12."""
    for row in TABLE:
        for code, word in (("ct::reason", row.label), ("err_code", row.label),
                           ("err_detail", row.token), ("Ss", row.tag)):
            assert len(word) <= CODES[code], (code, word)
    source = (ROOT / "cutthrough/log/fields.pyx").read_text()
    words = re.findall(r'b"(HIER_\w+|\w+_PARENT)"', source)
    assert len(words) == 3 and max(map(len, words)) <= CODES["Sh"]
