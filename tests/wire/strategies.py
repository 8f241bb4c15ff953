"""HTTP made by hypothesis: heads, bodies and messages, good, odd and spoiled.

REQUESTS and RESPONSES have something odd in most places; MESSAGES and REPLIES are
mostly in order, bodies included. `spoiled` damages either: a control put in, a field
doubled, a byte lost. Random bytes would all be refused for the same dull reason.
"""

from hypothesis import strategies as st

METHODS = (b"GET", b"HEAD", b"POST", b"OPTIONS", b"TRACE", b"CONNECT", b"get",
           b"M-SEARCH")

HOSTS = st.sampled_from([
    b"a", b"a.example", b"A.Example.", b"a:80", b"a:8080", b"a:0", b"a:65536", b"a:",
    b"127.0.0.1", b"0x7f.1", b"2130706433", b"017700000001:1", b"1.2.3.4.5", b"a.1",
    b"0x", b"[::1]", b"[::1]:443", b"[::FFFF:1.2.3.4]", b"[fe80::1%25lo]", b"[v1.a]",
    b"[::1", b"::1", b"u@a", b"a,b", b"a b", b"", b".", b"a..b", b"_a-b_", b"-",
    b"\xe4", b"x" * 63, b"x" * 64, b"1.2.3.4.", b"256.1.1.1", b"08.1.1.1", b"a/"])
PATHS = st.sampled_from([
    b"/", b"/a?b=c", b"?q", b"", b"//x", b"/../%2e", b"/a#f", b"/[]|\\^{}`", b"/a b",
    b"*", b"/\xff", b"/\"", b"/x:80@y"])
TARGETS = st.one_of(
    st.builds(lambda scheme, host, path: scheme + host + path,
              st.sampled_from(
                  [b"http://", b"HTTP://", b"https://", b"http:/", b"http:"]),
              HOSTS, PATHS),
    HOSTS, PATHS,
    st.sampled_from([b"http://a/", b"http://a:8080/x?y", b"a:443", b"/", b"*"]))
LENGTHS = st.one_of(
    st.sampled_from([b"0", b"5", b"05", b"+5", b"-5", b"5, 5", b"5,6", b"0x5", b"",
                     b"5 5", b"5\t", b"9223372036854775807", b"9223372036854775808",
                     b"18446744073709551616", b"0000000000000000005",
                     b"00000000000000000005"]),
    st.integers(0, 2**70).map(lambda n: b"%d" % n))
CODINGS = st.lists(st.sampled_from([
    b"chunked", b"Chunked", b"gzip", b"identity", b"chunked ", b" chunked", b"",
    b"chunked;q=1", b"\"chunked\"", b"xchunked", b"chunked\t", b"a b"]),
    min_size=1, max_size=3).map(b",".join)
OPTIONS = st.lists(st.sampled_from([
    b"close", b"CLOSE", b"keep-alive", b"closed", b"upgrade", b"x-y", b"", b" close\t",
    b"\"close\"", b"close x"]), max_size=3).map(b",".join)
# The names twice over in another case, and names that differ by one character.
ODD_NAMES = st.sampled_from([
    b"X", b"Content_Length", b"Transfer-Encodin", b"Hos", b"!#$%&'*+-.^_`|~",
    b"Proxy-Authorization"])
FIELD = st.one_of(
    st.tuples(st.sampled_from([b"Host"] + [b"X"] * 4), HOSTS),
    st.tuples(st.sampled_from([b"Content-Length", b"content-length"]), LENGTHS),
    st.tuples(st.sampled_from([b"Transfer-Encoding", b"TRANSFER-ENCODING"]), CODINGS),
    st.tuples(st.sampled_from([b"Connection", b"Proxy-Connection"]), OPTIONS),
    st.tuples(st.just(b"Max-Forwards"), LENGTHS),
    st.tuples(
        ODD_NAMES,
        st.sampled_from(
            [b"", b"y", b"a, b", b"\xff", b"a  b", b"\"q\\\"\"", b":", b"\t"])))
LINES = st.lists(
    st.builds(lambda field, before, after: field[0] + b":" + before + field[1] + after,
              FIELD, st.sampled_from([b" ", b"", b"\t", b"  \t"]),
              st.sampled_from([b"", b"", b" ", b"\t "])),
    max_size=5)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0"] * 3 + [
    b"HTTP/2.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.10", b"HTTP/11"])
STATUSES = st.sampled_from([b"200"] * 4 + [
    b"100", b"101", b"204", b"304", b"299", b"999", b"099", b"20", b"2000", b"2 0"])
# Bytes that are put in; plain messages stay often enough.
SPOILS = st.sampled_from([
    b"\r", b"\n", b"\r\n", b"\n\r", b"\r\r\n", b"\0", b"\x01", b"\x0b", b"\x0c",
    b"\x7f", b"\x80", b" ", b"\t", b":", b",", b" :", b"\r\n ", b"\r\n\t",
    b"\x1f", b"\x85"])


def joined(first: bytes, lines: list[bytes], before: bytes, after: bytes) -> bytes:
    return before + b"\r\n".join([first, *lines, b"", b""]) + after


# Most requests have the one Host that they must have, or none would get far.
WITH_HOST = st.builds(
    lambda host, lines: host + lines, st.sampled_from([[b"Host: a"]] * 5 + [[]]), LINES)
