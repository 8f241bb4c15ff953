"""XML and XPath in the conditions of recordings and routes; hostile documents."""

import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutthrough.exchange.bounds import KeyMistake, TooMuch
from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats.hoverfly import read_simulation
from cutthrough.recording.match.keys import KeyReader
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model import xml_documents
from cutthrough.recording.model.xml_documents import (
    MOST_ATTRIBUTES,
    MOST_MARKS,
    decode_xml,
    has_xpath,
    read_xml,
    select_xml,
    spell,
)
from tests.recording.answers import recording, request
from tests.support.simulations import answers, pair, simulation

SOAP = """<?xml version="1.0"?>
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:h="urn:h">
  <s:Header><h:Id>7</h:Id></s:Header>
  <s:Body><get xmlns="urn:get" b="2" a="1">  some
    text</get></s:Body>
</s:Envelope>"""
SPELLED_OTHERWISE = (
    '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Header>'
    '<i:Id xmlns:i="urn:h">7</i:Id><!-- seven --></e:Header><e:Body>'
    "<g:get xmlns:g='urn:get' a='1' b='&#50;'><![CDATA[some]]> text</g:get>"
    "</e:Body></e:Envelope>")


def is_asked(matcher, value, body):
    (found,) = answers(simulation(pair({"body": [
        {"matcher": matcher, "value": value}]})), request("/", body))
    return found is not None


@pytest.mark.parametrize(("wanted", "found", "is_match"), [
    ("<a><b c='d'>e</b></a>", "<a>\n  <b c=\"d\"> e </b>\n</a>", True),
    (SOAP, SPELLED_OTHERWISE, True), ("<a></a>", "<a/>", True),
    ("<a>x <b/> y</a>", "<a>x<b/>y</a>", True), ("<a><?p?></a>", "<a/>", True),
    ("<a> x  y </a>", "<a>x\ty</a>", True), ("<a>&lt;</a>", "<a>&#60;</a>", True),
    ("<a b='1'/>", "<a b='2'/>", False), ("<a/>", "<a b=''/>", False),
    ("<a>xy</a>", "<a>x y</a>", False), ("<a/>", "<a xmlns='u'/>", False),
    ("<a><b/><c/></a>", "<a><c/><b/></a>", False), ("<a/>", "<a><b/></a>", False),
    ("<a><b/></a>", "<a/>", False), ("<a/>", "", False), ("<a/>", "<a>", False),
    ("<a/>", "<a/><a/>", False), ("<a/>", "{}", False), ("", "", True),
    ("", "<a/>", False)])
def test_documents_are_equal_if_their_elements_are(wanted, found, is_match):
    assert is_asked("xml", wanted, found) is is_match


@pytest.mark.parametrize(("path", "body", "is_match"), [
    # Of hoverfly's own tests and pages
    ("/list/text", "<list><text>test</text></list>", True),
    ("/pop", "<list><text>test</text></list>", False),
    ("/list/item[1]/field", "<list><item><field/></item></list>", True),
    ("/documents/document[2]", "<documents><document/></documents>", False),
    ("/list/item/field[@pop]", "<list><item><field test='v'/></item></list>", False),
    ("/s:Envelope/s:Header/h:Id", SOAP, True),
    # Of its libraries, asked in the same way
    ("top", "<top/>", True), ("/top", "<top xmlns='u'/>", False),
    ("/a:top", "<top xmlns='u' xmlns:a='u'/>", True), ("/a:top", "<top/>", False),
    ("//b:x", "<top><x xmlns:b='u' xmlns='u'/></top>", False),
    ("count(//x)", "<top/>", False), ("count(//x)", "<top><x/></top>", True),
    ("string(/top/@a)", "<top a=''/>", False),
    ("/top/@a = 'b'", "<top a='b'/>", True),
    ("/list/comment()", "<list><!-- x --></list>", True),
    ("/processing-instruction()", "<?p x?><top/>", True),
    ("//x[contains(., 'q')]", "<top><x>aq</x></top>", True),
    ("/top", "no XML", False), ("/top", "", False)])
