"""Forms as lines: urlencoded and multipart, whole, cut and hostile."""

import pytest

from cutthrough.capture.views import choose, show_body

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b 1"'


def show(body, kind=URLENCODED):
    return list(show_body(body, kind, "form"))


def part(head, content=b""):
    return b"--b 1\r\n" + head + b"\r\n\r\n" + content + b"\r\n"


def test_fields_are_decoded_and_further_lines_indented():
    """A value cannot look like another field."""
    assert show("a=b+c&d=%41%0Aadmin%3A+1&e&&=x;y") == [
        "a: b c", "d: A", "    admin: 1", "e: ", ": x;y"]
    assert show("n%0Am=1") == ["n m: 1"]
    assert show(b"a=\xff") == ["a: \ufffd"]


def test_parts_are_shown_by_their_types():
    data = (b"before\r\n" + part(b'Content-Disposition: form-data; name="a"', b"1\r\n2")
            + part(b'content-disposition: form-data; name=up; filename="x\\".png"\r\n'
                   b"Content-Type: image/png", b"\x89PNG")
            + part(b'Content-Disposition: form-data; filename="f.json"; name="j"\r\n'
                   b"Content-Type: application/json", b'{"a":1}')
            + b"--b 1--\r\nafter")
    assert show(data, MULTIPART) == [
        "a: 1", "    2", 'up: (file "x".png", image/png, 4 bytes)',
        "    00000000  89 50 4e 47                                       |.PNG|",
        'j: (file "f.json", application/json, 7 bytes)', "    {", '      "a": 1',
        "    }"]
    assert show(data.decode("latin-1"), MULTIPART)[0] == "a: 1"


@pytest.mark.parametrize(("data", "lines"), [
    (b"--b 1--\r\n", []),
    (b"--b 1", ["(its end is missing)"]),
    (b"--b 1\r\n", ["(its end is missing)"]),
    (part(b'Content-Disposition: form-data; name="a"', b"cu"),
     ["a: cu", "(its end is missing)"]),
    (b"--b 1\r\n\r\n--b 1--", [": "]),
    (part(b"X: y"), [": ", "(its end is missing)"]),
])
def test_a_cut_one_is_shown_as_far_as_it_came(data, lines):
    found = show(data, MULTIPART)
    assert [line.rstrip("\r\n") for line in found] == lines


@pytest.mark.parametrize(("kind", "why"), [
    ("multipart/form-data", "its type has no boundary"),
    ("multipart/form-data; boundary=x", "its boundary is not in it")])
def test_what_is_no_form_is_shown_in_hex(kind, why):
    lines = show(b"abc", kind)
    assert lines[0] == f"(is not a form: {why})" and lines[1].startswith("00000000  61")


def test_parts_in_parts_are_not_read():
    """Before a bound, a body of 1 MiB could be thousands deep."""
    inner = part(b"Content-Type: multipart/mixed; boundary=c", b"--c\r\n\r\n\r\n--c--")
    assert "    --c" in show(inner + b"--b 1--", MULTIPART)


def test_the_type_chooses_the_view():
    assert choose("a=b", f"{URLENCODED}; charset=utf-8") == "form"
    assert choose(b"", MULTIPART) == "form"
    assert choose("{}", "application/x-ndjson") == "json"
