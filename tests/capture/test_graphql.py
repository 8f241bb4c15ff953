"""The view of GraphQL: operations by their names, indented documents, variables."""

import json

import pytest

from cutthrough.capture.graphql import MOST_BODY, read_requests, show_graphql
from cutthrough.capture.views import choose, show_body, views_of

JSON = "application/json"


def body(**fields):
    return json.dumps(fields, ensure_ascii=False)


def show(text, kind=JSON):
    return [*show_body(text, kind)]


def test_an_operation_is_shown_with_its_variables():
    """Before, it was one line in an indented document of JSON."""
    assert show(body(
        query="query Item($id: ID!, $with: [Tag!]! = [NEW, OLD]) @live { item(id: $id, "
              "filter: {tag: {in: $with}}) { name, other: title(short: true) "
              "@include(if: $x) { ...Part ... on Book @skip(if: false) { isbn } } } } "
              "fragment Part on Item { a b }",
        operationName="Item", variables={"id": 7, "with": ["größer"]},
        more=None).replace(" 7,", " 7.10e0,")) == [
        "# query Item",
        "query Item($id: ID!, $with: [Tag!]! = [NEW, OLD]) @live {",
        "  item(id: $id, filter: { tag: { in: $with } }) {",
        "    name,",
        "    other: title(short: true) @include(if: $x) {",
        "      ...Part",
        "      ... on Book @skip(if: false) {",
        "        isbn",
        "      }",
        "    }",
        "  }",
        "}",
        "fragment Part on Item {",
        "  a",
        "  b",
        "}",
        "# variables",
        "{",
        '  "id": 7.10e0,',
        '  "with": [',
        '    "größer"',
        "  ]",
        "}",
        "# more",
        "null"]


@pytest.mark.parametrize(("text", "kind", "first"), [
    (body(query="{ a }"), JSON, "# query without a name"),
    (body(query="mutation Add { a }"), JSON, "# mutation Add"),
    (body(query="query A { a } subscription B { b }", operationName="B"), JSON,
     "# subscription B"),
    (body(operationName="Known", extensions={"persistedQuery": {"sha256Hash": "a"}}),
     "application/json; charset=utf-8", "# operation Known"),
    (body(extensions={"persistedQuery": {"sha256Hash": "a"}}), JSON,
     "# a document that the server knows by its hash"),
    ("subscription S { a }", "application/graphql", "# subscription S"),
    (body(query="# why\n  query Q { a }"), JSON, "# query Q"),
    (f"[{body(query='{a}')}, {body(query='mutation M {b}')}]", JSON,
     "# request 1 of 2")])
def test_each_form_of_a_request_is_known(text, kind, first):
    assert choose(text, kind) == "graphql"
    assert views_of(text, kind) == ["graphql", "text", "json", "hex"]
    assert show(text, kind)[0] == first


@pytest.mark.parametrize("text", [
    body(query="cats and dogs"), body(query=7), body(data={"query": "{ a }"}),
    body(query="queryable"), "[]", f"[{body(query='{a}')}, 1]", '{"query": "{ a }"',
    body(extensions={"persistedQuery": 1}), '["query"]', "[" * 100_000 + '"query"'])
def test_other_documents_are_json(text):
    assert read_requests(text) == []
    assert choose(text, JSON) == "json"


def test_what_is_no_request_is_shown_as_it_is():
    assert [*show_graphql("a\nb")] == ["(is no request of GraphQL)", "a", "b"]


def test_comments_and_texts_in_blocks_stay():
    text = ('query { # first\n a(text: "{ not } # a comment") b(block: """one\n'
            '  {two}""") # last\n}')
    assert show(text, "application/graphql") == [
        "# query without a name", "query {", "  # first",
        '  a(text: "{ not } # a comment")', "  b(block:", '  """one', '  {two}"""',
        "  )", "  # last", "}"]


@pytest.mark.parametrize("text", [
    "{" * 50_000, "{a(" * 30_000, '"' * 100_001, "# " * 90_000, "a " * 90_000,
    '"""' + "\\" * 90_000, "}" * 90_000, "...on " * 30_000, "query" * 30_000])
def test_hostile_documents_take_time_in_proportion_and_lose_nothing(text):
    """A document that is not one, too, has each sign in its lines."""
    lines = "".join(show_graphql(text, "application/graphql"))
    assert lines.replace(" ", "").count(text[0]) >= text.count(text[0])
    assert len(lines) < 200 * len(text)


def test_a_long_body_is_json():
    text = body(query="{ a }", variables="x" * MOST_BODY)
    assert choose(text, JSON) == "json"
