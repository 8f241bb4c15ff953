"""Targets: one spelling for each destination, and one reading for each target."""

import ipaddress
import socket

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutthrough.wire.target import read_authority, read_request_target
from tests.doors.wire import show_refused_target
from tests.wire.cases import read_tables, unescape
from tests.wire.replay import guarded

TABLES = read_tables("target")


def rows(title: str) -> list[list[str]]:
    found = [cells for heading, cells in TABLES if heading.startswith(title)]
    assert found
    return found


def at_guard(text: bytes) -> tuple[int, int]:
    return guarded().place(text)


@pytest.mark.parametrize(("text", "kind", "host", "port"), rows("Authorities as"))
def test_authority_is_canonical(text: str, kind: str, host: str, port: str) -> None:
    got = read_authority(at_guard(unescape(text)))
    assert (got["kind"], got["host"], got["port"]) == (kind, host, int(port))
    if kind != "name":
        assert got["address"] == ipaddress.ip_address(host).packed


@pytest.mark.parametrize(("text", "why"), rows("Authorities that"))
def test_authority_with_two_readings_is_refused(text: str, why: str) -> None:
    assert read_authority(unescape(text)) == "bad_target", why
    assert read_authority(at_guard(unescape(text))) == "bad_target", why


@pytest.mark.parametrize(("text", "why"), rows("Authorities that"))
def test_authority_with_two_readings_has_none_with_a_default_port(text, why) -> None:
    if why != "no port":
        assert read_authority(unescape(text), 80) == "bad_target", why


def test_canonical_authority_is_its_own_canonical_form() -> None:
    for text, *_ in rows("Authorities as"):
        once = read_authority(unescape(text))
        assert read_authority(once["text"].encode()) == once


@pytest.mark.parametrize(("label", "good"), [(1, True), (63, True), (64, False)])
def test_label_has_at_most_63_octets(label: int, good: bool) -> None:
    for name in ("{}", "{}.a", "a.{}", "{}."):
        text = name.format("x" * label) + ":1"
        assert isinstance(read_authority(text.encode()), dict) is good


@pytest.mark.parametrize("dot", ["", "."])
@pytest.mark.parametrize(("length", "good"), [(253, True), (254, False), (255, False),
                                              (300, False), (4000, False)])
def test_name_has_at_most_253_octets(length: int, dot: str, good: bool) -> None:
    # One more with the trailing dot, which is dropped.
    name = ("x" * 49 + ".") * (length // 50) + "y" * (length % 50)
    name = name.rstrip(".") if length % 50 else name[:-1] + "z"
    assert len(name) == length
    got = read_authority(at_guard(f"{name}{dot}:1".encode()))
    if good:
        assert got["host"] == name
    else:
        assert got == "bad_target"


@pytest.mark.parametrize("octet", range(256))
def test_only_letters_digits_hyphens_and_underscores_make_names(octet: int) -> None:
    text = b"a" + bytes([octet]) + b"b:80"
    good = octet < 128 and (chr(octet).isalnum() or chr(octet) in "-_.")
    assert isinstance(read_authority(text), dict) is good


@pytest.mark.parametrize("port", [1, 9, 10, 80, 443, 999, 1000, 65535])
def test_port_is_written_unless_it_is_the_default(port: int) -> None:
    text = f"a:{port}".encode()
    assert read_authority(text)["text"] == f"a:{port}"
    assert read_authority(text, port)["text"] == "a"
    assert read_authority(b"a", port)["port"] == port


def ask(line: str, host: str | None) -> dict | str:
    head = unescape(line) + b"\r\n"
    if host is not None:
        head += b"Host: " + host.encode() + b"\r\n"
    return read_request_target(at_guard(head + b"\r\n"))


@pytest.mark.parametrize(
    ("line", "host", "form", "to", "path"), rows("Request lines and"))
def test_request_asks_for_one_destination(line, host, form, to, path) -> None:
    got = ask(line, host)
    assert (got["form"], got["text"], got["path"]) == (form, to, unescape(path))


@pytest.mark.parametrize(("line", "host", "refusal"), rows("Request lines that"))
def test_request_for_no_single_destination_is_refused(line, host, refusal) -> None:
    assert ask(line, host) == refusal


@pytest.mark.parametrize("line", ["GET http://a/ HTTP/1.1", "GET / HTTP/1.1",
                                  "CONNECT a:443 HTTP/1.1", "OPTIONS * HTTP/1.1"])
def test_request_of_http_1_1_has_one_host(line: str) -> None:
    # RFC 9112 section 3.2, and before the target is looked at.
    assert ask(line, None) == "bad_request"
    assert ask(line, "a\r\nX: y\r\nHOST: a") == "bad_request"
    assert ask(line, "a\r\nHost: b") == "bad_request"
    line = line.replace("1.1", "1.0")
    assert ask(line, "a\r\nHost: a") == "bad_request"
    assert isinstance(ask(line, "a"), dict)
    if "*" in line:
        assert ask(line, None) == "bad_target"      # of which server?
    else:
        assert isinstance(ask(line, None), dict)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["%d", "0x%x", "0X%X", "0%o"]))
