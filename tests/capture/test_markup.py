"""HTML and XML as indented lines, and HTML as a harmless page."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.capture.markup import MOST_DEPTH, read_tokens
from cutthrough.capture.preview import (
    ATTRIBUTES,
    MOST_TEXT,
    TAGS,
    is_image,
    make_preview,
)
from cutthrough.capture.views import choose, show_body

PIECES = ("<", ">", "</", "/>", "<!--", "-->", "<p>", "</p>", "<b a='", "\"", "'", "=",
          "<script>", "</script>", "<br>", "<![CDATA[", "]]>", "<?", "\n", " ", "é",
          "<svg onload=x>", "<img src=x>", "&lt;", "&#0;", "<pre>", "<li>", "/")
MARKUP = st.lists(st.sampled_from(PIECES)).map("".join)


def show(text, view="html"):
    return list(show_body(text, "", view))


def test_elements_are_indented_by_their_depth():
    text = ("<!DOCTYPE html><html><body class=\"a > b\"><!-- two\nlines --><p>one"
            "<p>two <b>bold</b> end<ul><li>x<li>y</ul><br><img src=x></body></html>")
    assert show(text) == [
        "<!DOCTYPE html>", "<html>", '  <body class="a > b">', "    <!-- two",
        "    lines -->", "    <p>one", "    <p>two", "      <b>bold</b>", "      end",
        "      <ul>", "        <li>x", "        <li>y", "      </ul>", "      <br>",
        "      <img src=x>", "  </body>", "</html>"]


def test_scripts_and_preformatted_text_stay_as_they_are():
    text = "<div><script>\nif (a < b)\n  c();\n</script><pre>  a\n    b</pre></div>"
    assert show(text) == [
        "<div>", "  <script>", "if (a < b)", "  c();", "  </script>", "  <pre>", "  a",
        "    b", "  </pre>", "</div>"]


def test_xml_has_an_end_for_each_element():
    assert show("<?xml version='1.0'?><a><br>1</br><B/><![CDATA[<x>]]></a>", "xml") == [
        "<?xml version='1.0'?>", "<a>", "  <br>1</br>", "  <B/>", "  <![CDATA[<x>]]>",
        "</a>"]
    assert choose("", "image/svg+xml") == choose("", "text/xml; a=b") == "xml"
    assert choose("", "text/html; charset=utf-8") == "html"


@pytest.mark.parametrize(("text", "lines"), [
    ("a < b <c", ["a < b <c"]), ("</b>x", ["</b>", "x"]), ("<p", ["<p"]),
    ("<p><!-- cut", ["<p><!-- cut"]), ("<a t='x>y", ["<a t='x>y"]), ("", [])])
def test_what_is_malformed_is_shown_where_it_came(text, lines):
    assert [line.rstrip() for line in show(text)] == lines


@given(text=MARKUP, is_html=st.booleans())
def test_tokens_are_all_of_the_text(text, is_html):
    found = "".join(token.text for token in read_tokens(text, is_html))
    assert found.split() == text.split() and (is_html or found == text)


@given(text=MARKUP, view=st.sampled_from(["html", "xml"]))
def test_nothing_but_white_space_is_lost(text, view):
    assert "".join("".join(show(text, view)).split()) == "".join(text.split())


@pytest.mark.parametrize("piece", [
    "<a ", "<a '", "<a =\"", "<!--", "<a>", "</a>", "<", "<pre>", "<a b=''",
    "<![CDATA["])
def test_the_time_is_linear(piece):
    """A search from each begin for an end that is not there would take minutes."""
    begun = time.process_time()
    lines = show(piece * (1_000_000 // len(piece)))
    assert time.process_time() - begun < 15
    assert max(map(len, lines), default=0) <= 1_000_000
    assert sum(map(len, lines)) < 5_000_000 * MOST_DEPTH


# A harmless page


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))


@given(MARKUP | st.text())
def test_a_preview_has_nothing_that_could_run_or_load(text):
    reader = Reader()
    reader.feed(make_preview(text))
    for tag, attrs in reader.found:
        assert tag in TAGS | {"html", "head", "meta", "title", "body"}
        for name, value in attrs:
            assert name in ATTRIBUTES | {"charset"} or is_image(value)


def test_a_preview_has_text_structure_and_images_in_it():
    made = make_preview(
        "<title>t</title><h1 onclick=x style=y title='a\"b'>A &amp; B</h1>"
        "<base href=//x>"
        "<a href=//evil>link</a><img src=//evil alt=gone><link rel=preconnect href=//x>"
        "<img src='data:image/png;base64,AA=='><img src='data:image/svg+xml;base64,AA'>"
        "<script>one<script></script>two<form action=//x><b>three</form>"
        "<meta http-equiv=refresh content='0;//evil'><iframe srcdoc='<b>'>no</iframe>")
    assert made.partition("<body>")[2] == (
        '<h1 title="a&quot;b">A &amp; B</h1>link<img alt="gone">'
        '<img src="data:image/png;base64,AA=="><img>two<b>three</body></html>')


@pytest.mark.parametrize("piece", [
    "<a b='", '<a b="', "<a ", "<a =", "<b a=", "<b/", "<b \t", "<b a='' ", "<!--",
    "</a", "<![CDATA[", "<title>", "<script></script ", "<b>", "</b>",
    "<img alt=a src='"])
def test_the_time_of_a_preview_is_linear(piece):
    """10 000 tags without an end took longer than the process that reads for
    operators may: it was killed, and with it what others had asked."""
    begun = time.process_time()
    make_preview(piece * (MOST_TEXT // len(piece)))
    assert time.process_time() - begun < 15


@pytest.mark.parametrize(("text", "shown"), [
    ("<![<!a>x", "x"), ("&#" + "9" * 5000, "&#" + "9" * 5000),
    ("<b title='&#" + "9" * 5000 + ";'>x", None), ("<!x[y>z", "z"),
    ("<pre><i>x</pre><xmp><i></xmp>", "<pre><i>x</i></pre>&lt;i&gt;"),
    ("<svg/>a<script/>b</script>c", "ac"), ("<b title=a title=b lang>", None)])
def test_what_is_malformed_has_a_preview(text, shown):
    made = make_preview(text).partition("<body>")[2].removesuffix("</body></html>")
    assert shown is None or made == shown


def test_a_preview_is_bounded():
    assert len(make_preview("<b>" * MOST_TEXT)) < MOST_TEXT + 1000
