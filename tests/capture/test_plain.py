"""Bodies that are kept without a look by exchange.bodies: the row is the same."""

from hypothesis import given
from hypothesis import strategies as st

from cutthrough.exchange.bodies import Transferred, make_body
from cutthrough.exchange.captured_echoes import find_echoes
from cutthrough.tape.assembly import DOWN, DOWN_CUT, END, HEADS, UP, UP_CUT
from tests.capture.records import end, heads, redactor, rows

SECRET = "s3cret-of-17-octets"
COOKIE = f"Cookie: id={SECRET}"

LINES = st.lists(st.one_of(
    st.sampled_from([
        "Content-Type: text/plain", "content-type:application/json; charset=utf-8",
        "Content-Type: text/html; charset=ISO-8859-1", "Content-Type : text/plain",
        "Content-Type: application/http", "Content-Type:multipart/mixed; boundary=b",
        "Content-Type: image/png", "Content-Type:", "Content-Typed: image/png",
        "Content-Type: application/octet-stream", "Content-Encoding: gzip",
        "Content-Encoding: identity", "Content-Length: 5", "Content-Length:5",
        "Content-Length: 6", "content-length: 05", "Content-Length: x",
        "Content-Length : 9", "Content-Language: en", "X: content-type: image/png"]),
    st.builds("Content-{}:{}".format, st.sampled_from(["Type", "Length", "Encoding"]),
              st.text("tex/;=uf-8 \t5", max_size=12))), max_size=4)
BODIES = st.one_of(
    st.just(b""), st.just(b"hello"), st.just(b"GET / HTTP/1.1\r\nCookie: a=1\r\n\r\n"),
    st.just(f"it is {SECRET}".encode()),
    st.just("hellö".encode()), st.just(b"\xff\xfe"), st.just(b"a\0b"),
    st.binary(max_size=12), st.text("ab5", max_size=12).map(str.encode))


@given(up_lines=LINES, down_lines=LINES, up=BODIES, down=BODIES,
       up_more=st.sampled_from([0, 1]), down_more=st.sampled_from([0, 1]),
       flags=st.sampled_from([0, UP_CUT, DOWN_CUT]), split=st.integers(0, 12))
def test_a_row_is_as_exchange_bodies_makes_it(
        up_lines, down_lines, up, down, up_more, down_more, flags, split):
    up_head = "\r\n".join(["POST /a HTTP/1.1", "Host: a.test", COOKIE, *up_lines,
                           "", ""])
    down_head = "\r\n".join(["HTTP/1.1 200 OK", *down_lines, "", ""])
    (row,) = rows(
        (HEADS, 0, 1, heads(down_head.encode("latin-1"))),
        *((UP, 0, 1, piece) for piece in (up[:split], up[split:]) if piece),
        *((DOWN, 0, 1, piece) for piece in (down[:split], down[split:]) if piece),
        (END, 0, 1, end(head=up_head.encode("latin-1"), flags=flags,
                        body_up=len(up) + up_more, body_down=len(down) + down_more)))
    echoes = find_echoes(COOKIE.encode(), ())
    of_up = make_body(Transferred(up, len(up) + up_more, cut=bool(flags & UP_CUT)),
                      up_head, redactor(), of_request=True)
    of_down = make_body(
        Transferred(down, len(down) + down_more, cut=bool(flags & DOWN_CUT)),
        down_head, redactor(), echoes=echoes)
    for side, body in (("request", of_up), ("response", of_down)):
        assert (row[f"{side}_body"], row[f"{side}_body_bytes"],
                row[f"{side}_content_bytes"], row[f"{side}_body_state"],
                row[f"{side}_trailers"]) == (
            body.content, body.transferred, body.decoded, body.state or None, None)
        assert SECRET not in str(row[f"{side}_body"]) or side == "request"
    assert row["bytes"] == 400 + sum(map(len, (
        up_head, down_head, row["url"], of_up.content or "", of_down.content or "")))
