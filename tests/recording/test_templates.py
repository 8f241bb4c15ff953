"""Templates in answers: their values, their refusals, hoverfly's."""

import contextlib
import re
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats.handlebars import translate
from cutthrough.recording.model import template_values
from cutthrough.recording.model.recording import Chunk, Recording, Request, Response
from cutthrough.recording.model.templates import TemplateMistake, check, render

pytest.importorskip("jinja2")

ASKED = Request(
    method="POST", scheme="http", host="a.example", port=80, path="/zero/one",
    query="page=2&page=3&items=x", fields=(("X-User", "ann"), ("x-user", "bob")),
    body=b'{"user": {"items": ["p", "q"]}, "id": 123}')
FORM = Request(
    method="POST", scheme="https", host="a.example", port=8443, path="/",
    fields=(("Content-Type", "application/x-www-form-urlencoded"),),
    body=b"email=a%40b.example&x=1")


def made(text, *fields):
    return Recording(request=ASKED, template=True, response=Response(
        status=200, fields=fields, chunks=(Chunk(5, text[:3].encode()),
                                           Chunk(9, text[3:].encode()))))


def fill(text, asked=ASKED, **state):
    return render(made(text), asked, state).response.body.decode()


@pytest.mark.parametrize(("text", "found"), [
    ("{{ request.method }} {{ request.url }}",
     "POST http://a.example/zero/one?page=2&page=3&items=x"),
    ("{{ request.query.page }}{{ request.query.items }}", "2x"),
    ("{{ request.segments[1] }}{{ request.segments[-2] }}", "onezero"),
    ("{{ request.fields['x-user'] }}", "ann"),
    ("{{ json.id + 1 }}{{ json.user['items'][1] }}", "124q"),
    ("{% for one in json.user.items %}{{ loop.index }}{{ one }},{% endfor %}",
     "1p,2q,"),
    ("{{ state.cart }}{{ state.no | default('-') }}", "eggs-"),
    ("{% if request.query.page | int > 1 %}more{% else %}first{% endif %}", "more"),
    ("{{ json.user | tojson }}", '{"items": ["p", "q"]}'), ("é{{ 1 }}\n", "é1\n")])
def test_a_template_sees_the_request_and_the_state(text, found):
    assert fill(text, cart="eggs") == found


def test_a_form_is_a_table():
    assert fill("{{ request.form.email }} {{ request.port }}", FORM) == (
        "a@b.example 8443")


@pytest.mark.parametrize(("text", "result"), [
    ("--x\r\nA: b\r\n\r\n{{ 1 }}\r\n--x--\r\n", None), ("a\rb\n{{ 1 }}\r\nc\n", None),
    ("a\r\n{{\r\n1\r}}\r\n", "a\r\n1\r\n"), ("\r\n {#\r\n-#}\r\n\r\nb\r", "\r\n b\r"),
    ("\r\n{%- if\r1 -%}\r\nx{% endif %}\r\n", "x\r\n"), ("{{ 'a\r\nb' }}", "a\r\nb"),
    ("\r{% raw %}{%- endraw -%}{% raw %}\r\n\n{%- endraw %}\r\n", "\r\r\n"),
    ("\x1c\u2028\r\n{{ 1 }}\x1c", None)])
def test_the_ends_of_lines_stay(text, result):
    """Each was made a line feed: a multipart body was none any more."""
    assert fill(text) == (text.replace("{{ 1 }}", "1") if result is None else result)


def test_functions_make_times_and_identifiers():
    now = int(fill("{{ now('unix') }}"))
    assert abs(now - time.time()) < 5
    later = int(fill("{{ now('unix_ms', days=1, hours=-1, seconds=2) }}")) // 1000
    assert abs(later - now - 23 * 3600 - 2) < 5
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", fill("{{ now() }}"))
    assert fill("{{ now('http') }}").endswith(" GMT")
    assert re.fullmatch(r"\d\d/\d{4}", fill("{{ now('%m/%Y') }}"))
    assert len({fill("{{ uuid() }}") for _ in range(10)}) == 10
    assert {fill("{{ random_int(1, 2) }}") for _ in range(60)} == {"1", "2"}


