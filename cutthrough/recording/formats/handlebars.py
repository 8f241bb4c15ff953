"""Templates of hoverfly (Handlebars) -> ours (templates.py). Expressions and the blocks
`#if` and `#each` are read; another helper or block is refused, because its output would
differ from hoverfly's.

    {{ Request.QueryParam.page }}    {{ request.query.page }}
    {{ Request.Path.[1] }}           {{ request.segments[1] }}
    {{ State.cart }}                 {{ state.cart }}
    {{ now '1d' 'unix' }}            {{ now("unix", seconds=86400) }}
"""

import json
import re
from collections.abc import Iterator, Mapping

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.model.xml_documents import is_plain_path

# Characters of a tag with its braces, of all literals in a template, and of those in
# all templates of a simulation
MOST_TAG, MOST_LITERALS, MOST_TOGETHER = 1000, 1 << 20, 64 << 20

_WORD = re.compile(r"""'[^']*+'|"[^"]*+"|[^\s'"]++""")
_STEP = re.compile(r"\.?\[(\d+)\]|\.?\[([^\[\]]++)\]|\.?([^.\[\]]+)")
_PARTS = {"method": "method", "scheme": "scheme", "host": "host", "body": "body"}
_TABLES = {"queryparam": "query", "formdata": "form", "header": "fields"}
_RANDOM = {
    "randomUuid": "uuid()", "randomInteger": "random_int(0, 2147483647)",
    "randomString": "random_text(10)", "randomBoolean": "random_boolean()",
    "randomFloat": "random_float(0, 1)", "randomEmail": "random_email()",
    "randomIPv4": "random_ipv4()", "randomIPv6": "random_ipv6()"}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "y": 31536000.0}
_SPAN = re.compile(r"(?<!\d)(\d++)(ms|[smhdy])")
_PATH = re.compile(r"\$((?:\.\w+|\[\d+\]|\['[^']*'\])*)")
# Go's reference time (package time), longest first
_LAYOUT = (
    ("2006", "%Y"), ("January", "%B"), ("Jan", "%b"), ("Monday", "%A"), ("Mon", "%a"),
    ("MST", "UTC"), ("Z07:00", "Z"), ("-0700", "+0000"), ("01", "%m"), ("02", "%d"),
    ("15", "%H"), ("03", "%I"), ("04", "%M"), ("05", "%S"), ("PM", "%p"), ("06", "%y"))
_LAYOUTS = re.compile("|".join(re.escape(piece) for piece, _ in _LAYOUT))


class Literals:
    """The literals of a simulation, by name. Each use is a copy, so all together are
    bounded (R70)."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._left = MOST_TOGETHER

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def take(self, name: str, most: int) -> str:
        """Raises NotImported: it has more than `most` characters, or all have."""
        value = self._values[name]
        if len(value) > most:
            raise NotImported(
                f"its template: its literals have more than {MOST_LITERALS} characters")
        self._left -= len(value)
        if self._left < 0:
            raise NotImported("its template: with its literals, those of all templates "
                              f"would have more than {MOST_TOGETHER} characters")
        return value


def translate(text: str, literals: Literals | None = None) -> str:
    """Raises NotImported. Jinja2's own marks in `text` are kept as text.
    `literals`: the simulation's."""
    pieces, at, left = [], 0, MOST_LITERALS
    blocks: list[str] = []
    for begin, end, braces in find_tags(text):
        tag = text[begin + braces:end - braces].strip()
        name, value = tag.removeprefix("Literals."), None
        if literals is not None and name != tag and name in literals:
            value = literals.take(name, left)
            left -= len(value)
        pieces += [_literal(text[at:begin]), _tag(tag, blocks, braces) if value is None
                   else _literal(value)]
        at = end
    if blocks:
        raise NotImported(f"its template: {{{{#{blocks[-1]}}}}} has no end")
    return "".join([*pieces, _literal(text[at:])])


def find_tags(text: str) -> Iterator[tuple[int, int, int]]:
    """Begin, end and number of braces of each tag. Raises NotImported. A missing end is
    looked for once."""
    at, no_third = 0, False
    while (begin := text.find("{{", at)) >= 0:
        end, braces = -1, 3
        if not no_third and text.startswith("{{{", begin):
            end = text.find("}}}", begin + 3)
            no_third = end < 0
        if end < 0:
            end, braces = text.find("}}", begin + 2), 2
        if end < 0:
            return
        at = end + braces
        if at - begin > MOST_TAG:
            raise NotImported(f"its template: {{{{ has more than {MOST_TAG} characters")
        yield begin, at, braces


def _literal(text: str) -> str:
    return re.sub(r"\{[%#{]", lambda match: f'{{{{ "{match[0]}" }}}}', text)


