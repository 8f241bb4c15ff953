"""Answers that are templates: `{{ request.query.page }}`, in fields and the body.

Jinja2 reads them, in a sandbox that is smaller than its own: a template sees the tables
and functions below, has no attributes or methods, and cannot join texts, loop in a loop
or define anything. Whoever may edit recordings may write one, and the loop of
connections runs it.

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
import html
import importlib
import secrets
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec

from cutthrough.recording.documents import KeyMistake, read_json
from cutthrough.recording.model import (
    Chunk,
    Pairs,
    Recording,
    Request,
    Response,
    split_pairs,
)
from cutthrough.recording.xml_documents import (
    decode_xml,
    is_plain_path,
    read_xml,
    text_at,
)

MOST_TEXT = 1 << 20                          # of a template, and of what it makes
_FILTERS = ("abs", "default", "first", "float", "int", "last", "length", "lower",
            "round", "title", "tojson", "trim", "upper", "urlencode")
_TESTS = ("defined", "undefined", "divisibleby", "even", "odd", "in", "none", "number",
          "string", "eq", "ne", "lt", "le", "gt", "ge")
_OF_LOOPS = ("index", "index0", "first", "last", "length")
_SIGNS = ("{{", "{%", "{#")
_NAMED = {"": "%Y-%m-%dT%H:%M:%SZ", "iso": "%Y-%m-%dT%H:%M:%SZ"}


class TemplateMistake(ValueError):
    """A template that cannot be used, or not for this request, with the reason."""


def render(recording: Recording, request: Request, state: Mapping[str, str]
           ) -> Recording:
    """The recording with what its templates make of this request, as one piece. Raises
    TemplateMistake."""
    response = recording.response
    values = _values(request, state)
    fields = tuple((name, _line(value, values)) for name, value in response.fields
                   if name.lower() != "content-length")
    body = response.body
    chunks: tuple[Chunk, ...] = ()
    if body:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise TemplateMistake("the template is no UTF-8") from None
        made = _fill(text, values).encode()
        chunks = (Chunk(response.chunks[-1].at_us, made),)
    size = sum(len(one.data) for one in chunks)
    made_response: Response = msgspec.structs.replace(
        response, fields=(*fields, ("Content-Length", str(size))), chunks=chunks)
    return msgspec.structs.replace(recording, response=made_response)


def check(recording: Recording) -> None:
    """Raises TemplateMistake if a template cannot be read."""
    texts = [value for _, value in recording.response.fields]
    texts.append(recording.response.body.decode("utf-8", "replace"))
    for text in texts:
        if any(sign in text for sign in _SIGNS):
            _compile(text)


def _line(text: str, values: dict[str, Any]) -> str:
    made = _fill(text, values)
    return "".join([one if one >= " " or one == "\t" else " " for one in made])


def _fill(text: str, values: dict[str, Any]) -> str:
    if not any(sign in text for sign in _SIGNS):
        return text
    template = _compile(text)
    pieces, size = list[str](), 0
    try:
        for piece in template.generate(values):
            pieces.append(piece)
            size += len(piece)
            if size > MOST_TEXT:
                raise TemplateMistake(f"it makes more than {MOST_TEXT} characters")
    except TemplateMistake:
        raise
    except Exception as error:               # whatever an expression may do
        raise TemplateMistake(str(error)[:200] or type(error).__name__) from None
    return "".join(pieces)


@functools.lru_cache(1024)
def _compile(text: str) -> Any:
    """Raises TemplateMistake."""
    if len(text) > MOST_TEXT:
        raise TemplateMistake(f"it is longer than {MOST_TEXT} characters")
    environment, nodes, errors = _environment()
    try:
        tree = environment.parse(text)
        _refuse(tree, nodes)
        return environment.from_string(tree)
    except TemplateMistake:
        raise
    except (errors, RecursionError) as error:
        raise TemplateMistake(str(error)[:200]) from None


def _refuse(tree: Any, nodes: Any) -> None:
    """What could take long, or define something."""
    known = (
        nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For,
        nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Test,
        nodes.Call, nodes.Keyword, nodes.Compare, nodes.Operand, nodes.And, nodes.Or,
        nodes.Not, nodes.CondExpr, nodes.Add, nodes.Sub, nodes.Neg)
    for node in tree.find_all(nodes.Node):
        if not isinstance(node, known):
            raise TemplateMistake(f"line {node.lineno}: {type(node).__name__} is not "
                                  "allowed here")
        if isinstance(node, nodes.For) and (
                node.recursive or any(node.find_all(nodes.For))):
            raise TemplateMistake(f"line {node.lineno}: a loop in a loop")
        if isinstance(node, nodes.Call) and not isinstance(node.node, nodes.Name):
            raise TemplateMistake(f"line {node.lineno}: only functions are called")


@functools.cache
def _environment() -> tuple[Any, Any, type[Exception]]:
    """Jinja2's environment, nodes and exception. Raises TemplateMistake."""
    try:
        jinja2 = importlib.import_module("jinja2")
        sandbox = importlib.import_module("jinja2.sandbox")
        nodes = importlib.import_module("jinja2.nodes")
    except ImportError:
        raise TemplateMistake("templates need Jinja2: pip install "
                              "'cutthrough[recording]'") from None
    made = sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, cache_size=0)
    made.getattr = made.getitem = functools.partial(_look_up, made.undefined)
    made.intercepted_binops = frozenset("+-")
    made.call_binop = _calculate
    made.globals = {"now": _now, "uuid": _uuid, "random_int": _random_int}
    made.filters = {name: _bounded(function) for name, function in
                    [*((name, made.filters[name]) for name in _FILTERS),
                     ("escape", lambda value: html.escape(str(value)))]}
    made.tests = {name: made.tests[name] for name in _TESTS}
    return made, nodes, jinja2.TemplateError