def test_a_path_is_matched_if_there_is_something(path, body, is_match):
    assert is_asked("xpath", path, body) is is_match


@pytest.mark.parametrize(("wanted", "found", "is_match"), [
    ("<a><b>{{ignore}}</b><c>{{ regex: ^[0-9]+$ }}</c></a>",
     "<a><c>12</c><b>x<d/></b></a>", False),
    ("<a><b>{{ignore}}</b><c>{{regex:^[0-9]+$}}</c></a>",
     "<u:a xmlns:u='u' z=''> <c>12</c> <b>x<d/></b> </u:a>", True),
    ("<a><b>1</b><b>2</b></a>", "<a><b>2</b><b>1</b></a>", True),
    ("<a><b>1</b><b>2</b></a>", "<a><b>2</b></a>", False),
    ("<a><b>1</b></a>", "<a><b>1</b><b>2</b></a>", False),
    ("<a> x</a>", "<a>x</a>", False), ("<a/>", "<b/>", False), ("<a/>", "", False)])
def test_a_templated_document_leaves_texts_open(wanted, found, is_match):
    assert is_asked("xmltemplated", wanted, found) is is_match


def test_the_older_schemas_name_the_same():
    data = simulation(pair({"body": {"xmlMatch": "<a/>", "xpathMatch": "/a"}}),
                      schema="v3")
    assert answers(data, request("/", "<a></a>"), request("/", "<b/>")) == ["ok", None]


@pytest.mark.parametrize("matcher", [
    {"matcher": "xpath", "value": "//["}, {"matcher": "xpath", "value": "/a) or (/b"},
    {"matcher": "xpath", "value": "/*:a"}, {"matcher": "xml", "value": "<a>"},
    {"matcher": "xml", "value": "<!DOCTYPE a><a/>"},
    {"matcher": "xpath", "value": "/a", "doMatch": {"matcher": "exact", "value": "1"}},
    {"matcher": "xmltemplated", "value": "a"},
    {"matcher": "xmltemplated", "value": "<a>{{regex:(}}</a>"}])
def test_what_cannot_be_asked_is_refused_when_it_is_imported(matcher):
    (one,) = read_simulation(simulation(pair({"body": [matcher]})))
    assert isinstance(one, NotImported)


@pytest.mark.parametrize("body", [
    "<a>é</a>".encode(), "\ufeff<a>é</a>".encode(),
    "<?xml version='1.0' encoding='utf-16'?><a>é</a>".encode("utf-16"),
    "<?xml version='1.0' encoding='ISO-8859-1'?><a>é</a>".encode("latin-1")])
def test_a_document_says_its_charset(body):
    assert is_asked("xpath", "/a[. = 'é']", body)


def test_a_charset_is_no_codec_of_python():
    for name in (b"zlib_codec", b"idna", b"unicode_escape", b"utf-7"):
        assert "\\x41" in decode_xml(b"<?xml encoding='%s'?><a>\\x41</a>" % name)


ATTRIBUTES = " ".join(f"b{n}=''" for n in range(MOST_ATTRIBUTES + 1))
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize("document", [
    f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]><a>&l9;</a>',
    f'<?xml version="1.0"?> <!-- <a> --> <?p?>\n<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}'
    ']><a b="&l9;"/>',
    '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///dev/null">]><a>&f;</a>',
    '<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a/>',
    '<!DOCTYPE a [<!ATTLIST a b CDATA "default">]><a/>',
    "<a>&undefined;</a>", f"<a>{'<b/>' * MOST_MARKS}</a>",
    f"<a>{'<b>' * 300}{'</b>' * 300}</a>",
    f"<a {ATTRIBUTES}/>"])
def test_a_hostile_document_is_no_document(document):
    begun = time.monotonic()
    with pytest.raises(ValueError):
        read_xml(document)
    assert time.monotonic() - begun < 1
    assert not is_asked("xpath", "/a", document)


def test_a_doctype_inside_an_element_is_text():
    root = read_xml("<a><![CDATA[<!DOCTYPE html><p>&nbsp;]]></a>")
    assert root.text == "<!DOCTYPE html><p>&nbsp;"


