"""HTML and XML as lines for a person: each element begins a line, indented by depth.

Nothing is repaired or left out but white space between words and tags: if a tag has no
end, a comment is cut, or an end has no begin, it is shown in its place. The time
is linear in the length, whatever the text is.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

# Levels of indentation: deeper elements stay in the column of this one
MOST_DEPTH = 60
# Characters of an element that is shown on one line with its text
MOST_LINE = 100

# Elements without an end (the HTML standard, section 13.1.2), and those whose content
# is no markup, or whose white space counts
VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link",
                  "meta", "source", "track", "wbr"))
RAW = frozenset(("script", "style", "textarea", "title", "pre", "xmp", "iframe",
                 "noembed", "noframes"))
# Elements that end when the next one of their kind begins
REPEATED = frozenset(("p", "li", "dt", "dd", "option", "tr", "td", "th"))

# Possessive, because nothing must be tried twice if a tag has no end
_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>]*+)
    (?:[^=>]|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""", re.X)
# A begin, and the end that belongs to it
_OTHERS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"))


class Token(NamedTuple):
    kind: Literal["text", "open", "close", "other", "raw"]
    text: str
    name: str = ""


def show_markup(text: str, is_html: bool) -> Iterator[str]:
    """`is_html`: not XML: there every element has an end."""
    depth: list[str] = []
    line, has_text = "", False               # a begun element that may end on its line
    for token in read_tokens(text, is_html):
        pad = "  " * len(depth)
        lines = [part.strip() for part in token.text.splitlines()]
        words = " ".join(part for part in lines if part)
        if token.kind == "text" and not words:
            continue
        if line:
            if token.kind == "text" and not has_text and len(line + words) < MOST_LINE:
                line, has_text = line + words, True
                continue
            if token.kind == "close" and depth and depth[-1] == token.name:
                depth.pop()
                yield line + words
                line = ""
                continue
            yield line
            line = ""
        if token.kind == "open":
            if is_html and token.name in REPEATED and depth[-1:] == [token.name]:
                depth.pop()
                pad = "  " * len(depth)
            if words.endswith("/>") or (is_html and token.name in VOID):
                yield pad + words
            elif len(depth) < MOST_DEPTH:
                depth.append(token.name)
                line, has_text = pad + words, False
            else:
                yield pad + words
        elif token.kind == "close":
            if token.name in depth:
                while depth.pop() != token.name:
                    pass
            yield "  " * len(depth) + words
        elif token.kind == "raw":
            yield from token.text.strip("\r\n").splitlines()
        else:
            yield from (pad + part for part in lines if part)
    if line:
        yield line


def read_tokens(text: str, is_html: bool,
                raw: frozenset[str] = RAW) -> Iterator[Token]:
    """All of the text, in order. `raw`: elements of HTML whose tags are text."""
    at = position = 0
    size = len(text)
    while (begin := text.find("<", position)) >= 0:
        tag = _TAG.match(text, begin)
        end = tag.end() if tag else end_of_other(text, begin)
        if end == 0:                         # a mere <
            position = begin + 1
            continue
        if end < 0:                          # it has no end
            break
        if begin > at:
            yield Token("text", text[at:begin])
        at = position = end
        if tag is None:
            yield Token("other", text[begin:end])
            continue
        name = tag[2].lower() if is_html else tag[2]
        yield Token("close" if tag[1] else "open", tag[0], name)
        if is_html and name in raw and not tag[1]:
            match = re.compile(rf"</{re.escape(name)}\b", re.I).search(text, at)
            end = match.start() if match else size
            if text[at:end].strip():
                yield Token("raw" if "\n" in text[at:end] else "text", text[at:end])
            at = position = end
    if at < size:
        yield Token("text", text[at:])


def end_of_other(text: str, begin: int) -> int:
    """Returns the end of a comment, a declaration, or a cut text; 0 if there is none of
    them, -1 if its end is missing."""
    for mark, end in _OTHERS:
        if text.startswith(mark, begin):
            position = text.find(end, begin + len(mark))
            return position + len(end) if position >= 0 else -1
    return -1 if re.compile("/?[A-Za-z]").match(text, begin + 1) else 0
