"""All code that reads content is listed with its bound; new code fails (R63, R65, R66).

Listed are regular expressions inside functions, parsers of documents, charsets that are
no constant, functions that call themselves, and texts that grow in a loop, in the
packages that read content. Regular expressions of modules need no line: each is run on
hostile text, made of its own characters.
"""

import ast
import importlib
import itertools
import pkgutil
import random
import re
import time
from pathlib import Path

import pytest

import cutthrough

ROOT = Path(cutthrough.__file__).parent
PACKAGES = ("exchange", "tape", "storage", "capture", "recording", "filters", "admin")
PARSERS = {"json.loads", "json.load", "msgspec.json.decode", "msgspec.json.Decoder",
           "msgspec.msgpack.decode", "yaml.load", "yaml.safe_load"}

# file: {kind and function: why it is bounded}
KNOWN = {
    "admin/bodies.py": {"growth read_body": "a bytearray, bounded"},
    "admin/flows_page.py": {
        "parser decode": "our own query process's answers, or an operator's",
        "regex number_of": "18 digits"},
    "admin/metrics.py": {"recursion collect": "a method of another object"},
    "admin/open_flows.py": {"parser _last": "our own workers'",
                            "parser rows": "our own workers'"},
    "capture/copies.py": {"parser copy_as": "what json.dumps has written"},
    "exchange/formats/dump_reader.py": {
        "regex make_exchange": "anchored, classes that exclude"},
    "capture/filters.py": {
        "regex _compile": "repeats nothing",
        "regex _split": "an operator's filter", "regex read_term": "the same"},
    "exchange/flow.py": {"parser messages": "what the writer has written"},
    "exchange/forms.py": {"regex parameter": "a field; run on hostile text below"},
    "exchange/formats/har.py": {
        "regex make_response": "3 digits", "regex body_size": "18",
        "regex read_query": "one character"},
    "exchange/formats/imported.py": {
        "regex split_url": "classes of one character",
        "regex number_of": "8 characters"},
    "exchange/formats/packed.py": {"growth read": "a bytearray, of what is asked for"},
    "capture/graphql.py": {
        "growth indent_document": "a line, which grows in place",
        "parser (module)": "names alone, of 1 MiB: values stay text",
        **{f"charset {name}": "of no charset: a decoder of JSON" for name in (
            "is_request", "read_requests", "show_graphql", "title")}},
    "capture/indented.py": {
        "growth indent_json": "a text of one reference, which grows in place"},
    "capture/importing.py": {"recursion add": "twice: a batch, then a row"},
    "capture/markup.py": {"regex read_tokens": "a name's end",
                          "regex end_of_other": "2 characters"},
    "exchange/messages.py": {"regex read_messages": "a field of a head",
                            "regex read_events": "line ends"},
    "tape/open_parts.py": {"parser decode": "our own workers'"},
    "storage/postgres_rows.py": {"parser words_of_row": "what the writer has written"},
    "capture/query_process.py": {"growth read_exactly": "a bytearray",
                                 "parser main": "our own supervisor's"},
    "capture/send.py": {"regex check": "classes of one character"},
    "storage/store.py": {"regex split_words": "one class"},
    "capture/views.py": {
        "parser show_msgpack": "64 KiB, and the nesting that msgspec has",
        "recursion plain": "nesting that msgspec has"},
    "storage/span_process.py": {"parser main": "our own writer's"},
    "storage/traced.py": {"parser _count": "our own process's"},
    "storage/writer.py": {"parser serve": "our own supervisor's"},
    "exchange/content.py": {"charset read_text": "of CODECS, which are linear",
                            "charset _decode": "of CODECS"},
    "exchange/documents.py": {
        "charset read_file": "UTF-8, UTF-16 or UTF-32",
        "parser read_file": "values and depth are counted before",
        "parser (module)": "read_json counts values and depth before",
        "recursion _is_in": "Steps, and MOST_DEPTH",
        "recursion add": "MOST_PARTS, and MOST_DEPTH"},
    "exchange/echoes.py": {"charset text": "Latin-1 or UTF-8"},
    "exchange/jsonpath_nodes.py": {"recursion is_same": "Steps, and MOST_DEPTH"},
    "exchange/redaction/json_redactor.py": {
        "parser _hide": "one string, or one number", "parser _inside": "one string",
        "regex split_path": "of the configuration",
        "regex _key_of": "of the configuration, possessive"},
    "exchange/redaction/members.py": {
        "parser _read": "MOST_READ octets, or a string",
        "regex __init__": "of names, of bounded repetitions",
        "regex _character": "re.escape"},
    "exchange/redaction/parts.py": {"growth _redact_data": "a bytearray",
                                    "growth _redact_others": "a bytearray"},
    "exchange/redaction/redactor.py": {"growth _documents_in_form": "a bytearray",
                                       "growth _json_in_lines": "a bytearray"},
    "exchange/redaction/spellings.py": {"growth unquoted_octets": "a bytearray",
                                        "regex _escaped": "re.escape",
                                        "regex _compile": "of names, possessive",
                                        "regex _end": "of classes"},
    "recording/play/stubs.py": {"parser read_requests": "our own workers'"},
    "recording/sessions/folder.py": {
        "parser pack": "what json.dumps has written",
        "parser pack_bytes": "an operator exports; a body within the session's bound",
        "regex name_of": "one class"},
    "recording/model/fresh.py": {"regex renew": "alternatives that are constants"},
    "recording/formats/handlebars.py": {"regex _literal": "2 characters",
                                "regex _value": "33 digits",
                                "regex _jsonpath": "classes that exclude"},
    "recording/model/recorded_heads.py": {
        "growth _end_to_end": "a head, of 64 KiB at most"},
    "recording/formats/hoverfly.py": {"recursion read_matcher": "MOST_FILE_DEPTH"},
    "recording/play/in_step.py": {"growth _go_on": "a bytearray"},
    "recording/match/keys.py": {"recursion plain": "another function of this name"},
    "recording/match/matcher.py": {
        "recursion is_costly": "another function of this name"},
    "recording/sessions/modes.py": {"parser read_state": "our own file"},
    "recording/sessions/session.py": {"parser read_manifest": "our own file"},
    "recording/record/conversion.py": {"growth read_chunks": "to MOST_LINE"},
    "recording/model/templates.py": {
        "recursion pieces": "depth of the template, checked"},
    "recording/model/xml_documents.py": {
        "charset decode_xml": "of _CHARSETS", "growth spell": "in place",
        "recursion is_like": "Steps, and the depth that libxml2 has"},
    "recording/model/xpath_cost.py": {
        "recursion _call": "another function of this name"},
}