@pytest.mark.parametrize("text", [
    "<?a?>" * 200_000, "<!--a-->" * 100_000, "<?" * 400_000, "<!--" * 200_000,
    " " * 800_000, " <?a?>" * 100_000 + "<!DOCTYP"])
def test_a_long_beginning_is_read_once(text):
    begun = time.monotonic()
    assert xml_documents._DOCTYPE.match(text) is None
    assert time.monotonic() - begun < 1


def test_no_more_of_a_long_document_is_spelled_than_of_the_wanted_one(monkeypatch):
    read = []

    def counted(root):
        for part in spell(root):
            read.append(part)
            yield part

    monkeypatch.setattr(xml_documents, "spell", counted)
    assert not is_asked("xml", "<a><b/></a>", f"<a>{'<b/>' * 5000}</a>")
    assert len(read) < 20


def test_a_document_is_parsed_once_for_many_recordings():
    data = simulation(*[pair({"body": [{"matcher": "xpath", "value": f"/a{n}"}]})
                        for n in range(20)])
    xml_documents._parse.cache_clear()
    assert answers(data, request("/", "<a19/>")) == ["ok"]
    assert xml_documents._parse.cache_info().misses == 1


def test_functions_of_other_languages_are_not_there(tmp_path):
    """Expressions of EXSLT take exponential time, and document() reads files."""
    (tmp_path / "other.xml").write_text("<a/>")
    root = read_xml("<a xmlns:re='http://exslt.org/regular-expressions'/>")
    assert not has_xpath(root, "re:test('a', 'a')")
    assert not has_xpath(root, f"document('{tmp_path / 'other.xml'}')")


# Routes

def test_a_route_compares_documents():
    matcher = Matcher([route(body="xml")])
    matcher.add(recording(1, request("/", SOAP)))
    assert matcher.match(request("/", SPELLED_OTHERWISE)).recording.number == 1
    miss = matcher.match(request("/", SOAP.replace("some", "other")))
    assert "body: " in str(miss)


def test_a_route_compares_what_is_at_its_paths():
    matcher = Matcher([route(body="xpath", paths=("//h:Id", "string(//@a)"))])
    matcher.add(recording(1, request("/", SOAP)))
    same = SOAP.replace("some", "other").replace('b="2"', "")
    assert matcher.match(request("/", same)).recording.number == 1
    miss = matcher.match(request("/", SOAP.replace("7", "8")))
    assert "body //h:Id: \"[[('{urn:h}Id',), '8', ()]]\", recorded" in str(miss)
    assert not hasattr(matcher.match(request("/", SOAP.replace('a="1"', ""))),
                       "recording")


@pytest.mark.parametrize("key", [Key(body="xml"), Key(body="xpath", paths=("/a",))])
def test_what_is_no_document_is_compared_as_octets(key):
    reader = KeyReader(key)
    one, two, three = [reader.read(request("/", body), recorded=True) for body in (
        "<a>", "<a >", "<a/>")]
    assert len({one[0], two[0], three[0]}) == 3


@pytest.mark.parametrize("key", [
    Key(body="xpath"), Key(body="xml", paths=("/a",)),
    Key(body="xpath", paths=("//[",)),
    Key(body="json", paths=("/a",))])
def test_a_key_of_xml_that_contradicts_itself_is_refused(key):
    with pytest.raises(KeyMistake):
        KeyReader(key)


@pytest.mark.parametrize("key", [Key(body="xml"), Key(body="xpath", paths=("/a",))])
def test_without_its_library_xml_is_a_mistake_that_says_what_to_install(
        monkeypatch, key):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(xml_documents, "importlib", SimpleNamespace(
        import_module=missing))
    caches = (xml_documents._library, xml_documents._parse, xml_documents.compile_xpath)
    for one in caches:
        one.cache_clear()
    try:
        with pytest.raises(KeyMistake, match=r"cutthrough\[recording\]"):
            KeyReader(key)
        (one,) = read_simulation(simulation(pair({"body": [
            {"matcher": "xpath", "value": "/a"}]})))
        assert isinstance(one, NotImported) and "lxml" in str(one)
    finally:
        for one in caches:
            one.cache_clear()