def test_number_is_the_address_that_inet_aton_makes_of_it(number, form) -> None:
    text = form % number
    got = read_authority(f"{text}:1".encode())
    assert got["address"] == socket.inet_aton(text) == number.to_bytes(4, "big")
    assert got["host"] == str(ipaddress.IPv4Address(number))


PARTS = st.lists(
    st.integers(0, 300).map(str) | st.integers(0, 300).map(hex)
    | st.integers(0, 300).map("0{:o}".format) | st.integers(2**7, 2**33).map(str)
    | st.sampled_from(["", "0", "00", "08", "0x", "a", "0xfg"]),
    min_size=1, max_size=5).map(".".join)


@given(PARTS)
@settings(max_examples=500)
@example("0x100.1")
def test_whatever_is_read_as_an_address_is_the_same_to_inet_aton(text: str) -> None:
    # The twin is the C library: if it reads an address, we read the same one or refuse;
    # if we take a text for a name, it cannot read it. Else policy and connect would see
    # two destinations.
    got = read_authority(f"{text}:1".encode())
    try:
        twin = socket.inet_aton(text)
    except OSError:
        twin = None
    if isinstance(got, dict) and got["kind"] == "ipv4":
        assert got["address"] == twin or text.endswith(".")
    elif isinstance(got, dict):
        assert twin is None


@given(st.ip_addresses(v=6), st.sampled_from(["compressed", "exploded"]))
def test_ipv6_address_has_one_spelling(address, spelling: str) -> None:
    got = read_authority(f"[{getattr(address, spelling).upper()}]:1".encode())
    assert got["address"] == address.packed
    assert got["host"] == socket.inet_ntop(socket.AF_INET6, address.packed)
    assert got["text"] == f"[{got['host']}]:1"


