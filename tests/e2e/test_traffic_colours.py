"""The page "Traffic" in a real browser: colours for the syntax of bodies."""

import json

import pytest

from tests.capture.flows import row
from tests.support.browser import needs_chromium
from tests.support.traffic import HOSTILE
from tests.support.traffic import page as page
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop,
    needs_chromium,
    pytest.mark.dials_out,                   # Chromium checks if IPv6 has a route
]

SPANS = ("[...document.querySelectorAll('#{side}-body .shown [class^=c-]')]"
         ".map(span => [span.className.slice(2), span.textContent])")


def body(kind, text, **fields):
    return row(response_head=f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n",
               response_body=text, **fields)


def spans(page, side="response"):
    """Kind and text of each coloured word."""
    return wait_until(
        lambda: page.browser.run(SPANS.replace("{side}", side)), "colours")


def show(page, view, side="response"):
    page.open()
    if side == "response":
        page.tab("response")
    return page.view(side, view)


def test_json_has_colours_for_keys_and_each_kind_of_value(page):
    """Before, a body was text of one colour."""
    text = '{"a": ["b\\"c", -1.5e3, true], "d:": null, "e": {}}'
    page.fill(body("application/json", text))
    page.enter()
    page.wait_rows(1)
    shown = show(page, "json")
    assert spans(page) == [
        ["key", '"a"'], ["string", '"b\\"c"'], ["number", "-1.5e3"], ["word", "true"],
        ["key", '"d:"'], ["word", "null"], ["key", '"e"']]
    assert page.text("#response-body .shown") == shown
    colours = {kind: page.browser.run(
        f"getComputedStyle(document.querySelector('.c-{kind}')).color")
        for kind in ("key", "string", "number", "word")}
    assert len({*colours.values()}) == 4
    page.view("response", "text")
    assert page.browser.run(SPANS.replace("{side}", "response")) == []
    assert page.browser.faults == []


def test_markup_has_colours_and_what_is_hostile_stays_text(page):
    text = ("<!-- <b> --><p class='a > b' hidden>x &lt; 1</p><script>if (a<b) '</p>'"
            f"</script><i title='{HOSTILE}'>{HOSTILE}</i>")
    page.fill(body("text/html", text))
    page.enter()
    page.wait_rows(1)
    shown = show(page, "html")
    coloured = spans(page)
    assert coloured[:5] == [["comment", "<!-- <b> -->"], ["key", "p"],
                         ["number", "class"], ["string", "'a > b'"],
                         ["number", "hidden"]]
    assert ["key", "b"] not in coloured           # of the script
    assert page.text("#response-body .shown") == shown
    assert page.browser.run("typeof pwned") == "undefined"
    assert page.browser.run("document.querySelectorAll('#panel img').length") == 0
    page.fill(body("application/xml", '<a x="1"><![CDATA[<b/>]]><c:d/></a>',
                   number=2))
    page.wait_rows(2)
    show(page, "xml")
    assert spans(page) == [["key", "a"], ["number", "x"], ["string", '"1"'],
                           ["comment", "<![CDATA[<b/>]]>"], ["key", "c:d"],
                           ["key", "a"]]
    assert page.browser.faults == []


def test_an_operation_of_graphql_is_shown_by_itself(page):
    head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\n\r\n"
    page.fill(row(request_head=head, request_body=json.dumps({
        "query": "query Item($id: ID!) { item(id: $id) { name } }",
        "operationName": "Item", "variables": {"id": 7}})))
    page.enter()
    page.wait_rows(1)
    shown = show(page, "graphql", "request")
    assert shown.splitlines()[:3] == [
        "# query Item", "query Item($id: ID!) {", "  item(id: $id) {"]
    coloured = spans(page, "request")
    for part in (["comment", "# query Item"], ["word", "query"], ["number", "$id"],
                 ["key", '"id"'], ["number", "7"]):
        assert part in coloured, part
    assert page.view("request", "json").startswith('{\n  "query": "query Item(')
    assert page.browser.faults == []


def test_of_a_long_body_the_blocks_in_view_have_colours(page):
    """And a comment that began in a block before is one in this block, too."""
    lines = "".join(f"<i>{n}</i>\n" for n in range(3000))
    page.fill(body("text/html", f"<p>a</p>\n<!--\n{lines}-->\n{lines}"))
    page.enter()
    page.wait_rows(1)
    page.open()
    page.tab("response")
    page.view("response", "html")
    spans(page)
    blocks = "[...document.querySelectorAll('#response-body .block')]"
    painted = page.browser.run(
        f"{blocks}.map(block => block.children.length > 0)")
    assert len(painted) > 10 and painted[0] and sum(painted) < len(painted) / 2
    page.browser.run(f"{blocks}[3].scrollIntoView()")
    wait_until(lambda: page.browser.run(f"{blocks}[3].children.length"), "its colours")
    assert page.browser.run(f"{blocks}[3].children.length === 1 && "
                            f"{blocks}[3].firstChild.className === 'c-comment'")
    page.browser.run(f"{blocks}.at(-1).scrollIntoView()")
    wait_until(lambda: page.browser.run(f"{blocks}.at(-1).children.length"), "colours")
    assert page.browser.run(f"{blocks}.at(-1).firstElementChild.className") == "c-key"
    assert page.browser.faults == []


@pytest.mark.parametrize("script", [
    "'\"a'.repeat(30000)", "'<a '.repeat(30000)", "'<!--'.repeat(30000)",
    "'<script'.repeat(30000)", "'<a \"'.repeat(30000)", "'a:'.repeat(30000)",
    "'\\\\'.repeat(90000)", "'<script>'.repeat(30000)", "'<![CDATA['.repeat(20000)",
    "'<a \"' + \"'<b '\".repeat(30000)"])
def test_hostile_texts_are_coloured_in_time_and_lose_nothing(page, script):
    took = page.browser.run(
        f"(() => {{ const text = {script}, begun = performance.now();"
        " for (const lexer of Object.keys(LEXERS)) {"
        "   const outside = lexer === 'markup' ? foreignParts(text) : [];"
        "   const node = document.createElement('pre');"
        "   node.append(...coloured(text, lexer, outside, 0));"
        "   if (node.textContent !== text) throw new Error(lexer); }"
        " return performance.now() - begun; })()")
    assert took < 5000, took                 # quadratic would be minutes
