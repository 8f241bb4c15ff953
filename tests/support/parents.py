"""Scripted parents, and a policy that sends requests to them."""

import base64

from tests.support.origin import Connection, echo, okay

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
BAD = "HTTP/1.1 {} x\r\nContent-Length: 4\r\n\r\nbody"
BASIC = base64.b64encode(b"me:secret").decode()


def go_on(conn: Connection) -> None:
    """The tunnel is open: echoes, or answers plain requests."""
    if not conn.fill():
        return
    if conn.pending[:4] in (b"GET ", b"POST"):
        okay(conn)
    else:
        conn.send(conn.take(len(conn.pending)))
        echo(conn)


def http(conn: Connection) -> None:
    """A parent that is an HTTP proxy, and the origin behind it."""
    request = conn.read_request()
    if request.method != "CONNECT":
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        okay(conn)
    conn.send(ESTABLISHED)
    go_on(conn)


def socks(reply: bytes = b"\x05\0\0\x01\x7f\0\0\x01\0\x50", method: int = 0):
    """A SOCKS5 parent; notes greeting, login and request in `origin.heard`."""
    def script(conn: Connection) -> None:
        heard = [conn.read_exact(2)]
        heard[0] += conn.read_exact(heard[0][1])
        conn.send(bytes((5, method)))
        if method == 2:
            login = conn.read_exact(2)
            login += conn.read_exact(login[1] + 1)
            heard.append(login + conn.read_exact(login[-1]))
            conn.send(b"\x01\0")
        head = conn.read_exact(5)
        left = {1: 5, 3: head[4] + 2, 4: 17}[head[3]]
        heard.append(head + conn.read_exact(left))
        conn.origin.heard = heard
        conn.send(reply)
        go_on(conn)
    return script


def socks4(conn: Connection) -> None:
    heard = conn.read_exact(8)
    while heard.count(0, 8) < (2 if heard[4:7] == b"\0\0\0" else 1):
        heard += conn.read_exact(1)
    conn.origin.heard = heard
    conn.send(b"\0\x5a" + bytes(6))
    go_on(conn)


def parent(origin, scheme: str = "http", name: str = "corp", **more: object) -> str:
    """Returns a parent's table in the configuration."""
    lines = "".join(
        f"{key} = {value!r}\n" if isinstance(value, str) else f"{key} = {value}\n"
        for key, value in more.items()).replace("True", "true")
    return f"[parents.{name}]\nurl = '{scheme}://127.0.0.1:{origin.port}'\n{lines}"


def say(reply: bytes, close: bool = False):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(reply)
        if not close:
            conn.stall()
    return script