def test_fields_are_templates_and_the_length_is_that_of_what_is_made():
    page = "{{ request.query.page }}"
    one = render(made(page, ("X-Page", page), ("X-Evil", "{{ request.body }}"),
                      ("content-length", "24")),
                 Request(method="GET", scheme="http", host="a", port=80, path="/",
                         query="page=77", body=b"a\r\nX: y\0"), {}).response
    assert one.fields == (("X-Page", "77"), ("X-Evil", "a  X: y "),
                          ("Content-Length", "2"))
    assert one.chunks == (Chunk(9, b"77"),)


@pytest.mark.parametrize("text", [
    "{{ ''.__class__ }}", "{{ request.__class__ }}", "{{ now.__globals__ }}",
    "{{ request.items() }}", "{{ 'x' * 1000000000 }}", "{{ 9 ** 9 ** 9 }}",
    "{{ 'a'.center(9999999) }}", "{{ '%99999999d' % 1 }}", "{{ 'a' + 'b' }}",
    "{{ 'a' ~ 'b' }}", "{% set a = 1 %}", "{% macro a() %}{{ a() }}{% endmacro %}",
    "{% include 'a' %}", "{% import 'a' as b %}", "{% extends 'a' %}",
    "{% for a in json %}{% for b in json %}{% endfor %}{% endfor %}",
    "{% for a in json recursive %}{{ loop(a) }}{% endfor %}",
    "{{ 'a' | center(99999999) }}", "{{ 'a' | attr('b') }}", "{{ range(9) }}",
    "{{ [1] }}", "{{ lipsum() }}", "{{ nothing }}", "{{ request.nothing }}",
    "{{ request.query.nothing }}", "{{ json['a']['b'] }}", "{{", "{% if %}",
    "{{ 1 / 0 }}",
    "{{ now('x' ) }}{{ now(days=10000000) }}", "{{ random_int(2, 1) }}",
    "{{ loop.index }}", "{% for a in json %}{{ loop.changed }}{% endfor %}",
    "{{ '\\'" + "|tojson" * 40 + " }}"])
def test_a_template_that_may_do_more_or_cannot_be_filled_is_refused(text):
    begun = time.monotonic()
    with pytest.raises(TemplateMistake):
        fill(text)
    assert time.monotonic() - begun < 2


def test_what_a_template_makes_is_bounded():
    asked = Request(method="POST", scheme="http", host="a", port=80, path="/",
                    body=b"[" + b"1," * 1000 + b"1]")
    with pytest.raises(TemplateMistake, match="more than"):
        fill("{% for a in json %}{{ request.body }}{% endfor %}", asked)


def test_an_answer_without_a_body_stays_without():
    one = Recording(request=ASKED, template=True, response=Response(
        status=204, fields=(("X-A", "{{ request.query.page }}"),)))
    assert render(one, ASKED, {}).response.chunks == ()


def test_what_cannot_be_read_is_told_before_it_is_needed():
    check(made("{{ nothing }} is only known later"))
    with pytest.raises(TemplateMistake, match="line 2"):
        check(made("a\n{% set a = 1 %}"))
    with pytest.raises(TemplateMistake):
        check(made("", ("X", "{{")))


@pytest.mark.parametrize(("text", "found"), [
    ("{{ Request.Scheme }} {{Request.Method}} {{ Request.Host }}",
     "http POST a.example"),
    ("{{ Request.QueryParam.page }}{{ Request.QueryParam.no }}", "2"),
    ("{{ Request.Path.[1] }}{{ Request.Path.[7] }}", "one"),
    ("{{ Request.Body 'jsonpath' '$.id' }}", "123"),
    ("{{ Request.Header.X-User }}", "ann"), ("{{ State.cart }}", "&lt;eggs&gt;"),
    ("{{{ State.cart }}}", "<eggs>"), ("{{! a remark }}x", "x"),
    ("{{#if State.cart}}a{{else}}b{{/if}}{{#if State.no}}a{{else}}b{{/if}}", "ab"),
    ("{{#each (Request.Body 'jsonpath' '$.user.items')}}{{@index}}:{{this}} {{/each}}",
     "0:p 1:q "),
    ("{% raw {# {{ Request.Method }}", "{% raw {# POST"),
    ('{"a":{"b":"{{ Request.Method }}"}}', '{"a":{"b":"POST"}}')])
