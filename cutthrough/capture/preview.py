"""A captured page of HTML as a harmless one: its text and its structure.

Every tag is written anew: elements of TAGS alone, of their attributes those of
ATTRIBUTES alone, and images if their bytes are in the page. So there is no script, no
style, no link and no address that a browser could load, whatever it makes of the rest.
The page that shows it trusts it no more for that: docs/traffic.md.
"""

import re

from cutthrough.capture.markup import RAW, Token, read_tokens

TAGS = frozenset("""
    abbr address article aside b blockquote br caption center cite code col colgroup dd
    del details dfn div dl dt em fieldset figcaption figure footer h1 h2 h3 h4 h5 h6
    header hgroup hr i img ins kbd label legend li main mark nav ol p pre q s samp
    section small span strong sub summary sup table tbody td tfoot th thead time tr tt u
    ul var wbr""".split())
VOID = frozenset(("br", "col", "hr", "img", "wbr"))
ATTRIBUTES = frozenset(("alt", "colspan", "dir", "lang", "rowspan", "start", "title"))
IMAGES = tuple(f"data:image/{kind};base64," for kind in (
    "png", "jpeg", "gif", "webp", "avif", "bmp"))
# Elements that go with their content
LEFT_OUT = frozenset(("script", "style", "template", "title", "iframe", "object", "svg",
                      "math", "noembed", "noframes", "select", "textarea", "video",
                      "audio", "canvas"))
# Elements whose content has no tags
TEXTS = RAW - {"pre"}
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*+)
    (?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?+""", re.X)
# Characters that are read, and levels: a parser of a browser takes 512
MOST_TEXT, MOST_DEPTH = 1 << 20, 200


def make_preview(text: str) -> str:
    """The page."""
    maker = _Maker()
    for token in read_tokens(text[:MOST_TEXT], True, TEXTS):
        maker.add(token)
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>preview</title></head><body>{''.join(maker.parts)}</body></html>")


class _Maker:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self._open: list[str] = []
        self._left_out = ""                  # the element that goes now
        self._inner = 0                      # elements of its name inside it

    def add(self, token: Token) -> None:
        if token.kind == "open":
            self._begin(token)
        elif token.kind == "close":
            self._end(token.name)
        elif token.kind != "other" and not self._left_out:
            self.parts.append(_written(token.text))

    def _begin(self, token: Token) -> None:
        name = token.name
        if token.text.endswith("/>") and name in LEFT_OUT - TEXTS:
            return                               # as SVG's, which has no content
        if self._left_out:
            self._inner += name == self._left_out
        elif name in LEFT_OUT:
            self._left_out = name
        elif name in VOID:
            self.parts.append(_tag(token))
        elif name in TAGS and len(self._open) < MOST_DEPTH:
            self.parts.append(_tag(token))
            self._open.append(name)

    def _end(self, name: str) -> None:
        if self._left_out:
            if name == self._left_out:
                self._inner -= 1
                if self._inner < 0:
                    self._left_out, self._inner = "", 0
        elif name in self._open:
            while (last := self._open.pop()) != name:
                self.parts.append(f"</{last}>")
            self.parts.append(f"</{name}>")


def _tag(token: Token) -> str:
    # A browser takes the first attribute of a name
    attributes: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(token.text, len(token.name) + 1):
        name, value = match[1].lower(), match[2] or match[3] or match[4] or ""
        if name in ATTRIBUTES or (
                (token.name, name) == ("img", "src") and is_image(value)):
            attributes.setdefault(name, value)
    written = "".join(f' {name}="{_written(value)}"'
                      for name, value in attributes.items())
    return f"<{token.name}{written}>"


def _written(text: str) -> str:
    """References to characters stay as they are, because they make no markup."""
    return text.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def is_image(address: str) -> bool:
    return address.strip().lower().startswith(IMAGES)
