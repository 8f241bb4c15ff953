"""Values of the field `traceparent`, valid and not, and heads with them."""

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
VALID = (SAMPLED, UNSAMPLED, f"00-{TRACE}-{SPAN}-03", f"cc-{TRACE}-{SPAN}-01-more")
INVALID = (
    "", "00", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01",
    f"00-{TRACE.upper()}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01-more",
    f"00-{TRACE}-{SPAN}-011", f"00_{TRACE}-{SPAN}-01")
HEAD = "GET / HTTP/1.1\r\nHost: a.test\r\n{}Via: 1.1 here\r\n\r\n"


def head(*values: str) -> str:
    return HEAD.format("".join(f"traceparent: {value}\r\n" for value in values))
