"""Bodies of XML in forms that can be compared, and XPath 1.0, by lxml (libxml2).

Clients' bodies come here, so the parser gets no more than it needs: no document with a
DOCTYPE (entities, defaults, other files), no tag beyond MOST_MARKS, nothing deeper than
MOST_DEPTH, and text in UTF-8 whatever its coding was. Nothing is fetched. 10 000
elements take 3 ms to parse, and 20 ms to spell. The cost of an XPath is known before
it is evaluated, and other steps are counted (R67).

Two documents are equal if their elements, attributes and texts are: the order of
attributes, prefixes, comments, instructions and the declaration do not count, and of
white space neither its amount nor its place beside a tag.
"""

import functools
import importlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypeVar

from cutthrough.exchange.bounds import KeyMistake, Steps, TooMuch
from cutthrough.exchange.expressions import compile_expression
from cutthrough.recording.model.xpath_cost import Size, most_steps, read_cost

# Tags and attributes of a document, or text that looks like them
MOST_MARKS = 20_000
# Of one element: 20 000 took 1.1 s to spell, because each is searched for
MOST_ATTRIBUTES = 256
# Elements within each other
MOST_DEPTH = 128

# Whatever may stand before a DOCTYPE; atomic: hostile text is read once
_DOCTYPE = re.compile(r"(?>\s++|<\?(?>.*?\?>)|<!--(?>.*?-->))*+<!DOCTYPE", re.S)
_DECLARED = re.compile(rb"""<\?xml[^>]{1,100}?\sencoding\s?=\s?["']([\w.-]{1,20})""")
# Others are read as UTF-8. Python has codecs that are no charsets, or slow
_CHARSETS = {b"iso-8859-1": "latin-1", b"us-ascii": "ascii", b"windows-1252": "cp1252"}
_INNERMOST = re.compile(r"""\[(?:[^\[\]"']|"[^"]*"|'[^']*')*\]""")
_STEPS = re.compile(r"/{0,2}@?[\w.*:-]+(?:\(\))?(?:/{1,2}@?[\w.*:-]+(?:\(\))?)*")
_IGNORE = re.compile(r"\s*\{\{\s*ignore\s*\}\}\s*")
_REGEX = re.compile(r"\s*\{\{\s*regex:(.*)\}\}\s*")


T = TypeVar("T")


@functools.cache
def _library() -> Any:
    """Raises KeyMistake."""
    try:
        return importlib.import_module("lxml.etree")
    except ImportError:
        raise KeyMistake("XML needs lxml: pip install 'cutthrough[recording]'"
                         ) from None


def decode_xml(body: bytes) -> str:
    """Decodes a document by its byte order mark, else by its declaration, else as
    UTF-8. Octets that cannot be decoded become U+FFFD, which no name has."""
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return body.decode("utf-16", "replace")
    match = _DECLARED.match(body)
    name = match[1].lower() if match else b""
    return body.decode(_CHARSETS.get(name, "utf-8-sig"), "replace")


# A request is asked by many recordings, one after the other
@functools.lru_cache(1)
def _parse(text: str) -> Any:
    """The element at the root, or the reason for which there is none."""
    library = _library()
    if text.count("<") + text.count("=") > MOST_MARKS:
        return f"has more than {MOST_MARKS} tags and attributes"
    if _DOCTYPE.match(text) is not None:
        return "has a DOCTYPE"
    parser = library.XMLParser(
        encoding="utf-8", resolve_entities=False, load_dtd=False, no_network=True,
        huge_tree=False, collect_ids=False)
    try:
        root = library.fromstring(text.encode(errors="replace"), parser)
    except library.XMLSyntaxError as error:
        return str(error)
    if root.xpath(f"boolean(//*[@*[{MOST_ATTRIBUTES + 1}]])"):
        return f"has an element with more than {MOST_ATTRIBUTES} attributes"
    if _is_deeper(root, MOST_DEPTH):
        return f"is more than {MOST_DEPTH} deep"
    return root


def _is_deeper(root: Any, depth: int) -> bool:
    return bool(root.xpath(f"boolean({'/*' * (depth + 1)})"))


# As `_parse`: the element is its key
@functools.lru_cache(1)
def _size_of(root: Any) -> Size:
    names = Counter(_local(element) for element in root.iter())
    elements = sum(names.values())
    return Size(
        nodes=3 * elements + int(root.xpath("count(//@*)")) + 2,
        characters=len(_library().tostring(root, encoding="unicode")),
        depth=next((depth for depth in (4, 8, 16, 32, 64)
                    if not _is_deeper(root, depth)), MOST_DEPTH) + 2,
        names=names)


def read_xml(text: str) -> Any:
    """The element at the root. Raises ValueError if it is none, and KeyMistake without
    the library."""
    root = _parse(text)
    if isinstance(root, str):
        raise ValueError(root)
    return root


