"""Which requests an arming of breakpoints is about."""

import pytest

from cutthrough.process.breakpoints import Chosen, fits_segment, read_chosen


@pytest.mark.parametrize(("glob", "segment", "does"), [
    ("a*c", "abc", True), ("a*c", "ac", True), ("*", "", True), ("a*", "b", False),
    ("*b*d", "abcbd", True), ("a*b", "abc", False), ("a**", "abc", True)])
def test_a_star_is_any_characters_of_a_segment(glob, segment, does):
    assert fits_segment(glob, segment) is does


@pytest.mark.parametrize(("path", "does"), [
    ("/api", True), ("/api/", True), ("/api/a/b?q=/x", True), ("/apia", False),
    ("/", False), ("/x/api/a", False), ("/%61pi/a", True)])
def test_two_stars_are_any_segments(path, does):
    chooses = read_chosen(Chosen(paths=("/api/**",)))
    assert chooses("GET", "a.example", path) is does


def test_a_request_needs_one_of_each():
    chooses = read_chosen(Chosen(
        ("a.example", ".b.example"), ("get", "PUT"), ("/1", "/2/*")))
    assert chooses("GET", "a.example", "/1")
    assert chooses("PUT", "x.b.example", "/2/3") and chooses("PUT", "b.example", "/1")
    for other in (("POST", "a.example", "/1"), ("GET", "x.a.example", "/1"),
                  ("GET", "a.example", "/2"), ("GET", "xb.example", "/1")):
        assert not chooses(*other)
    assert read_chosen(Chosen())("POST", "c.example", "/")


@pytest.mark.parametrize("chosen", [
    Chosen(hosts=("*",)), Chosen(paths=("/a//b",)), Chosen(methods=("A",) * 33)])
def test_a_mistake_is_refused(chosen):
    with pytest.raises(ValueError):
        read_chosen(chosen)