class Reader(ast.NodeVisitor):
    """A file's uses of content."""

    def __init__(self):
        self.found = set()
        self._names, self._texts = [], [set()]
        self._loops = 0

    def _add(self, kind):
        self.found.add(f"{kind} {self._names[-1] if self._names else '(module)'}")

    def visit_FunctionDef(self, node):
        loops, self._loops = self._loops, 0
        self._names.append(node.name)
        self._texts.append({
            target.id for one in ast.walk(node) if isinstance(one, ast.Assign)
            for target, value in zip_targets(one) if is_text(value)})
        self.generic_visit(node)
        self._texts.pop()
        self._names.pop()
        self._loops = loops

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_For(self, node):
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1

    visit_While = visit_AsyncFor = visit_For

    def visit_AugAssign(self, node):
        if isinstance(node.op, ast.Add) and self._loops and (
                is_text(node.value) or (isinstance(node.target, ast.Subscript)
                and is_maker_of_text(node.value))
                or (isinstance(node.target, ast.Name)
                and node.target.id in self._texts[-1])):
            self._add("growth")
        self.generic_visit(node)

    def visit_Assign(self, node):
        """`a[-1] = f(a[-1] + b)` copies all of it each time, too."""
        targets = {ast.unparse(target) for target in node.targets
                   if isinstance(target, ast.Subscript | ast.Attribute)}
        if self._loops and any(
                isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add)
                and any(ast.unparse(part) in targets for part in ast.walk(one.left))
                and not isinstance(one.right, ast.Constant)
                for one in ast.walk(node.value)):
            self._add("growth")
        self.generic_visit(node)

    def visit_Call(self, node):
        name = ast.unparse(node.func)
        if name.startswith("re.") and self._names:
            self._add("regex")
        if name in PARSERS:
            self._add("parser")
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "decode" and (
                node.args and not isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0], ast.Name | ast.Call | ast.Subscript)
                and not name.startswith(("msgspec.", "_DECODER", "base64."))):
            self._add("charset")
        if self._names and name.removeprefix("self.") in self._names:
            self._add("recursion")
        self.generic_visit(node)


def zip_targets(node):
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
        else:
            pairs = [(target, node.value)]
        yield from ((one, value) for one, value in pairs if isinstance(one, ast.Name))


def is_maker_of_text(node):
    """A call may make a text; a number grows by a name or a constant."""
    return isinstance(node, ast.Call)


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)) or (
        isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "bytes", "str", "bytearray"))


def read(text):
    reader = Reader()
    reader.visit(ast.parse(text))
    return reader.found


def files():
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def test_all_that_reads_content_is_known_with_its_bound():
    found = {str(path.relative_to(ROOT)): uses for path in files()
             if (uses := read(path.read_text()))}
    assert {name: sorted(uses - KNOWN.get(name, {}).keys())
            for name, uses in found.items() if uses - KNOWN.get(name, {}).keys()} == {}
    # No line stays for code that has gone
    assert {name: sorted(uses.keys() - found.get(name, set()))
            for name, uses in KNOWN.items()
            if uses.keys() - found.get(name, set())} == {}