def spell(root: Any) -> Iterator[str | tuple[Any, ...]]:
    """The parts of an element in order: equal for two that are equal."""
    text = ""
    for event, node in _library().iterwalk(root, ("start", "end", "comment", "pi")):
        if event in ("start", "end"):
            if words := " ".join(text.split()):
                yield words
            yield (node.tag, *sorted(node.attrib.items())) if event == "start" else ()
            text = ""
        text += (node.text if event == "start" else node is not root and node.tail
                 ) or ""


def equal(spelling: list[str | tuple[Any, ...]], root: Any) -> bool:
    """`spelling`: of an element. Of a longer document no more is read."""
    return all(here == there for here, there in zip_longest(spelling, spell(root)))


@functools.lru_cache(256)
def compile_xpath(text: str) -> str:
    """The same. Raises KeyMistake. Prefixes are those of each document's root."""
    library = _library()
    try:
        library.XPath(text)
    except library.XPathError as error:
        raise KeyMistake(f"{text!r:.100} is no XPath: {error}") from None
    read_cost(text)
    return text


def _evaluate(root: Any, expression: str) -> Any:
    """None: it cannot be evaluated, such as by a prefix that the root has not. Raises
    KeyMistake and TooMuch."""
    library = _library()
    size = _size_of(root)
    if read_cost(expression)(size) > most_steps(size.nodes):
        raise TooMuch("an XPath would take too many steps")
    names = {name: uri for name, uri in root.nsmap.items() if name}
    try:
        return library.XPathEvaluator(
            root.getroottree(), namespaces=names, regexp=False, smart_strings=False)(
                expression)
    except library.XPathError:
        return None


def has_xpath(root: Any, path: str) -> bool:
    """Whether there is anything: a node, a text, a number that is not 0. A path without
    a slash in front begins above the root; lxml would begin at it."""
    return _evaluate(root, f"boolean((/)[boolean({path})])") is True


def is_plain_path(path: str) -> bool:
    """Steps alone: no call, union or sum, but in brackets. lxml begins those at the
    root, and hoverfly above it."""
    before = ""
    while path != before:
        path, before = _INNERMOST.sub("", path), path
    return _STEPS.fullmatch(path) is not None


def text_at(root: Any, path: str) -> str:
    """The text of the first node at a plain path, or "": there is none."""
    if not path.startswith("/"):
        path = f"/{path}"                    # above the root, as in `has_xpath`
    return _evaluate(root, f"string({path})") or ""


def select_xml(root: Any, path: str) -> list[str | list[str | tuple[Any, ...]]]:
    """The values at an XPath, in order: texts, and elements as they are spelled. Raises
    TooMuch: an element may be in another."""
    result = _evaluate(root, path)
    values = result if isinstance(result, list) else [] if result is None else [result]
    steps = Steps(_size_of(root).nodes)
    spellings: list[str | list[str | tuple[Any, ...]]] = []
    for value in values:
        if isinstance(getattr(value, "tag", None), str):
            spelled = [*counted(spell(value), steps)]
            spellings.append(spelled)
        else:
            spellings.append(str(getattr(value, "text", value)))
    return spellings


def counted(parts: Iterable[T], steps: Steps) -> Iterator[T]:
    """The same, each a step."""
    for part in parts:
        steps.take()
        yield part


def is_like(wanted: Any, element: Any, steps: Steps | None = None) -> bool:
    """As hoverfly has it: local names, the texts of elements without children, and the
    children in any order. A text may be {{ignore}} or {{regex:…}}. Raises TooMuch."""
    if steps is None:
        steps = Steps(_size_of(element).nodes)
    steps.take()
    if _local(wanted) != _local(element):
        return False
    children = _children(wanted)
    if not children:
        return _is_text_like(wanted.text or "", element.text or "", steps)
    left = _children(element)
    steps.take(len(children) + len(left))
    if len(left) != len(children):
        return False
    for child in children:
        at = next((at for at, candidate in enumerate(left)
                   if is_like(child, candidate, steps)), None)
        if at is None:
            return False
        del left[at]
    return True


def check_template(root: Any) -> None:
    """Raises KeyMistake if an expression in it is malformed."""
    for element in root.iter():
        if (match := _REGEX.fullmatch(element.text or "")) is not None:
            compile_expression(match[1])


def _local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _children(element: Any) -> list[Any]:
    return [child for child in element if isinstance(child.tag, str)]


def _is_text_like(wanted: str, text: str, steps: Steps) -> bool:
    if _IGNORE.fullmatch(wanted) is not None:
        return True
    match = _REGEX.fullmatch(wanted)
    if match is not None:
        expression = compile_expression(match[1])
        steps.take(expression.cost(text))
        return expression.search(text) is not None
    return wanted == text