def route(**key):
    return Route(name="r", key=Key(**key))


STEPS = st.sampled_from(("*", "a", "b", "@x", ".", "..", "text()", "node()",
                         "following::*", "preceding-sibling::a", "ancestor::*",
                         "descendant::b", "self::a", "parent::*"))
XPATHS = st.recursive(
    st.builds("{}{}{}{}".format, st.sampled_from(("", "/", "//", ".//")), STEPS,
              st.sampled_from(("/", "//")), STEPS),
    lambda inner: st.builds("{}[{}]".format, inner, inner)
    | st.builds("{}[{} > {}]".format, inner, inner, inner)
    | st.builds("count({}) > 1".format, inner)
    | st.builds("({} | {})".format, inner, inner)
    | st.builds("contains({}, {})".format, inner, inner)
    | st.builds("{}[{}(.) {} 'a']".format, inner, st.sampled_from((
        "string", "normalize-space", "string-length", "not", "sum")),
        st.sampled_from(("=", "!=", "or")))
    | st.builds("translate({}, 'ab', {})".format, inner, inner), max_leaves=4)


def nested(depth, width):
    inside = nested(depth - 1, width) * width if depth else "t"
    return f"<a x='1'>{inside}</a>"


@given(XPATHS, st.sampled_from((
    "<a>" + "<b x='1'>t</b>" * 2500 + "</a>", "<a>" * 100 + "t" + "</a>" * 100,
    "<b>" + nested(60, 1) * 40 + "</b>", nested(5, 4), "<a>" + "a" * 200_000 + "</a>")))
@settings(deadline=None, max_examples=150)
def test_no_xpath_takes_long(path, document):
    """R67. Three nested counts of `//*` hung a worker."""
    root = read_xml(document)
    begun = time.thread_time()
    try:
        has_xpath(root, xml_documents.compile_xpath(path))
        select_xml(root, path)
    except (KeyMistake, TooMuch):
        pass
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize("path", [
    "/a[count(//*[count(//*[count(//*)>0])>0])>0]", "//*[//*[//*]]",
    "//a[contains(.,.)]",
    "//*[count(following::*[count(following::*) > 1]) > 1]", "translate(/, /, /)",
    "a" + "[a" * 20 + "]" * 20, "a" + "/a" * 2000])
def test_an_xpath_that_is_slow_for_any_document_is_refused_when_it_is_read(path):
    """R67."""
    with pytest.raises(KeyMistake):
        xml_documents.compile_xpath(path)


@pytest.mark.parametrize("path", ["//*[//b]", "//*[preceding::b]", "//b[../b]"])
def test_an_xpath_that_is_slow_for_a_long_document_has_no_match_there(path):
    """R67."""
    assert has_xpath(read_xml("<a>" + "<b/>" * 50 + "</a>"), path)
    assert not is_asked("xpath", path, "<a>" + "<b/>" * 8000 + "</a>")


def test_usual_xpaths_are_evaluated_for_long_documents():
    order = "<order id='7'><item n='1'>tea</item><item>eggs</item></order>"
    root = read_xml("<s:e xmlns:s='u'><s:b>" + order * 2000 + "</s:b></s:e>")
    for path in ("//order[@id='7']/item", "/s:e/s:b/order[item='tea']", "//order//item",
                 "//item[contains(., 'eg')]", "/*/*/order[last()]", "count(//item) > 9",
                 "//item[text()='tea' and @n]/..", "//order[not(none)][2]/item[1]/@n",
                 "//*[local-name()='item']", "//order[count(item) = 2]"):
        assert has_xpath(root, path), path


def test_children_in_any_order_end_in_counted_steps():
    """R67. Of 1 500 in another order a million were compared."""
    lists = [f"<b><c>{at}</c></b>" for at in range(1500)]
    wanted, other = (f"<a>{''.join(one)}</a>" for one in (lists, lists[::-1]))
    begun = time.thread_time()
    assert is_asked("xmltemplated", wanted, wanted)
    assert not is_asked("xmltemplated", wanted, other)
    assert time.thread_time() - begun < 10