@pytest.mark.parametrize(("text", "kind"), [
    ("def f(a):\n return json.loads(a)", "parser f"),
    ("def f(a):\n return yaml.load(a, L)", "parser f"),
    ("def f(a, b):\n return a.decode(b)", "charset f"),
    ("def f(a):\n for b in a:\n  f(b)", "recursion f"),
    ("class A:\n def f(self, a):\n  self.f(a)", "recursion f"),
    ("def f(a):\n return re.search('a', a)", "regex f"),
    ("def f(a):\n b = ''\n for c in a:\n  b += c", "growth f"),
    ("def f(a):\n for b in a:\n  a[-1] = g(a[-1].c + b)", "growth f"),
    ("def f(a):\n b, c = b'', 1\n while a:\n  b += a.pop()", "growth f")])
def test_what_is_new_is_seen(text, kind):
    assert kind in read(text)


# --- regular expressions of modules --------------------------------------------------

def expressions():
    """Expressions of modules, and those that a function makes of a constant."""
    for package in PACKAGES:
        names = [found.name for found in pkgutil.walk_packages(
            [str(ROOT / package)], f"cutthrough.{package}.")]
        names += [".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
                  for path in sorted((ROOT / package).rglob("*.pyx"))]
        for found in names:
            try:
                module = importlib.import_module(found)
            except ImportError:              # of an extra
                continue
            for name, value in sorted(vars(module).items()):
                values = value.values() if isinstance(value, dict) else (
                    value if isinstance(value, tuple) else [value])
                for one in values:
                    if isinstance(one, re.Pattern):
                        yield f"{found.removeprefix('cutthrough.')}.{name}", one


def is_searched(place):
    """Whether a text is searched with it, or only read from a place on."""
    module, _, name = place.rpartition(".")
    sources, short = SOURCES[module], re.escape(name)
    return re.search(rf"\b{short}\.(search|finditer|findall|subn?|split)\b",
                     sources) is not None


EXPRESSIONS = {pattern.pattern: (name, pattern) for name, pattern in expressions()}
SOURCES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text()
           for path in files()}


def pieces_of(pattern):
    """Short texts of the characters that the expression names, and of one that it does
    not."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else (
        pattern.pattern.decode("latin-1"))
    plain = re.sub(r"\\.", " ", text)
    words = re.findall(r"[A-Za-z][A-Za-z-]*[A-Za-z]|[^][\\(){}|*+?.^$]{2,8}", plain)
    letters = dict.fromkeys(
        [*re.sub(r"\\[a-zA-Z]|[A-Za-z0-9?*+(){}^$|.]", "", text)[:40],
         *(" " if r"\s" in text else ""), *("\n" if r"\n" in text else ""),
         "a", "0", "\0"])
    return [*dict.fromkeys(words), *letters]


def hostile(pattern, seed):
    """Periods to repeat: single pieces, and a sample of two and three, with a head."""
    rng = random.Random(seed)
    pieces = pieces_of(pattern)
    some = pieces if len(pieces) < 7 else rng.sample(pieces, 7)
    yield from (("", one) for one in pieces)
    yield from itertools.product(some, some)  # a head, and a piece repeated for ever
    for _ in range(20):
        yield "", "".join(rng.choices(pieces, k=rng.randint(2, 4)))


def seconds(pattern, text, searched):
    given = text if isinstance(pattern.pattern, str) else text.encode(
        "latin-1", "replace")
    begun = time.process_time()
    pattern.match(given)
    if searched:
        for _ in pattern.finditer(given):
            pass
    return time.process_time() - begun


# A square takes 16 times as long for 4 times the text; a step is some 10 ns
SHORT, TIMES, MOST_RATIO, LEAST_S = 6_000, 4, 9, 0.04


@pytest.mark.parametrize(
    "name", [pytest.param(text, id=f"{name}-{at}")
             for at, (text, (name, _)) in enumerate(EXPRESSIONS.items())])
def test_an_expression_on_content_takes_linear_time(name):
    """R66: on texts that are made of its own characters."""
    place, pattern = EXPRESSIONS[name]
    search_for_squares(pattern, is_searched(place), 3)


def search_for_squares(pattern, searched, tries):
    """Each time is the least of so many."""
    for head, period in hostile(pattern, 7):
        def text(size, head=head, period=period):
            return head + period * (size // len(period)) + "\1"

        if seconds(pattern, text(SHORT), searched) < LEAST_S / 8:
            continue                         # 6 000 characters of a square: 10 ms
        short, long = (min(seconds(pattern, text(size), searched) for _ in range(tries))
                       for size in (SHORT, SHORT * TIMES))
        assert long < LEAST_S or long / short < MOST_RATIO, (head, period, short, long)


def test_the_search_for_squares_finds_those_that_are_known():
    for known in (re.compile(r"a+b"), re.compile(r"\s+x"), re.compile(r"<[^>]*>"),
                  re.compile(r"<!--.*?-->", re.S)):
        with pytest.raises(AssertionError):
            search_for_squares(known, True, 1)