@given(st.text("a0.:[]x-_@%/1", max_size=12) | st.binary(max_size=12))
@settings(max_examples=500)
def test_canonical_form_of_anything_is_stable(text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    got = read_authority(at_guard(data))
    if isinstance(got, dict):
        assert read_authority(got["text"].encode()) == got


REFUSED = [
    ("CONNECT a.test", "a.test"),
    ("CONNECT user:secret@a.test:443", "***@a.test:443"),
    ("CONNECT user:sec/ret@a.test:443", "***@a.test:443"),
    ("GET https://a.test/x?y=z", "https://a.test/x?y=z"),
    ("GET https://a.test/@types/node", "https://a.test/@types/node"),
    ("GET /@types/node", "/@types/node"),
    ("GET //user:secret@a.test/", "***@a.test/"),
    ("GET http://user:secret@a.test/", "http://***@a.test/"),
    ("GET http://user:sec/ret@a.test/", "http://***@a.test/"),
    ("GET http://user:sec@ret@a.test/@x", "http://***@x"),
    ("GET http://user:secret%40a.test/", "http://***@a.test/"),
    ("GET http://a.test\\@b.test/", "http://***@b.test/"),
    ("GET user:secret@a.test/", "***@a.test/"),
    ("GET user://secret@", "user://***@"),
    ("GET http://a.test:port/", "http://a.test:port/"),
    ("GET @", "***@"),
    ("GET *", "*"),
]


@pytest.mark.parametrize(("line", "shown"), REFUSED)
def test_a_refused_target_is_shown_without_credentials(line: str, shown: str) -> None:
    """R37: a log had nothing of it, and the reason could only be guessed."""
    head = f"{line} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
    assert show_refused_target(head) == shown
    assert show_refused_target(at_guard(head)) == shown


@given(st.sampled_from(["", "//", "http://", "https://", "x:", "a/b://"]),
       st.text("secret:\\%40@[]!*", min_size=0, max_size=9),
       st.sampled_from(["h", "h:1", "h/x", "[::1]:1", "", "@"]))
def test_what_stands_before_a_host_is_never_shown(scheme, userinfo, host) -> None:
    head = f"GET {scheme}Q7{userinfo}Q7@{host} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
    assert "Q7" not in show_refused_target(head)


VALID_HOSTS = [
    "", ":", ":80", "a", "a:", "a:0", "a:00000000080", "a:99999", "example.com:",
    "a..b", ".", "a.", "a~b", "a%20b", "%41", "0.0.0.0=5000", "a;b", "a,b",
    "a!$&'()*+,;=b", "*", "x" * 300, "[::1]", "[::1]:", "[::1]:0",
    "[::ffff:1.2.3.4]:80", "[fe80::1%25lo]", "[v1.x:y]", "[vF.a!]:80", "256.1.1.1",
    "-", "_"]
INVALID_HOSTS = [
    "a b", "a, b", "u@a", "u:p@a", "@", "a/b", "http://a", "a?b", "a#b", "a:b", "a:1:2",
    "::1", "a:+80", "a: 80", "a%", "a%2", "a%zz", "\"a\"", "a\\b", "a|b", "a^b", "a`b",
    "<a>", "{a}", "[", "[]", "[::1", "[::1]a", "::1]", "[::1%lo]", "[::1%25]", "[v.a]",
    "[v1]", "[v1.]", "[vg.a]", "[1.2.3.4]", "[a]", "a[b]", "\xe4", "a\tb"]


@pytest.mark.parametrize("host", VALID_HOSTS)
def test_a_host_beside_a_target_need_not_be_one_that_leads_anywhere(host: str) -> None:
    # R16; RFC 9112 section 3.2.2: it MUST be ignored. These were a 400.
    for line in ("GET http://a/ HTTP/1.1", "GET http://a/ HTTP/1.0",
                 "CONNECT a:443 HTTP/1.1"):
        got = ask(line, host)
        assert (got["host"], got["port"]) == ("a", 443 if "443" in line else 80)


@pytest.mark.parametrize("host", INVALID_HOSTS)
def test_a_host_that_is_none_is_refused_beside_a_target_too(host: str) -> None:
    # RFC 9112 section 3.2: an invalid field value is a 400.
    for line in ("GET http://a/ HTTP/1.1", "CONNECT a:443 HTTP/1.1", "GET / HTTP/1.1"):
        head = unescape(line) + b"\r\nHost: " + host.encode("latin-1") + b"\r\n\r\n"
        assert read_request_target(at_guard(head)) == "bad_request"


@pytest.mark.parametrize("host", [
    "", ":80", "a:", "a:0", "a:99999", "a..b", ".", "a~b", "a%20b", "0.0.0.0=5000",
    "a;b", "a,b", "*", "[v1.x]", "256.1.1.1", "x" * 300])
def test_a_host_that_is_the_destination_must_be_one(host: str) -> None:
    # In origin form only Host has the destination: R16 holds as it does for a target.
    assert ask("GET / HTTP/1.1", host) == "bad_request"
    assert ask("OPTIONS * HTTP/1.1", host) == "bad_request"
