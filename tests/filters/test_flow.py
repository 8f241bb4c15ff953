"""The fields of a flow: values a filter may set, and values that break a message."""

import pytest

from cutthrough import Flow, Headers
from cutthrough.filters.flow import Request, Response


def test_names_are_compared_without_regard_to_case():
    fields = Headers([("Accept", "a"), ("X-One", "1"), ("accept", "b")])
    assert fields["ACCEPT"] == "a" and fields.get_all("Accept") == ["a", "b"]
    fields["aCCept"] = "c"
    assert [*fields] == [("aCCept", "c"), ("X-One", "1")]
    del fields["x-one"]
    del fields["absent"]
    assert "X-One" not in fields and len(fields) == 1
    assert fields.get("absent") is None
    with pytest.raises(KeyError):
        fields["absent"]


def test_a_repr_has_no_values():
    """R37: it ends up in logs."""
    assert "secret" not in repr(Headers({"Authorization": "secret"}))


@pytest.mark.parametrize(("name", "value"), [
    ("", "x"), ("a b", "x"), ("a:", "x"), ("a\r\nb", "x"), ("ä", "x"),
    ("a", "x\r\ny: z"), ("a", "x\n"), ("a", "x\0"), ("a", "\x7f"), ("a", "\u20ac")])
def test_no_field_can_end_a_line(name, value):
    """R5."""
    fields = Headers()
    for change in (lambda: fields.add(name, value),
                   lambda: fields.__setitem__(name, value)):
        with pytest.raises(ValueError, match=r"."):
            change()
    assert len(fields) == 0


@pytest.mark.parametrize(("key", "value"), [
    ("method", "GET /"), ("method", "HEAD"), ("method", "CONNECT"), ("method", ""),
    ("host", "a/b"), ("host", "a b"), ("host", "a:b@c"), ("host", "[::1]"),
    ("host", ""), ("port", 0), ("port", 65536),
    ("path", "x"), ("path", "/a b"), ("path", "/\r\n"), ("path", "http://x/"),
    ("path", "/\u20ac")])
def test_a_field_of_the_request_that_cannot_be_sent_is_an_error(key, value):
    request = Request("GET", "example.com", 80, "/")
    before = getattr(request, key)
    with pytest.raises(ValueError, match=r"."):
        setattr(request, key, value)
    assert getattr(request, key) == before


@pytest.mark.parametrize(("key", "value"), [
    ("method", "HEAD"), ("path", "*"), ("host", "a.example"), ("port", 80)])
def test_what_came_may_be_set_again(key, value):
    """The target * raised ValueError as its own stand-in for the log was made."""
    request = Request("HEAD", "a.example", 80, "*")
    setattr(request, key, value)
    assert getattr(request, key) == value
    response = Response(999)
    response.status = 999
    assert response.status == 999


def test_a_request_has_a_url():
    request = Request("GET", "example.com", 80, "/a?b")
    assert request.url == "http://example.com:80/a?b"
    request.host, request.port, request.path = "::1", 8080, "/c"
    assert request.url == "http://[::1]:8080/c"


@pytest.mark.parametrize("status", [100, 199, 204, 304, 600])
def test_a_status_with_another_framing_needs_an_answer(status):
    response = Response(200)
    with pytest.raises(ValueError, match=r"."):
        response.status = status
    assert response.status == 200


def test_an_answer_is_checked():
    flow = Flow(Request("GET", "example.com", 80, "/"))
    for given in ((100,), (204, b"x"), (200, b"", {"a": "\r\n"})):
        with pytest.raises(ValueError, match=r"."):
            flow.respond(*given)
    assert flow.response is None


@pytest.mark.parametrize("reason", ["OK\r\nX: y", "OK\n", "\0", "\u20ac"])
def test_no_reason_can_end_the_first_line(reason):
    """R5: it was not checked, and a client could get a head within a head."""
    response = Response(200, reason="Fine")
    with pytest.raises(ValueError, match="the reason has"):
        response.reason = reason
    assert response.reason == "Fine" and not response._changed
    response.reason = "Very well"
    assert response._changed


@pytest.mark.parametrize(("place", "key"), [
    ("flow", "request"), ("flow", "response"), ("request", "version"),
    ("request", "scheme"), ("response", "body")])
def test_what_a_filter_cannot_replace_is_an_error(place, key):
    """A request whose `flow.response` was None waited until a deadline of its state."""
    flow = Flow(Request("GET", "a.example", 80, "/"))
    flow.respond(200, b"here")
    with pytest.raises(AttributeError, match="no setter"):
        setattr(flow if place == "flow" else getattr(flow, place), key, None)
