"""Answers that are templates: `{{ request.query.page }}`, in fields and the body.

Jinja2 parses them, and nothing of it runs: a template is a tree of the nodes below,
which is walked here, each node a step. So there is no compiler that evaluates what is
constant, and a template can be checked wherever it comes from, in the supervisor too.
Steps and results are bounded by the request and the template (R68). A template
sees the tables and functions below, has no attributes or methods, and cannot join
texts, loop over one or in a loop, or define anything.

    request     method, scheme, host, port, path, url, body; `segments` of the path;
                query, fields and form by name: of several values the first
    state       of the sequence's lane
    json        the request's body as a document
    now(format, days=, hours=, minutes=, seconds=)      UTC; "unix", "unix_ms", "iso",
                "http", or a format of strftime
    xpath(path) the text of the first node there, of a request's body of XML; "": none.
                Steps alone, as /a/b[2]/@c
    uuid()      random; random_int(low, high)   both included
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from cutthrough.exchange.bounds import KeyMistake, Steps, TooMuch
from cutthrough.exchange.documents import read_json
from cutthrough.exchange.scan import count_parsed
from cutthrough.recording.model.recording import (
    Chunk,
    Pairs,
    Recording,
    Request,
    Response,
    split_pairs,
)
from cutthrough.recording.model.template_values import (
    FILTERS,
    FUNCTIONS,
    OF_ABSENT,
    OPERATORS,
    TESTS,
    TemplateMistake,
    Undefined,
    look_up,
    need,
    number,
)
from cutthrough.recording.model.xml_documents import (
    decode_xml,
    is_plain_path,
    read_xml,
    text_at,
)

__all__ = ["TemplateMistake", "check", "render"]

MOST_TEXT = 1 << 20                          # of a template, and of its result
# Words and signs in a template, and how deep they lie
MOST_TOKENS, MOST_DEPTH = 5000, 40
# Bytes of a request's body that count as one more value
_BYTES = 32
_SIGNS = ("{{", "{%", "{#")
# White space for Jinja2 and for Python, which stays as it is
_BLANKS = "\x1c\x1d\x1e\x1f\x0b\x0c\x85\u1680\u2028\u2029\u205f\u3000"
_KNOWN = frozenset((
    "Template", "Output", "TemplateData", "If", "For", "Name", "Const", "Getattr",
    "Getitem", "Filter", "Test", "Call", "Keyword", "Compare", "Operand", "And", "Or",
    "Not", "CondExpr", "Add", "Sub", "Neg"))


def render(recording: Recording, request: Request, state: Mapping[str, str]
           ) -> Recording:
    """The recording with its templates' results for this request, as one piece. Raises
    TemplateMistake."""
    response = recording.response
    values = _values(request, state)
    run = _Run(values, request.body)
    fields = tuple((name, _line(value, run)) for name, value in response.fields
                   if name.lower() != "content-length")
    body = response.body
    chunks: tuple[Chunk, ...] = ()
    if body:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise TemplateMistake("the template is no UTF-8") from None
        content = _fill(text, run).encode(errors="replace")
        chunks = (Chunk(response.chunks[-1].at_us, content),)
    size = sum(len(chunk.data) for chunk in chunks)
    rendered: Response = msgspec.structs.replace(
        response, fields=(*fields, ("Content-Length", str(size))), chunks=chunks)
    return msgspec.structs.replace(recording, response=rendered)


def check(recording: Recording) -> None:
    """Raises TemplateMistake if a template cannot be read. Nothing in it is evaluated.
    """
    texts = [value for _, value in recording.response.fields]
    texts.append(recording.response.body.decode("utf-8", "replace"))
    for text in texts:
        if any(sign in text for sign in _SIGNS):
            _parse(text)


def _line(text: str, run: "_Run") -> str:
    filled = _fill(text, run)
    return "".join([character if character >= " " or character == "\t" else " "
                    for character in filled])


def _fill(text: str, run: "_Run") -> str:
    if not any(sign in text for sign in _SIGNS):
        return text
    tree = _parsed(text)
    try:
        return "".join(run.pieces(tree.body))
    except TemplateMistake:
        raise
    except TooMuch:
        raise TemplateMistake("it takes too many steps") from None
    except Exception as error:               # whatever an expression may do
        raise TemplateMistake(str(error)[:200] or type(error).__name__) from None


# --- the tree ----------------------------------------------------------------------

def _parse(text: str) -> Any:
    """Raises TemplateMistake."""
    if len(text) > MOST_TEXT:
        raise TemplateMistake(f"it is longer than {MOST_TEXT} characters")
    environment, errors = _environment()
    mark = ""
    if "\r" in text:                         # of which Jinja2 makes line feeds
        mark = next((blank for blank in _BLANKS if blank not in text), "")
        if not mark:
            raise TemplateMistake("it has carriage returns and all white space")
        text = text.replace("\r", mark)
    try:
        for count, _ in enumerate(environment.lex(text)):
            if count > MOST_TOKENS:
                raise TemplateMistake(f"it has more than {MOST_TOKENS} words and signs")
        tree = environment.parse(text)
    except TemplateMistake:
        raise
    # ValueError: a number of more digits than Python reads
    except (errors, RecursionError, ValueError) as error:
        raise TemplateMistake(str(error)[:200]) from None
    _refuse(tree)
    if mark:
        _put_back(tree, mark)
    return tree


# The trees that a worker fills; a megabyte at most each
_parsed = functools.lru_cache(64)(_parse)


@functools.cache
def _environment() -> tuple[Any, type[Exception]]:
    """Jinja2's, which parses alone, and its exception. Raises TemplateMistake."""
    try:
        library = importlib.import_module("jinja2")
    except ImportError:
        raise TemplateMistake("templates need Jinja2: pip install "
                              "'cutthrough[recording]'") from None
    return (library.Environment(keep_trailing_newline=True, cache_size=0),
            library.TemplateError)


