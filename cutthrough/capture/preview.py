"""A captured page of HTML as a harmless one: its text and its structure.

Every tag is written anew: elements of TAGS alone, of their attributes those of
ATTRIBUTES alone, and images if their bytes are in the page. So there is no script, no
style, no link and no address that a browser could load, whatever it makes of the rest.
The page that shows it trusts it no more for that: docs/traffic.md.
"""

from html import escape
from html.parser import HTMLParser

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
# Characters that are read, and levels: a parser of a browser takes 512
MOST_TEXT, MOST_DEPTH = 1 << 20, 200


def make_preview(text: str) -> str:
    """The page."""
    maker = _Maker()
    maker.feed(text[:MOST_TEXT])
    maker.close()
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>preview</title></head><body>{''.join(maker.parts)}</body></html>")


class _Maker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._open: list[str] = []
        self._left_out = ""                  # the element that goes now
        self._inner = 0                      # elements of its name inside it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._left_out:
            self._inner += tag == self._left_out
        elif tag in LEFT_OUT:
            self._left_out = tag
        elif tag in VOID:
            self.parts.append(self._tag(tag, attrs))
        elif tag in TAGS and len(self._open) < MOST_DEPTH:
            self.parts.append(self._tag(tag, attrs))
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID or tag not in LEFT_OUT:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._left_out:
            if tag == self._left_out:
                self._inner -= 1
                if self._inner < 0:
                    self._left_out, self._inner = "", 0
        elif tag in self._open:
            while (last := self._open.pop()) != tag:
                self.parts.append(f"</{last}>")
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._left_out:
            self.parts.append(escape(data))

    def _tag(self, tag: str, attrs: list[tuple[str, str | None]]) -> str:
        attributes = "".join(
            f' {name}="{escape(value or "")}"' for name, value in attrs
            if name in ATTRIBUTES or (
                (tag, name) == ("img", "src") and is_image(value or "")))
        return f"<{tag}{attributes}>"


def is_image(address: str) -> bool:
    return address.strip().lower().startswith(IMAGES)