def test_hoverflys_templates_make_the_same(text, found):
    assert fill(translate(text), cart="<eggs>") == found


@pytest.mark.parametrize(("path", "found"), [
    ("/cart/item", "eggs &amp; ham"), ("cart/item[2]", "tea"), ("//item[2]/@n", "7"),
    ("//item[@n]/text()", "tea"), ("/cart/none", ""), ("/cart", "eggs &amp; hamtea"),
    ("//p:item", ""), ("/cart/item[count(//item)]", "tea"),
    ("cart/*[contains(., \"]\") or @n]", "tea"), ("..", "")])
def test_hoverflys_xpath_of_a_body(path, found):
    """In a template of ours: xpath("/cart/item")."""
    asked = msgspec.structs.replace(ASKED, body=(
        b"<cart><item>eggs &amp; ham</item><item n='7'>tea</item></cart>"))
    text = translate(f"{{{{ Request.Body 'xpath' '{path}' }}}}")
    assert fill(text, asked) == found
    assert fill(text, msgspec.structs.replace(ASKED, body=b"<!DOCTYPE a><a/>")) == ""
    assert fill(text, msgspec.structs.replace(ASKED, body=b"no XML")) == ""


def test_hoverflys_helpers_make_times_and_identifiers():
    assert abs(int(fill(translate("{{ now '1d' 'unix' }}"))) - time.time() - 86400) < 5
    assert abs(int(fill(translate("{{ now '-1h30m' 'epoch' }}"))) / 1000
               - time.time() + 5400) < 5
    assert re.fullmatch(r"\d{4}-[A-Z][a-z]{2}-\d\d", fill(translate(
        "{{ now '-1d' '2006-Jan-02' }}")))
    assert fill(translate("{{ now '' '' }}")).endswith("Z")
    assert len(fill(translate("{{ randomUuid }}"))) == 36
    assert 1 <= int(fill(translate("{{ randomIntegerRange 1 10 }}"))) <= 10


@pytest.mark.parametrize("text", [
    "{{ faker 'Name' }}", "{{ csv 'a' 'b' 'c' 'd' }}", "{{#unless a}}{{/unless}}",
    "{{ Request }}", "{{ Request.Body 'jsonpathfromxml' '$.a' }}",
    "{{ Request.Body 'xpath' 'count(cart/item)' }}", "{{ Request.Body 'xpath' 'a|b' }}",
    "{{ Request.Body 'xpath' '(a)[2]' }}", "{{ Request.Body 'xpath' '][' }}",
    "{{ Request.QueryParam.a.[1] }}",
    "{{#if State.a}}", "{{/if}}", "{{ }}", "{{ now 'tomorrow' }}", "{{ Vars.a }}",
    "{{#each State.a}}{{#each State.b}}{{/each}}{{/each}}",
    "{{ Request.Body 'jsonpath' '$..a' }}"])
def test_what_hoverfly_would_answer_otherwise_is_refused(text):
    with pytest.raises(NotImported, match="template"):
        translate(text)


WORDS = ("request.body", "request.port", "json", "'x'", "9", "1.5", "state", "one",
         "request.query.page", "json.user['items']", "loop.index", "nothing")
