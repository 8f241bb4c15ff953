"""Hostile requests: every known form of smuggling, each with its permitted outcome.

A table made by rules, since each trick works at many places: the obfuscations of
Transfer-Encoding and Content-Length from the public corpora, and every control at every
place of a head. Each row has the message that the origin may see: nothing whole (`seen`
is None: the proxy refuses), or exactly one message. Nothing behind that message is ever
a request.

`{host}` stands for the origin's authority, `{auth}` for a whole Proxy-Authorization
line or nothing; `fill` puts them in. No length in a row counts either of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.wire import twin


class Seen(NamedTuple):
    method: bytes
    path: bytes
    body: bytes


class Row(NamedTuple):
    name: str
    request: bytes
    seen: Seen | None


# A hidden request, behind or in the body of the first request.
HIDDEN = b"GET /hidden HTTP/1.1\r\nX: "
LINE = b"POST http://{host}/x HTTP/1.1\r\n"
CHUNKED = b"5\r\nhello\r\n0\r\n\r\n"
# Read by length it is all body; read by chunks it ends early and HIDDEN comes next.
ENDS_EARLY = b"0\r\n\r\n" + HIDDEN
# Every octet that is a control, and others that some readers take for white space.
CONTROLS = [*range(9), *range(11, 13), *range(14, 32), 127]
ODD_SPACES = [*CONTROLS, 0x85, 0xA0]


def fill(request: bytes, host: bytes, auth: bytes = b"") -> bytes:
    line = b"Proxy-Authorization: " + auth + b"\r\n" if auth else b""
    return request.replace(b"{host}", host).replace(b"{auth}", line)


def whole_messages(data: bytes) -> tuple[list[Seen], bytes]:
    """These bytes as an origin reads them by the grammar: whole messages, and the
    rest."""
    rest, found = data, []
    while isinstance(head := twin.read_request(rest, head_bytes=1 << 16), twin.Head):
        behind = rest[head.length:]
        framing = twin.read_request_framing(head)
        assert isinstance(framing, twin.Framing), framing
        if framing.kind == "chunked":
            body = twin.read_chunks(behind)
            if not isinstance(body, twin.Chunked):
                break
            content, behind = body.data, behind[body.length:]
        elif framing.length <= len(behind):
            content, behind = behind[:framing.length], behind[framing.length:]
        else:
            break
        found.append(Seen(*head.first, content))
        rest = behind
    return found, rest


def post(*lines: bytes, body: bytes = b"", line: bytes = LINE, end: bytes = b"\r\n\r\n"
         ) -> bytes:
    return line + b"Host: {host}\r\n{auth}" + b"\r\n".join(lines) + end + body


def refused(name: str, request: bytes) -> Row:
    return Row(name, request, None)


def seen(name: str, request: bytes, body: bytes = b"", method: bytes = b"POST",
         path: bytes = b"/x") -> Row:
    return Row(name, request, Seen(method, path, body))


# --- Transfer-Encoding: TE.CL, CL.TE, TE.TE -------------------------------------------

# Lines that some reader takes for chunked and another does not.
ODD_CODINGS = [
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunkedx",
    b"Transfer-Encoding: chunk", b"Transfer-Encoding: chunked chunked",
    b"Transfer-Encoding: chunked,", b"Transfer-Encoding: ,chunked",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip", b"Transfer-Encoding: cow", b"Transfer-Encoding:",
    b"Transfer-Encoding: chunked;q=1", b"Transfer-Encoding: chunked; foo=bar",
    b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: 'chunked'",
    b"Transfer-Encoding: \\chunked", b"Transfer-Encoding: (x) chunked",
    b"Transfer-Encoding: chunked-false", b"Transfer-Encoding: chun\xe7ked",
    b"Transfer-Encoding: chun ked", b"Transfer-Encoding: c\thunked",
    b"Transfer-Encoding: %63hunked", b"Transfer-Encoding: =?utf-8?q?chunked?=",
    b"Transfer-Encoding: chunked\xef\xbb\xbf",
    b"Transfer-Encoding: \xef\xbb\xbfchunked", b"Transfer-Encoding: chun\xc5\xbfked",
    b"Transfer-Encoding: \xffchunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: cow\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow",
    b"Transfer-Encoding: chunked\r\ntransfer-encoding: x",
    b"Transfer-Encoding:\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding:", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding\t: chunked", b"Transfer-Encoding \t : chunked",
    b" Transfer-Encoding: chunked", b"\tTransfer-Encoding: chunked",
    b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding: chunked\r\n ",
    b"Transfer-Encoding: chunked\r\n\t,identity", b"Transfer-Encoding:\n chunked",
    b"Transfer-Encoding: x\r\n\tchunked", b"Transfer-Encoding\r\n: chunked",
    b"Transfer-Encoding\n: chunked", b"Transfer\r\n-Encoding: chunked",
    b"Transfer-Encoding chunked", b"Transfer-Encoding; chunked",
    b"Transfer-Encoding=chunked", b"Transfer Encoding: chunked",
    b"Transfer-Encoding:: chunked", b": Transfer-Encoding: chunked",
    b"X: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked",
    b"X: y\r\n\rTransfer-Encoding: chunked", b"X: y\r\n\nTransfer-Encoding: chunked",
    b"X: y\n\rTransfer-Encoding: chunked", b"X: y\r\r\nTransfer-Encoding: chunked",
    b"X: y\0\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\n",
    b"Transfer-Encoding: chunked\r", b"Transfer-Encod\xc4\xb1ng: chunked",
    b"Transfer-Encoding\xc2\xa0: chunked", b"\xef\xbb\xbfTransfer-Encoding: chunked",
    b"(x)Transfer-Encoding: chunked", b"Transfer-Encoding(x): chunked",
    b"\"Transfer-Encoding\": chunked", b"[Transfer-Encoding]: chunked",
    b"Transfer/Encoding: chunked"]

# Lines that say chunked, in a dress that the grammar allows.
GOOD_CODINGS = [
    b"Transfer-Encoding: chunked", b"transfer-encoding: chunked",
    b"TRANSFER-ENCODING: CHUNKED", b"Transfer-Encoding:chunked",
    b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: chunked \t",
    b"Transfer-Encoding:   Chunked", b"tRANSFER-eNCODING: cHUNKED"]

# Fields of other names: to the grammar they frame nothing, in any spelling.
OTHER_NAMES = [
    b"Transfer_Encoding", b"TransferEncoding", b"Transfer-Encodin",
    b"Transfer-Encoding-", b"X-Transfer-Encoding", b"Transfer%2dEncoding",
    b"Transfer--Encoding", b"Transfer.Encoding", b"HTTP_TRANSFER_ENCODING",
    b"Content-Encoding", b"TE", b"Transfer-Encoding*", b"`Transfer-Encoding`",
    b"Transfer-Encoding'"]


def codings() -> Iterator[Row]:
    for line in ODD_CODINGS:
        text = line.decode("latin-1")
        yield refused(f"{text!r}", post(line, body=CHUNKED))
        for name, lines in (
                ("before", (line, b"Content-Length: 30")),
                ("behind", (b"Content-Length: 30", line))):
            yield refused(f"{text!r} {name} a length", post(*lines, body=ENDS_EARLY))
    for octet in ODD_SPACES:
        odd = bytes([octet])
        for name, line in (
                ("before the coding", b"Transfer-Encoding: " + odd + b"chunked"),
                ("behind the coding", b"Transfer-Encoding: chunked" + odd),
                ("before the colon", b"Transfer-Encoding" + odd + b": chunked"),
                ("before the name", odd + b"Transfer-Encoding: chunked")):
            yield refused(f"octet {octet:#04x} {name}", post(line, body=CHUNKED))
    for line in GOOD_CODINGS:
        text = line.decode()
        yield seen(f"{text!r} alone", post(line, body=CHUNKED + HIDDEN), b"hello")
        yield refused(f"{text!r} beside a length",
                      post(line, b"Content-Length: 30", body=ENDS_EARLY))
        yield refused(f"{text!r} behind a length",
                      post(b"content-length: 0", line, body=ENDS_EARLY))
        yield refused(f"{text!r} in HTTP/1.0", post(
            line, body=CHUNKED, line=LINE.replace(b"1.1", b"1.0")))
    for other in OTHER_NAMES:
        line = other + b": chunked"
        yield seen(f"{line.decode()!r} is another field", post(
            line, b"Content-Length: %d" % len(ENDS_EARLY), body=ENDS_EARLY), ENDS_EARLY)


# --- Content-Length -------------------------------------------------------------------

ODD_LENGTHS = [
    b"", b"+5", b"-5", b"-0", b"+0", b"--5", b"5 5", b"5\t5", b"5,", b",5", b"5,5",
    b"5, 5", b"5, 6", b"5;5", b"5.0", b"5.", b".5", b"5e0", b"0x5", b"0X5", b"5h",
    b"x", b"five", b"\"5\"", b"'5'", b"(x)5", b"5(x)", b"5_0", b"5/1", b"%35", b"\xb2",
    b"\xd9\xa5", b"\xef\xbc\x95", b"\xef\xbb\xbf5", b"0b101", b"0o5", b"1_000",
    b"1'000", b"NaN", b"Infinity", b"null", b"4294967301 ,", b"9223372036854775808",
    b"9223372036854775813", b"18446744073709551616", b"18446744073709551621",
    b"36893488147419103237", b"99999999999999999999", b"9" * 39, b"5" * 20,
    b"5\r\n ", b"\r\n 5", b"5\r\n\t0", b"5\n", b"5\r",
    b"5\0\0", b"\x005\t"]

PAIRS = [
    (b"5", b"5"), (b"5", b"6"), (b"6", b"5"), (b"0", b"5"), (b"5", b"0"), (b"5", b""),
    (b"", b"5"), (b"5", b"x"), (b"05", b"5"), (b"0", b"0"), (b"5", b"-5"),
    (b"5", b"5, 5")]

LENGTH_NAMES = [
    b"Content-Length ", b"Content-Length\t", b" Content-Length", b"\tContent-Length",
    b"Content Length", b"Content-Length\0", b"\0Content-Length", b"Content-Length\r\n ",
    b"Content-Length\x0b", b"Content-Length\xa0", b"Content-\nLength",
    b"\"Content-Length\""]


def lengths() -> Iterator[Row]:
    for value in ODD_LENGTHS:
        text = value.decode("latin-1")
        yield refused(f"length {text!r}",
                      post(b"Content-Length: " + value, body=b"hello" + HIDDEN))
    for one, two in PAIRS:
        for name in (b"Content-Length", b"content-length"):
            yield refused(
                f"lengths {one.decode()!r} and {two.decode()!r} ({name.decode()})",
                post(b"Content-Length: " + one, b"X: y", name + b": " + two,
                     body=b"hello" + HIDDEN))
    for name in LENGTH_NAMES:
        yield refused(f"length field {name.decode('latin-1')!r}",
                      post(name + b": 5", body=b"hello" + HIDDEN))
    for octet in ODD_SPACES:
        odd = bytes([octet])
        for place, value in (("before", odd + b"5"), ("behind", b"5" + odd)):
            yield refused(f"octet {octet:#04x} {place} the length",
                          post(b"Content-Length: " + value, body=b"hello" + HIDDEN))
    for value in (b"5", b"05", b"0000000000000000005", b"0000000000000000000005",
                  b"0" * 64 + b"5", b"5 \t", b"\t 5"):
        yield seen(f"length {value.decode()!r}",
                   post(b"Content-Length:" + value, body=b"hello" + HIDDEN), b"hello")
    for name in (b"Content_Length", b"ContentLength", b"Content-Lengt",
                 b"X-Content-Length",
                 b"Content-Length-", b"HTTP_CONTENT_LENGTH", b"Content.Length"):
        yield seen(f"{name.decode()} is another field",
                   post(name + b": 5", body=HIDDEN))
    # A method that "has no body" has the one that its fields say.
    for method in (b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"get", b"X"):
        line = LINE.replace(b"POST", method)
        yield seen(f"{method.decode()} with a body", post(
            b"Content-Length: %d" % len(HIDDEN), body=HIDDEN, line=line), HIDDEN,
            method)


# --- lines, fields and controls -------------------------------------------------------


def heads() -> Iterator[Row]:
    whole = post(b"A: b", b"Content-Length: 5", body=b"hello")
    for octet in CONTROLS:
        odd, name = bytes([octet]), f"octet {octet:#04x}"
        for place, start, rest in (
                ("the method", b"POST", b" "), ("the target", b"/x", b" "),
                ("the version", b"HTTP/1.1", b""), ("a name", b"A", b": b"),
                ("a value", b"A: b", b""), ("nothing", b"", b"POST")):
            yield refused(f"{name} behind {place}",
                          whole.replace(start + rest, start + odd + rest, 1))
    for end, name in ((b"\n", "LF"), (b"\r", "CR"), (b"\r\r\n", "CR CR LF"),
                      (b"\n\r", "LF CR"), (b"\n\n", "LF LF"), (b"\r\n\n", "CR LF LF")):
        yield refused(f"{name} behind the request line", whole.replace(b"\r\n", end, 1))
        yield refused(f"{name} behind a field", whole.replace(b"b\r\n", b"b" + end, 1))
        yield refused(f"{name} in a value",
                      whole.replace(b"A: b", b"A: b" + end + b"C: d"))
        if end != b"\r\n\n":         # that one ends the head, and begins the body
            yield refused(f"{name} for the empty line", post(
                b"Content-Length: 5", body=b"hello", end=b"\r\n" + end))
        yield refused(f"{name} for every line end", whole.replace(b"\r\n", end))
        yield refused(f"{name} before the request line", end + whole)
    for fold in (b" ", b"\t", b"  ", b" \t"):
        for line in (b"A: b\r\n" + fold + b"c", b"A:\r\n" + fold + b"b",
                     b"A: b\r\n" + fold,
                     fold + b"A: b", b"A: b\r\n" + fold + b"Content-Length: 5"):
            yield refused(f"folded {line.decode()!r}", post(line, body=HIDDEN))
    for line in (b"A", b"A ", b":", b": b", b" : b", b"A : b", b"A\t: b", b"A b: c",
                 b"A,: b", b"A(: b", b"A{}: b", b"A@: b", b"A[0]: b", b"A\xe4: b",
                 b"GET / HTTP/1.1", b"\"A\": b", b"A=b", b"A;b: c", b"A/b: c",
                 b"A\\b: c"):
        yield refused(f"field line {line.decode('latin-1')!r}", post(line, body=HIDDEN))
    yield refused("two empty lines before a request", b"\r\n\r\n" + whole)
    yield seen("one empty line before a request", b"\r\n" + whole, b"hello")
    for name in (b"Content-Length", b"Host", b"content-length", b"Via", b"close, HOST",
                 b"Content-Length, Transfer-Encoding"):
        yield seen(f"Connection names {name.decode()}", post(
            b"Connection: " + name, b"Content-Length: 5", body=b"hello" + HIDDEN),
            b"hello")
    for value in (b"\"close\"", b"close x", b"a;b", b"(c)", b"a\xe4", b"close,{}"):
        # No token, and so no option and no field's name: read over.
        yield seen(f"Connection: {value.decode('latin-1')}",
                   post(b"Connection: " + value, b"Content-Length: 5",
                        body=b"hello"), b"hello")


def request_lines() -> Iterator[Row]:
    for line in (
            b"POST  http://{host}/x HTTP/1.1", b"POST http://{host}/x  HTTP/1.1",
            b" POST http://{host}/x HTTP/1.1", b"POST\thttp://{host}/x HTTP/1.1",
            b"POST http://{host}/x\tHTTP/1.1", b"POST http://{host}/x HTTP/1.1 ",
            b"POST http://{host}/x HTTP/1.1 x", b"POST http://{host}/x", b"POST",
            b"POST http://{host}/x ", b"POST HTTP/1.1", b"http://{host}/x HTTP/1.1",
            b"POST http://{host}/x HTTP/0.9", b"POST http://{host}/x HTTP/1.2",
            b"POST http://{host}/x HTTP/2.0", b"POST http://{host}/x HTTP/3.0",
            b"POST http://{host}/x HTTP/1.10", b"POST http://{host}/x HTTP/01.1",
            b"POST http://{host}/x HTTP/1", b"POST http://{host}/x HTTP/1.",
            b"POST http://{host}/x HTTP/1,1", b"POST http://{host}/x http/1.1",
            b"POST http://{host}/x Http/1.1", b"POST http://{host}/x HTTPS/1.1",
            b"POST http://{host}/x HTTP /1.1", b"POST http://{host}/x HTTP/-1.1",
            b"POST http://{host}/x HTTP/1.1\0", b"POST http://{host}/x ICY/1.1",
            b"POST http://{host}/x RTSP/1.0", b"P@ST http://{host}/x HTTP/1.1",
            b"PO(T http://{host}/x HTTP/1.1", b"\"POST\" http://{host}/x HTTP/1.1",
            b"POST: http://{host}/x HTTP/1.1", b"P\xd6ST http://{host}/x HTTP/1.1",
            b"POST http://{host}/x y HTTP/1.1",
            b"POST http://{host}/x\x0bHTTP/1.1", b"PRI * HTTP/2.0",
            b"POST http://{host}/x HTTP/1.1\rX: y"):
        yield refused(f"request line {line.decode('latin-1')!r}", post(
            b"Content-Length: 5", body=b"hello", line=line + b"\r\n"))


# --- destination: target against Host -------------------------------------------------


def targets() -> Iterator[Row]:
    for target in (
            b"http://u@{host}/", b"http://u:p@{host}/", b"http://@{host}/",
            b"http://{host}@evil/", b"http://{host}/#f", b"http://{host}#f", b"http://",
            b"http:///x", b"http://?q", b"http:{host}/", b"http:/{host}/",
            b"https://{host}/", b"ftp://{host}/", b"file:///etc/passwd", b"gopher://a/",
            b"ws://{host}/", b"{host}/x", b"x", b"*", b"http://{host},evil/", b"?x",
            b"http://{host}\\@evil/", b"http://{host}\\evil/", b"http://evil\\@{host}/",
            b"http://[::1/", b"http://::1/", b"http://[::1]x/", b"http://[::1%lo]/",
            b"http://[::1%25]/", b"http://[::1%25a/b]/", b"http://[::1%25%zz]/",
            b"http://[v1.x]/", b"http://[]/", b"http://a:/", b"http://a:0/",
            b"http://a:65536/", b"http://a:80:80/", b"http://a:+80/", b"http://a:0x50/",
            b"http://a:080808/", b"http://a..b/", b"http://.a/", b"http://a%2eb/",
            b"http://a%00b/", b"http://\xe4/", b"http://1.2.3.4.5/",
            b"http://256.1.1.1/", b"http://1.2.3.08/", b"http://0x/", b"http://a.1/",
            b"http://4294967296/", b"http://a_b!/", b"http://a;b/", b"http://a|b/",
            b"http://" + b"a" * 64 + b"/"):
        yield refused(f"target {target.decode('latin-1')!r}", post(
            line=b"GET " + target + b" HTTP/1.1\r\n"))
    for target in (b"{host}", b"{host}/", b"http://{host}/", b"u@{host}", b"{host}:1:2",
                   b"/", b"*", b"a", b"a:", b"a:x", b"a:0", b"a:65536", b"[::1]",
                   b"2001:db8::1", b":443", b"a:443,b:443", b"a:443/", b"a:443#f",
                   b"a:443?q"):
        if target == b"{host}":
            for line in (b"Content-Length: 5", b"Transfer-Encoding: chunked",
                         b"Content-Length: 0\r\nContent-Length: 0",
                         b"Transfer-Encoding: gzip, chunked", b"Content-Length: x"):
                yield refused(f"CONNECT with {line.decode()!r}", post(
                    line, body=CHUNKED, line=b"CONNECT {host} HTTP/1.1\r\n"))
        else:
            yield refused(f"CONNECT {target.decode()}", post(
                line=b"CONNECT " + target + b" HTTP/1.1\r\n"))
    line = b"GET http://{host}/x HTTP/1.1\r\n{auth}"
    for hosts in (
            b"X: y", b"Host: {host}\r\nHost: {host}", b"Host: {host}\r\nHost: evil",
            b"Host: evil\r\nHost: {host}", b"Host: {host}\r\nhost: evil",
            b"Host: {host}, evil", b"Host: {host} evil", b"Host: {host}@evil",
            b"Host: u@{host}", b"Host: {host}/x", b"Host: http://{host}", b"Host: a:b",
            b"Host: a:1:2", b"Host: [::1", b"Host: ::1",
            b"Host: a?b", b"Host: a#b", b"Host: \xe4", b"Host : {host}",
            b" Host: {host}", b"Host: a\r\n b", b"Host:\r\n {host}", b"Host: a%2",
            b"Host: \"a\"", b"Host: a\\b", b"Host: a%zz", b"Host: [v.a]", b"Host: [v1]",
            b"Host\0: {host}", b"Host: {host}\0"):
        yield refused(f"{hosts.decode('latin-1')!r}", line + hosts + b"\r\n\r\n")
    # RFC 9112 section 3.2.2: the target wins, and one Host made from it goes on.
    for host in (b"evil", b"evil:80", b"EVIL.", b"[::1]", b"127.0.0.1:1", b"0x7f.1",
                 b"", b":", b":80", b"a:", b"a:0", b"a:99999", b"a..b", b".", b"a~b",
                 b"a%20b", b"0.0.0.0=5000", b"a;b", b"a,b", b"*",
                 b"[v1.x:y]", b"[::1%25lo]",
                 b"x" * 300):
        yield seen(f"Host: {host.decode()} against the target",
                   line + b"Host: " + host + b"\r\n\r\n", method=b"GET")
    for name in (b"X-Forwarded-Host", b"X-Host", b"Forwarded", b"X-Original-URL",
                 b"Host_"):
        yield seen(f"{name.decode()} routes nothing", post(
            name + b": evil", line=LINE.replace(b"POST", b"GET")), method=b"GET")


# --- chunks ---------------------------------------------------------------------------


def chunks() -> Iterator[Row]:
    coding = b"Transfer-Encoding: chunked"
    odd = [
        b"0x5\r\nhello", b"+5\r\nhello", b"-5\r\nhello", b" 5\r\nhello", b"5 \r\nhello",
        b"5\t\r\nhello", b"5\nhello", b"5\rhello", b"5\r\r\nhello", b"5\n\rhello",
        b"\r\n", b"5;\nhello", b"5;a\nb\r\nhello", b"5;a\0\r\nhello",
        b"5;a\rb\r\nhello", b"5h\r\nhello", b"5 a\r\nhello",
        b"5 ;a\0\r\nhello", b"5\0\r\nhello",
        b"\0" b"5\r\nhello", b"5,5\r\nhello", b"g\r\nhello", b"5.\r\nhello",
        b"\"5\"\r\nhello", b"5_\r\nhello", b"\xd9\xa5\r\nhello", b";\r\nhello",
        b"10000000000000005\r\nhello",
        b"ffffffffffffffff\r\nhello", b"fffffffffffffffff\r\nhello",
        b"8000000000000000\r\nhello", b"100000000000000000000000000000005\r\nhello",
        b"5;" + b"x" * 5000 + b"\r\nhello",
        b"".join(b"1;%b\r\n%c\r\n" % (b"x" * 4000, c) for c in b"hell") +
        b"1;" + b"x" * 4000 + b"\r\no", b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n", b"5\r\nhell\r\n0\r\n\r\n",
        b"5\r\nhellooo\r\n0\r\n\r\n", b"5\r\nhello\r\r\n0\r\n\r\n",
        b"5\r\nhello\n\r\n0\r\n\r\n", b"5\r\nhello \r\n0\r\n\r\n"]
    for start in odd:
        body = start if start.endswith(b"\r\n\r\n") else start + b"\r\n0\r\n\r\n"
        yield refused(f"chunk {start[:40].decode('latin-1')!r}",
                      post(coding, body=body))
    for last in (b"0\n\n", b"0\r\n\n", b"0\n\r\n", b"0\r\n\r\r\n", b"0\r\nX\r\n\r\n",
                 b"0\r\nX : y\r\n\r\n", b"0\r\n X: y\r\n\r\n", b"0\r\nX: y\n\r\n",
                 b"0\r\nX: y\r\n z\r\n\r\n", b"0\r\nX: \0\r\n\r\n", b"0\r\n: y\r\n\r\n",
                 b"0\r\nX: y\rZ: a\r\n\r\n", b"0 \r\n\r\n", b"0,\r\n\r\n",
                 b"0x0\r\n\r\n", b"-0\r\n\r\n", b"0 5\r\n\r\n",
                 b"0\r\nGET /hidden HTTP/1.1\r\n\r\n",
                 b"0\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
                 b"0\r\n" + b"A: b\r\n" * 2000):
        yield refused(f"last chunk {last[:40].decode('latin-1')!r}",
                      post(coding, body=b"5\r\nhello\r\n" + last))
    for name in (b"Content-Length", b"Transfer-Encoding", b"Host", b"Connection",
                 b"Trailer",
                 b"Proxy-Authorization", b"TE", b"Upgrade", b"Via",
                 b"transfer-ENCODING"):
        yield seen(f"{name.decode()} in the trailers", post(
            coding, body=b"5\r\nhello\r\n0\r\n" + name + b": 5\r\n\r\n" + HIDDEN),
            b"hello")
    for body in (b"5;a=b\r\nhello\r\n0\r\n\r\n", b"5;\r\nhello\r\n0;x\r\n\r\n",
                 b"005\r\nhello\r\n000\r\n\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
                 b"5;a=\"\x80\"\r\nhello\r\n0\r\nX: y\r\n\r\n",
                 b"1;5\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
                 b"5 ;a\r\nhello\r\n0\t ; b=c\r\n\r\n",
                 b"00000000000000005\r\nhello\r\n" + b"0" * 16 + b"\r\n\r\n"):
        yield seen(f"chunks {body.decode('latin-1')!r}",
                   post(coding, body=body + HIDDEN),
                   b"hello")


ROWS = [*codings(), *lengths(), *heads(), *request_lines(), *targets(), *chunks()]