def _tag(text: str, blocks: list[str], braces: int) -> str:
    """If there are three braces, the value is not escaped for HTML."""
    if braces == 3:
        return f"{{{{ {_value(text)} }}}}"
    if text.startswith("!"):
        return ""
    if text == "else":
        return "{% else %}"
    if text.startswith("/"):
        if not blocks or blocks.pop() != text[1:].strip():
            raise NotImported(f"its template: {{{{{text:.40}}}}} ends nothing")
        return "{% endif %}" if text[1:].strip() == "if" else "{% endfor %}"
    if text.startswith("#"):
        name, _, rest = text[1:].strip().partition(" ")
        if name not in ("if", "each"):
            raise NotImported(f"its template: the block {name!r:.40} is not known")
        if name == "each" and "each" in blocks:
            raise NotImported("its template: a loop in a loop")
        blocks.append(name)
        expression = _value(rest.strip())
        return (f"{{% if {expression} | default('') %}}" if name == "if" else
                f"{{% for item in {expression} %}}")
    return f"{{{{ ({_value(text)}) | escape }}}}"


def _value(text: str) -> str:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    words = _WORD.findall(text)
    if not words:
        raise NotImported("its template has an empty expression")
    name, arguments = words[0], [
        word[1:-1] if word[0] in "'\"" else word for word in words[1:]]
    if name == "now":
        return _now(*arguments[:2])
    if name == "randomIntegerRange" and len(arguments) == 2 and all(
            argument.lstrip("-").isdigit() for argument in arguments):
        return f"random_int({int(arguments[0])}, {int(arguments[1])})"
    if name in _RANDOM and not arguments:
        return _RANDOM[name]
    if name == "randomStringLength" and len(arguments) == 1 and re.fullmatch(
            r"\d{1,3}", arguments[0]):
        return f"random_text({int(arguments[0])})"
    if name == "randomFloatRange" and len(arguments) == 2 and all(
            re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", argument)
            for argument in arguments):
        return f"random_float({float(arguments[0])}, {float(arguments[1])})"
    if name == "Request.Body" and len(arguments) == 2 and arguments[0] == "jsonpath":
        return _jsonpath(arguments[1])
    if name == "Request.Body" and len(arguments) == 2 and arguments[0] == "xpath":
        if not is_plain_path(arguments[1]):
            raise NotImported(f"its template: the XPath {arguments[1]!r:.60} is no "
                              "plain path")
        return f"xpath({_text(arguments[1])})"
    if arguments:
        raise NotImported(f"its template: the helper {name!r:.40} is not known")
    if name == "this":
        return "item"
    if name == "@index":
        return "loop.index0"
    return _path(name)


def _path(text: str) -> str:
    """A missing value is empty, as in hoverfly."""
    steps = [number or quoted or word for number, quoted, word in _STEP.findall(text)]
    first = [step.lower() for step in steps[:2]]
    if first[:1] == ["state"] and len(steps) == 2:
        return f"state[{_text(steps[1])}] | default('')"
    if first[:1] == ["this"] and len(steps) == 2:
        return f"item[{_text(steps[1])}] | default('')"
    if first[:1] == ["request"] and len(steps) > 1:
        part = first[1]
        if part in _PARTS and len(steps) == 2:
            return f"request.{_PARTS[part]}"
        if part == "path" and len(steps) == 2:
            return "request.path"
        if part == "path" and len(steps) == 3 and steps[2].isdigit():
            return f"request.segments[{int(steps[2])}] | default('')"
        if part in _TABLES and len(steps) in (3, 4):
            if len(steps) == 4 and steps[3] != "0":
                raise NotImported("its template: a value behind the first")
            key = steps[2].lower() if part == "header" else steps[2]
            return f"request.{_TABLES[part]}[{_text(key)}] | default('')"
    raise NotImported(f"its template: {text!r:.60} is not known")


def _jsonpath(text: str) -> str:
    match = _PATH.fullmatch(text)
    if match is None:
        raise NotImported(f"its template: the JSONPath {text!r:.60} is not a plain one")
    steps = re.findall(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]", match[1])
    return "json" + "".join(
        f"[{number}]" if number else f"[{_text(word or quoted)}]"
        for word, number, quoted in steps) + " | default('')"


def _now(offset: str = "", layout: str = "") -> str:
    sign = -1 if offset.startswith("-") else 1
    spans = _SPAN.findall(offset.lstrip("-+"))
    if "".join(number + unit for number, unit in spans) != offset.lstrip("-+"):
        raise NotImported(f"its template: the offset {offset!r:.20} is not known")
    seconds = sign * sum(int(number) * _UNITS[unit] for number, unit in spans)
    form = {"unix": "unix", "epoch": "unix_ms", "": "iso"}.get(layout)
    if form is None:
        of = dict(_LAYOUT)
        form = _LAYOUTS.sub(lambda match: of[match[0]], layout.replace("%", "%%"))
    return f"now({_text(form)}, seconds={seconds:g})"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
