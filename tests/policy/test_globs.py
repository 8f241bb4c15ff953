"""Globs for paths: their matches, and how mistakes in them are reported."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.policy.globs import parse_glob
from tests.doors.policy import glob_meets
from tests.wire import twin_paths
from tests.wire.paths import PATHS
from tests.wire.replay import guarded


def match(glob: str, path: str, any_reading: bool = False) -> bool:
    (glob,) = parse_glob(glob)
    place = guarded().place(path.encode())
    answer = glob_meets((glob,), place, any_reading)
    assert answer == twin_paths.meets((glob,), path.encode(), any_reading)
    return answer


@pytest.mark.parametrize(("glob", "yes", "no"), [
    ("/", "/", "/a"),
    ("/a", "/a /a?q /a?/b", "/ /A /ab /a/ /a/b"),
    ("/a/", "/a/", "/a /a/b"),
    ("/*", "/ /a /a.b", "/a/ /a/b"),
    ("/a/*", "/a/ /a/b", "/a /a/b/ /a/b/c"),
    ("/a/*/c", "/a/b/c", "/a/c /a/b/b/c"),
    ("/*.js", "/.js /a.js /a.b.js", "/js /a/b.js /a.jsx"),
    ("/a*b*c", "/abc /axbxc /abbcc /aXbcbc", "/acb /ab/c /abcx"),
    ("/api/**", "/api /api/ /api/a /api/a/b/", "/ /apis /ap /v1/api"),
    ("/**", "/ /a /a/b/", ""),
    ("/**/x", "/x /a/x /a/b/x", "/ /x/ /ax /a/x/b"),
    ("/a/**/b/*.js", "/a/b/c.js /a/x/b/c.js /a/b/b/c.js /a/b/x/b/.js",
     "/a/c.js /a/b/x/c.js"),
    ("/**/a/**/b", "/a/b /x/a/y/b /a/a/b/b", "/b/a /a /b"),
    ("/repos/*/*/issues", "/repos/o/r/issues", "/repos/o/issues /repos/o/r/issues/1"),
    ("/café/*", "/caf%C3%A9/x /caf%c3%a9/x", "/cafe/x /caf%C3/x"),
    ("/a b", "/a%20b", "/a+b"),
    ("/%2A", "/*", "/a /%2B"),
    ("/*9", "/9 /a9", "/%C3%A9"),
    ("/%c3*", "/%C3%A9 /%C3", "/%C4"),
])
def test_a_glob_matches_whole_paths(glob, yes, no):
    assert [path for path in yes.split() if not match(glob, path)] == []
    assert [path for path in no.split() if match(glob, path)] == []


def test_a_spelling_that_need_not_be_matches_if_each_reading_does():
    """R56: a server that does not decode sees a path that the rule does not name."""
    assert match("/api/**", "/api/%7Euser")
    assert not match("/api/**", "/%61pi/x")
    assert match("/api/**", "/%61pi/x", any_reading=True)
    assert not match("/users:list", "/users%3Alist")
    assert match("/users*list", "/users%3Alist")
    assert match("/users:list", "/users%3Alist", any_reading=True)


def test_parameters_are_read_and_dropped():
    assert match("/api/*", "/api/a;v=1")
    assert not match("/api/a", "/api/a;v=1")
    assert match("/admin", "/admin;x", any_reading=True)
    assert match("/admin", "/admin%3bx", any_reading=True)


@pytest.mark.parametrize("path", [
    "/api/../admin", "/api//a", "/api/%2e%2e/admin", "/api/a%2Fb", "/api/..;/admin",
    "/api/%252e%252e/admin", "/api/%00"])
def test_an_unclear_path_is_none_that_may_pass_and_any_that_may_not(path):
    assert not match("/**", path)
    assert match("/nothing", path, any_reading=True)


def test_one_glob_of_a_set_is_enough_for_each_reading():
    globs = ("/b", "/%61", "/a")
    assert glob_meets(globs, b"/a", False)
    assert not glob_meets((), b"/a", True)


# Any glob of these parts, canonical or an error
SEGMENTS = st.sampled_from((
    "a", "b1", "*", "**", "a*", "*b", "*.*", "a*b*", "%61", "%C3%A9*", "é", "%2A", ":",
    "{a}", "*1", "", "~"))
GLOBS = st.lists(SEGMENTS, min_size=1, max_size=5).map(
    lambda parts: "/" + "/".join(parts))


@given(st.lists(GLOBS, min_size=1, max_size=3), PATHS, st.booleans())
def test_it_matches_what_the_twin_matches(globs, path, any_reading):
    parsed = []
    for glob in globs:
        try:
            parsed += parse_glob(glob)
        except ValueError:
            assert "//" in glob
    parsed = tuple(parsed)
    assert glob_meets(parsed, guarded().place(path), any_reading) == (
        twin_paths.meets(parsed, path, any_reading))


SMALL = st.lists(st.sampled_from(("a", "b", "*", "/", "/**")), max_size=8).map("".join)


@given(SMALL, st.lists(st.sampled_from(("a", "b", "/")), max_size=10).map("".join))
def test_going_back_to_the_last_star_is_enough(glob, path):
    glob = "/" + glob.replace("*/**", "*/a").lstrip("/")
    try:
        (glob,) = parse_glob(glob)
    except ValueError:
        return
    path = "/" + path
    assert glob_meets((glob,), path.encode(), False) == (
        twin_paths.meets((glob,), path.encode(), False))


def test_a_glob_has_one_spelling():
    assert parse_glob("/%61/%2a/%c3%a9/{x}/~") == ("/a/%2A/%C3%A9/%7Bx%7D/~",)
    assert parse_glob("/a b/é") == ("/a%20b/%C3%A9",)


@pytest.mark.parametrize(("glob", "said"), [
    ("", "does not begin with /"), ("api", "does not begin with /"),
    ("*", "does not begin with /"),
    ("http://a.b/c", "does not begin with /; hosts belong in `hosts`"),
    ("/a?", "has a ?: the query is not compared"), ("/a?b=c", "has a ?: the query"),
    ("/a#b", "has a #"), ("/a\\b", "has a backslash"),
    ("/a;v=1", "has a ;: parameters"), ("/a%3Bv", "has a ;: parameters"),
    ("/a**", "has ** beside other characters"), ("/***", "has ** beside other"),
    ("//", "can match no path"), ("/a//b", "can match no path"),
    ("/a/../b", "can match no path"), ("/./a", "can match no path"),
    ("/a%2Fb", "can match no path"), ("/%00", "can match no path"),
    ("/a\x01", "can match no path"), ("/%", "has a % before no two"),
    ("/%3%31", "has a % before no two"), ("/%zz", "has a % before no two"),
    ("/%2561", "can match no path"), ("/" + "a" * 256, "can match no path")])
def test_what_is_no_glob_is_refused(glob, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_glob(glob)


def test_a_hostile_path_costs_no_more_than_its_length_times_the_globs():
    """Each star could begin anywhere: that must not multiply."""
    (glob,) = parse_glob("/**/" + "*a" * 60 + "b" + "/**" * 20 + "/b")
    path = b"/" + b"a" * 2000 + b"/a" * 1000
    assert not glob_meets((glob,), path, False)