def _put_back(tree: Any, mark: str) -> None:
    """Carriage returns, in place of their mark."""
    left = [tree]
    while left:
        node = left.pop()
        left += node.iter_child_nodes()
        if type(node).__name__ == "TemplateData":
            node.data = node.data.replace(mark, "\r")
        elif type(node).__name__ == "Const" and isinstance(node.value, str):
            node.value = node.value.replace(mark, "\r")


def _refuse(tree: Any) -> None:
    """Anything that is not walked below."""
    left = [(tree, 0, False)]
    while left:
        node, depth, in_loop = left.pop()
        name = type(node).__name__
        why = ""
        if name not in _KNOWN:
            why = f"{name} is not allowed here"
        elif depth > MOST_DEPTH:
            why = f"more than {MOST_DEPTH} levels"
        elif name == "For" and (node.recursive or in_loop):
            why = "a loop in a loop"
        elif name == "Call" and type(node.node).__name__ != "Name":
            why = "only functions are called"
        elif name in ("Filter", "Test") and node.name not in (
                FILTERS if name == "Filter" else TESTS):
            why = f"no {name.lower()} named {node.name!r:.40}"
        elif getattr(node, "dyn_args", None) or getattr(node, "dyn_kwargs", None):
            why = "* is not allowed here"
        if why:
            raise TemplateMistake(f"line {node.lineno}: {why}")
        left += [(child, depth + 1, in_loop or name == "For")
                 for child in node.iter_child_nodes()]


# --- its results -----------------------------------------------------------------