EXPRESSIONS = st.recursive(st.sampled_from(WORDS), lambda inner: (
    st.builds("{} | {}".format, inner, st.sampled_from((
        "upper", "lower", "escape", "urlencode", "tojson", "title", "trim", "length",
        "first", "last", "int", "float", "abs", "round", "round(9, 'ceil')",
        "round(20000000, 'ceil')", "default('x')", "trim('xx')", "round(-400)")))
    | st.builds("({} {} {})".format, inner, st.sampled_from(
        ("+", "-", "==", "<", "in", "and", "or", "*", "**", "~", "%")), inner)
    | st.builds("({} if {} else {})".format, inner, inner, inner)
    | st.builds("{}[{}]".format, inner, inner) | st.builds("now({})".format, inner)
    | st.builds("xpath({})".format, inner) | st.builds("[{}] * 9".format, inner)
    | st.builds("range({})".format, inner)), max_leaves=6)
BLOCKS = st.recursive(st.builds("{{{{ {} }}}}".format, EXPRESSIONS), lambda inner: (
    st.builds("{}{}".format, inner, inner)
    | st.builds("{{% for one in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner)
    | st.builds("{{% if {} %}}{}{{% endif %}}".format, EXPRESSIONS, inner)),
    max_leaves=4)


@given(BLOCKS, st.integers(0, 3000), st.sampled_from(
    (b'"a",', b"[1],", b'{"a": "b"},')))
@settings(deadline=None, max_examples=300)
def test_a_template_of_any_form_is_refused_or_filled_in_bounded_time(text, count, item):
    """R68. `{{ 1 | round(20000000, 'ceil') }}` hung the supervisor: Jinja2's compiler
    evaluates constant expressions."""
    asked = msgspec.structs.replace(ASKED, body=b"[" + item * count + b"1]")
    begun = time.thread_time()
    try:
        size = len(fill(text, asked))
    except TemplateMistake:
        size = 0
    assert time.thread_time() - begun < 5
    assert size <= 1 << 20


@pytest.mark.parametrize("text", [
    "{{ 1 | round(20000000, 'ceil') }}", "{{ request.port | round(20000000) }}",
    "{% for a in request.body %}{% if request.body|upper == 'x' %}{% endif %}"
    "{% endfor %}", "{{ now('%99999999Y') }}", "{{ 1" + " + 1" * 10_000 + " }}",
    "{{ " + "(" * 400 + "1" + ")" * 400 + " }}", "{{ " + "-" * 1000 + "1 }}",
    "{{ " + "9" * 5000 + " }}", "{{ 1 | center(9) }}", "{{ 1 is sameas(1) }}",
    "{{ now(*json) }}", "{{ '%s' | format(1) }}"])
def test_no_number_makes_work(text):
    """R68."""
    begun = time.thread_time()
    with pytest.raises(TemplateMistake):
        fill(text, msgspec.structs.replace(ASKED, body=b"a" * 100_000))
    assert time.thread_time() - begun < 5


def test_nothing_is_evaluated_when_a_template_is_checked(monkeypatch):
    """R68: the supervisor checks every edit."""
    called = []
    for table in (template_values.FILTERS, template_values.FUNCTIONS,
                  template_values.OPERATORS, template_values.TESTS):
        for name in table:
            monkeypatch.setitem(table, name, lambda *given: called.append(given))
    check(made("{{ 1 | round(2) }}{{ 'a' | upper }}{% if 1 < 2 %}{{ uuid() }}"
               "{% endif %}{{ now('%Y') if 2 is even else 1 + 1 }}"))
    assert not called
    jinja2 = pytest.importorskip("jinja2")
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert fill("{{ 1 + 1 }}") == "2"


@pytest.mark.parametrize("piece", [
    "{{", "{%", "{#", "}}", "{{ '", '{{ "', "{% raw %}", "{%- ", "\n", " ", "{{ 1_",
    "{{ 1.", "{{ a.", "{{ 'a' ", "{{ (", "{{ -"])
def test_a_template_is_read_in_one_pass(piece):
    """R66: hoverfly's as well as ours."""
    for text in (piece * (200_000 // len(piece)), piece + " " * 200_000,
                 piece[:-1] + piece[-1] * 200_000):
        begun = time.thread_time()
        for read in (lambda text: check(made(text)), translate):
            with contextlib.suppress(TemplateMistake, NotImported):
                read(text)
        assert time.thread_time() - begun < 10