def _look_up(undefined: Callable[..., Any], holder: Any, key: Any) -> Any:
    """Of a table its keys, of a list its items, and of anything else nothing."""
    if (isinstance(holder, dict) and key in holder) or (
            isinstance(holder, list | str) and isinstance(key, int)
            and -len(holder) <= key < len(holder)):
        return holder[key]
    if type(holder).__name__ == "LoopContext" and key in _OF_LOOPS:
        return getattr(holder, key)
    return undefined(f"there is no {str(key)[:100]!r}")


def _calculate(context: Any, operator: str, left: Any, right: Any) -> Any:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TemplateMistake(f"{operator!r} is for numbers")
    return left + right if operator == "+" else left - right


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)               # Jinja's marks are attributes
    def call(*given: Any, **named: Any) -> Any:
        made = function(*given, **named)
        if isinstance(made, str) and len(made) > MOST_TEXT:
            raise TemplateMistake(f"a filter makes more than {MOST_TEXT} characters")
        return made
    return call


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
            "segments": [one for one in request.path.split("/") if one],
            "query": _first(split_pairs(request.query)), "form": _first(form),
            "fields": _first([(name.lower(), value) for name, value in request.fields]),
            "body": text}}
    values["xpath"] = functools.partial(_text_at, request.body)
    with contextlib.suppress(ValueError):    # then `json` is not defined
        values["json"] = read_json(request.body)
    return values


def _text_at(body: bytes, path: str) -> str:
    if not is_plain_path(path):
        raise TemplateMistake(f"xpath({path[:60]!r}): only a plain path is read")
    try:
        return text_at(read_xml(decode_xml(body)), path)
    except KeyMistake as error:
        raise TemplateMistake(str(error)) from None
    except ValueError:                       # no XML
        return ""


def _first(pairs: Pairs) -> dict[str, str]:
    return dict(reversed(pairs))


def _now(form: str = "", *, days: float = 0, hours: float = 0, minutes: float = 0,
         seconds: float = 0) -> str:
    at = datetime.now(UTC) + timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds)
    if form == "http":
        return format_datetime(at, usegmt=True)
    if form in ("unix", "unix_ms"):
        return str(int(at.timestamp() * (1000 if form == "unix_ms" else 1)))
    if len(form) > 100:
        raise TemplateMistake("a format is longer than 100 characters")
    return at.strftime(_NAMED.get(form, form))


def _uuid() -> str:
    return str(uuid.uuid4())


def _random_int(low: int, high: int) -> int:
    return low + secrets.randbelow(high - low + 1)