class _Run:
    """The templates of one answer, for one request."""

    def __init__(self, values: dict[str, Any], body: bytes) -> None:
        self._values = values
        self._body = body
        self._steps = Steps(count_parsed(values) + len(body) // _BYTES)
        self._left = MOST_TEXT

    def pieces(self, nodes: list[Any]) -> Iterator[str]:
        for node in nodes:
            self._steps.take()
            match type(node).__name__:
                case "Output":
                    yield from map(self._piece, node.nodes)
                case "If":
                    yield from self.pieces(self._branch(node))
                case "For":
                    yield from self._loop(node)

    def _piece(self, node: Any) -> str:
        if type(node).__name__ == "TemplateData":
            text: str = node.data
        else:
            text = str(need(self._weighed(self.value(node))))
        self._left -= len(text)
        if self._left < 0:
            raise TemplateMistake(f"it makes more than {MOST_TEXT} characters")
        return text

    def _branch(self, node: Any) -> list[Any]:
        for branch in (node, *node.elif_):
            if need(self.value(branch.test)):
                return list(branch.body)
        return list(node.else_)

    def _loop(self, node: Any) -> Iterator[str]:
        items = need(self.value(node.iter))
        if not isinstance(items, list | dict):
            raise TemplateMistake("a loop is over a list or a table")
        if type(node.target).__name__ != "Name" or node.target.name == "loop":
            raise TemplateMistake("a loop has one name")
        name, before = node.target.name, self._values
        self._values = values = {**before, "loop": Undefined("loop")}
        selected = []
        for item in items:
            self._steps.take()
            values[name] = item
            if node.test is None or need(self.value(node.test)):
                selected.append(item)
        for at, item in enumerate(selected):
            values[name] = item
            values["loop"] = {"index": at + 1, "index0": at, "first": at == 0,
                              "last": at == len(selected) - 1, "length": len(selected)}
            yield from self.pieces(node.body)
        self._values = before
        if not selected:
            yield from self.pieces(node.else_)

    def _weighed(self, value: Any) -> Any:
        """The same. Each use takes as many steps as it has values."""
        self._steps.take(count_parsed(value))
        return value

    def value(self, node: Any) -> Any:
        self._steps.take()
        return _VALUES[type(node).__name__](self, node)

    def _name(self, node: Any) -> Any:
        return self._values.get(node.name, Undefined(node.name))

    def _compare(self, node: Any) -> bool:
        left = need(self._weighed(self.value(node.expr)))
        for operand in node.ops:
            right = need(self._weighed(self.value(operand.expr)))
            if not OPERATORS[operand.op](left, right):
                return False
            left = right
        return True

    def _arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        return (
            [need(self._weighed(self.value(argument))) for argument in node.args or ()],
            {keyword.key: need(self.value(keyword.value))
             for keyword in node.kwargs or ()})

    def _apply(self, node: Any, function: Callable[..., Any]) -> Any:
        value = self._weighed(self.value(node.node))
        if node.name not in OF_ABSENT:
            need(value)
        arguments, keywords = self._arguments(node)
        result = function(value, *arguments, **keywords)
        if isinstance(result, str) and len(result) > MOST_TEXT:
            raise TemplateMistake(f"a filter makes more than {MOST_TEXT} characters")
        return result

    def _call(self, node: Any) -> Any:
        name = node.node.name
        arguments, keywords = self._arguments(node)
        if name == "xpath":
            return self._text_at(*arguments, **keywords)
        if name not in FUNCTIONS:
            raise TemplateMistake(f"there is no function {name!r:.40}")
        return FUNCTIONS[name](*arguments, **keywords)

    def _text_at(self, path: str) -> str:
        if not isinstance(path, str) or not is_plain_path(path):
            raise TemplateMistake(f"xpath({path!r:.60}): only a plain path is read")
        self._steps.take(1 + len(self._body) // _BYTES)
        try:
            return text_at(read_xml(decode_xml(self._body)), path)
        except KeyMistake as error:
            raise TemplateMistake(str(error)) from None
        except TooMuch:
            raise
        except ValueError:                   # no XML
            return ""


_VALUES: dict[str, Callable[[_Run, Any], Any]] = {
    "Name": _Run._name,
    "Const": lambda run, node: node.value,
    "TemplateData": lambda run, node: node.data,
    "Getattr": lambda run, node: look_up(run.value(node.node), node.attr),
    "Getitem": lambda run, node: look_up(run.value(node.node), run.value(node.arg)),
    "Filter": lambda run, node: run._apply(node, FILTERS[node.name]),
    "Test": lambda run, node: run._apply(node, TESTS[node.name]),
    "Call": _Run._call,
    "Compare": _Run._compare,
    "And": lambda run, node: need(run.value(node.left)) and run.value(node.right),
    "Or": lambda run, node: need(run.value(node.left)) or run.value(node.right),
    "Not": lambda run, node: not need(run.value(node.node)),
    "CondExpr": lambda run, node: run.value(
        node.expr1 if need(run.value(node.test)) else node.expr2),
    "Add": lambda run, node: (
        number(need(run.value(node.left))) + number(need(run.value(node.right)))),
    "Sub": lambda run, node: (
        number(need(run.value(node.left))) - number(need(run.value(node.right)))),
    "Neg": lambda run, node: -number(need(run.value(node.node)))}


def _values(request: Request, state: Mapping[str, str]) -> dict[str, Any]:
    form: Pairs = []
    text = request.body.decode("utf-8", "replace")
    if request.field("content-type").startswith("application/x-www-form-urlencoded"):
        form = split_pairs(text)
    values: dict[str, Any] = {
        "state": dict(state),
        "request": {
            "method": request.method, "scheme": request.scheme, "host": request.host,
            "port": request.port, "path": request.path, "url": request.url,
            "segments": [segment for segment in request.path.split("/") if segment],
            "query": _first(split_pairs(request.query)), "form": _first(form),
            "fields": _first([(name.lower(), value) for name, value in request.fields]),
            "body": text}}
    with contextlib.suppress(ValueError):    # then `json` is not defined
        values["json"] = read_json(request.body)
    return values


def _first(pairs: Pairs) -> dict[str, str]:
    return dict(reversed(pairs))
