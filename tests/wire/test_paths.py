"""The readings of a path, and the paths that are unclear (R56)."""

import pytest
from hypothesis import given

from cutthrough.wire.paths import readings_of
from tests.wire import twin_paths
from tests.wire.paths import PATHS
from tests.wire.replay import guarded


def read(text: bytes) -> set[bytes]:
    """Read at the end of memory; the order has no meaning."""
    return set(readings_of(guarded().place(text)))


@pytest.mark.parametrize("path", [
    b"/", b"/a", b"/a/", b"/a/b.c/...", b"/.well-known/x", b"/a..b/.c",
    b"/~u/-_.!$&'()*+,=:@", b"/caf%C3%A9", b"/%20%22%3C", b"/100%25", b"/%25a",
    b"/a%25/b", b"/%E2%80%A6"])
def test_most_paths_have_one_reading_themselves(path):
    assert readings_of(path) == [path]
    assert readings_of(path + b"?q=/../%2F;x") == [path]


@pytest.mark.parametrize(("path", "readings"), [
    # spelling alone
    (b"/caf%c3%a9", {b"/caf%C3%A9"}),
    (b"/{a}|^`\"", {b"/%7Ba%7D%7C%5E%60%22"}),
    (b"/[a]", {b"/%5Ba%5D"}),
    # encoded characters that need not be
    (b"/%61", {b"/%61", b"/a"}),
    (b"/%7euser", {b"/%7Euser", b"/~user"}),
    (b"/users%3alist", {b"/users%3Alist", b"/users:list"}),
    (b"/%2A", {b"/%2A", b"/*"}),
    (b"/a%2Eb", {b"/a%2Eb", b"/a.b"}),
    # parameters
    (b"/a;v=1/b;c;d", {b"/a;v=1/b;c;d", b"/a/b"}),
    (b"/a/;x", {b"/a/;x", b"/a/"}),
    (b"/a%3Bv/b", {b"/a%3Bv/b", b"/a;v/b", b"/a/b"}),
    (b"/%61;v", {b"/%61;v", b"/%61", b"/a;v", b"/a"}),
])
def test_a_path_that_servers_read_in_several_ways_has_all_readings(path, readings):
    assert read(path) == readings == twin_paths.read_path(path)


@pytest.mark.parametrize("path", [
    b"*", b"", b"a", b"//", b"/a//b", b"//a", b"/;x/a",
    b"/.", b"/..", b"/a/./b", b"/a/../b", b"/a/..", b"/%2e", b"/%2E%2e/a", b"/.%2e/a",
    b"/..;/a", b"/.;v=1/a", b"/a/%2e%2e%3bx",
    b"/a%2Fb", b"/a%2fb", b"/a%5cb", b"/a\\b", b"/..%2f..%2fetc",
    b"/a%00", b"/%0d%0a", b"/%1f", b"/%7F", b"/a%09",
    b"/%2561", b"/%252e%252e/a", b"/%25%36%31", b"/%2525", b"/%25252f",
    b"/%c0%ae", b"/%C1%9C", b"/%e0%80%af", b"/%F0%80%80%AF",
    b"/%", b"/a%2", b"/a%zz", b"/%u002e", b"/a b", b"/a\x7f", b"/\xc3\xa9",
    b"/a%3Bb;c", b"/a;b/c%3bd"])
def test_a_path_that_servers_take_for_different_ones_is_unclear(path):
    """R56: in one way, for any server behind it."""
    assert read(path) == set() == twin_paths.read_path(path)


def test_an_octet_between_two_breaks_what_they_would_spell():
    """UTF-8 has E0 A0 only: the two bytes are not beside each other here."""
    for path in (b"/%E0a%80", b"/%E0/%80", b"/%25/61", b"/%25g61", b"/%256/1"):
        assert readings_of(path) == [path]


def test_a_long_path_is_unclear():
    assert readings_of(b"/" + b"a" * 4095)
    assert not readings_of(b"/" + b"a" * 4096)
    assert not readings_of(b"/" + b"{" * 2000), "in canonical spelling"


@given(PATHS)
def test_it_reads_what_the_twin_reads(path):
    assert read(path) == twin_paths.read_path(path)


@given(PATHS)
def test_a_reading_is_read_as_itself_and_adds_no_other(path):
    for one in read(path):
        assert {one} <= read(one) <= read(path)