LEAD = st.sampled_from([b""] * 8 + [b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" "])
TAIL = st.sampled_from([b"", b"x", b"\r\n", b"GET / HTTP/1.1\r\n\r\n"])
REQUESTS = st.builds(
    joined,
    st.builds(
        lambda *parts: b" ".join(parts), st.sampled_from(METHODS), TARGETS, VERSIONS),
    WITH_HOST, LEAD, TAIL)
RESPONSES = st.builds(
    joined,
    st.builds(lambda version, status, reason: version + b" " + status + reason,
              VERSIONS, STATUSES,
              st.sampled_from([b"", b" ", b" OK", b" \xff\t", b"OK"])),
    LINES, st.just(b""), TAIL)

AUTHORITIES = (
    HOSTS | st.text("a0x.:[]1-_@%/f", max_size=14).map(str.encode)
    | st.binary(max_size=9))

SIZES = st.sampled_from([
    b"0", b"1", b"5", b"a", b"0A", b"00000000000000f", b"1" * 16, b"-1", b"+1", b"0x1",
    b"", b" 1", b"1 ", b"ffffffffffffffff", b"g"])
CHUNKS = st.builds(
    lambda size, extension, data: size + extension + b"\r\n" + data,
    SIZES,
    st.sampled_from([b""] * 5 + [b";", b";a=b", b" ;a", b";\0", b';"\n"', b";\xff"]),
    st.sampled_from([b"a\r\n", b"hello\r\n", b"0123456789\r\n", b"\r\n", b"", b"x\n"]))
GOOD_CHUNKS = st.binary(min_size=1, max_size=20).map(
    lambda data: b"%x\r\n%b\r\n" % (len(data), data))
ENDS = st.sampled_from([
    b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"00\r\n\r\nx", b"0\r\nHost: a\r\n\r\n",
    b"0\r\nTE:\r\n\r\n", b"0\r\nA : b\r\n\r\n", b"0\r\n A: b\r\n\r\n", b"",
    b"0\r\nA: b\n\r\n", b"0\n\n", b"0;x\r\nhosts: y\r\n\r\n"])
CHUNKED = st.builds(
    lambda good, odd, end: b"".join([*good, *odd]) + end,
    st.lists(GOOD_CHUNKS, max_size=3), st.lists(CHUNKS, max_size=1), ENDS)

# Messages that mostly are in order, bodies included: `spoiled` then sees to the rest.
NAMES = st.sampled_from([b"X", b"x-y", b"!#$%&'*+-.^_`|~", b"Content_Length"])
VALUES = st.sampled_from(
    [b"", b"y", b"a, b", b"\xff", b"a  b", b'"q\\""', b":", b"=\t="])
FIELDS = st.lists(
    st.builds(lambda name, space, value, end: name + b":" + space + value + end,
              NAMES, st.sampled_from([b" ", b"", b"\t", b"  "]), VALUES,
              st.sampled_from([b"", b"", b" ", b"\t"])), max_size=3)


def with_length(data: bytes, spelling: bytes, zeros: int) -> tuple[bytes, bytes]:
    return spelling + b": " + b"0" * zeros + b"%d" % len(data), data


BODIES = st.one_of(
    st.just((b"X: none", b"")),
    st.builds(with_length, st.binary(max_size=20),
              st.sampled_from([b"Content-Length", b"content-length"]),
              st.sampled_from([0, 0, 1])),
    st.builds(lambda coding, body: (coding, body), st.sampled_from([
        b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked"]), CHUNKED))
STARTS = st.sampled_from([
    b"GET http://a/ HTTP/1.1", b"POST / HTTP/1.1", b"HEAD http://a:8080/x?y HTTP/1.0",
    b"OPTIONS * HTTP/1.1", b"CONNECT a:443 HTTP/1.1", b"PUT http://[::1]/ HTTP/1.1",
    b"POST http://A.Example. HTTP/1.1"])
STATUS_LINES = st.sampled_from([
    b"HTTP/1.1 200 OK", b"HTTP/1.0 404 Not Found", b"HTTP/1.1 204",
    b"HTTP/1.1 304 \xff", b"HTTP/1.1 100 Continue", b"HTTP/1.1 500 "])


def message(start: bytes, host: bytes, fields: list[bytes],
            body: tuple[bytes, bytes], tail: bytes) -> bytes:
    return b"\r\n".join([start, host, *fields, body[0], b"", body[1] + tail])


TAILS = st.sampled_from([b"", b"x", b"\r\n", b"GET / HTTP/1.1\r\n\r\n"])
MESSAGES = st.builds(message, STARTS, st.just(b"Host: a"), FIELDS, BODIES, TAILS)
REPLIES = st.builds(message, STATUS_LINES, st.just(b"Server: a"), FIELDS, BODIES, TAILS)


@st.composite
def spoiled(draw: st.DrawFn, heads: st.SearchStrategy[bytes]) -> bytes:
    """A head with up to three of its bytes changed, lost or doubled."""
    data = draw(heads)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(
            ["put in", "put in", "lose", "replace", "cut", "double"]))
        if how == "put in":
            data = data[:at] + draw(SPOILS) + data[at:]
        elif how == "lose":
            data = data[:at] + data[at + 1:]
        elif how == "replace":
            data = data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1:]
        elif how == "cut":
            data = data[:at]
        else:
            lines = data.split(b"\r\n")
            line = at % len(lines)
            data = b"\r\n".join([*lines[:line], lines[line], *lines[line:]])
    return data
