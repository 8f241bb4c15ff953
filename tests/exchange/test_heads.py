"""A field of a head is found, and values are replaced, line by line."""

import pytest

from cutthrough.exchange.heads import Names, find_field, find_list

NAMES = ("authorization", "cookie")


@pytest.mark.parametrize(("head", "value"), [
    ("HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n", "a/b"),
    ("HTTP/1.1 200 OK\r\nCONTENT-TYPE:\ta/b \r\ncontent-type: c/d\r\n\r\n", "a/b"),
    ("HTTP/1.1 200 OK\ncontent-type: a/b", "a/b"),
    ("HTTP/1.1 200 OK\r\nContent-Type : a/b\r\n\r\n", "a/b"),
    ("HTTP/1.1 200 OK\r\nX-Content-Type: a/b\r\nContent-Types: c\r\n\r\n", ""),
    ("Content-Type: a/b", ""), ("", ""), ("\n", ""), ("a\ncontent-type", ""),
    ("a\ncontent-type:", ""),
])
def test_the_first_field_of_a_name_is_found(head, value):
    assert find_field(head, "content-type") == value


@pytest.mark.parametrize(("head", "value"), [
    ("a\r\nVia: x\r\nB: c\r\nVIA : y, z \r\n\r\n", "x, y, z"), ("a\nvia: x", "x"),
    ("a\nvia:\nvia: x", ", x"), ("a\nvias: x\n\n", ""), ("via: x", ""), ("", ""),
])
def test_fields_of_a_name_are_one_list(head, value):
    assert find_list(head, "via") == value


@pytest.mark.parametrize(("head", "left"), [
    ("GET / HTTP/1.1\r\nCookie: a\r\nHost: b\r\n\r\n",
     "GET / HTTP/1.1\r\nCookie: -\r\nHost: b\r\n\r\n"),
    ("GET / HTTP/1.1\ncookie:a\nAUTHORIZATION: b", "GET / HTTP/1.1\ncookie: -\n"
     "AUTHORIZATION: -"),
    ("GET / HTTP/1.1\r\nCookie : a\r\n\r\n", "GET / HTTP/1.1\r\nCookie : -\r\n\r\n"),
    ("GET / HTTP/1.1\r\nCookie: a\r\n\tb\r\n c\r\nX: d\r\n\r\n",
     "GET / HTTP/1.1\r\nCookie: -\r\nX: d\r\n\r\n"),
    ("GET / HTTP/1.1\r\nCookie: \xe4\r\nX: \xf6\r\n\r\n",
     "GET / HTTP/1.1\r\nCookie: -\r\nX: \xf6\r\n\r\n"),
    ("GET /\u20ac HTTP/1.1\r\nCookie: \U0001f36a\r\n\r\n",
     "GET /\u20ac HTTP/1.1\r\nCookie: -\r\n\r\n"),
    ("GET / HTTP/1.1\r\nX: Cookie: a\r\nCookies: b\r\n\r\n",
     "GET / HTTP/1.1\r\nX: Cookie: a\r\nCookies: b\r\n\r\n"),
    ("cookie: a", "cookie: a"), ("", ""), ("a\ncookie:", "a\ncookie: -"),
])
def test_values_of_the_named_fields_are_replaced(head, left):
    assert Names(NAMES, " -").replace(head) == left
