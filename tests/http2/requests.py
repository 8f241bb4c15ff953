"""Heads of HTTP/2, their bytes in HTTP/1.1, and all that a couple reads."""

GET = ((":method", "GET"), (":scheme", "http"), (":authority", "a.b"), (":path", "/c"))
POST = ((":method", "POST"), *GET[1:])
TUNNEL = ((":method", "CONNECT"), (":authority", "a.b:443"))
OKAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def read_all(stream, n=65536) -> bytes:
    """Until there is nothing more now, or ever."""
    found = b""
    while True:
        got = stream.recv(n)
        if not isinstance(got, bytes) or got == b"":
            return found
        found += got
