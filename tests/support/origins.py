"""Named origins of a configuration, the rule for one, and whom requests met."""

from collections import Counter

from tests.support.origin import Connection, Origin, Script

HOST = "api.local"
RULE = f"""
[[rules]]
name = "api"
action = "allow"
hosts = ["{HOST}"]
origin = "api"
"""


def named(*servers: Origin, name: str = "api", scheme: str = "http",
          **more: object) -> str:
    """Returns a named origin's table in the configuration."""
    urls = [f"{scheme}://127.0.0.1:{server.port}" for server in servers]
    lines = "".join(f"{key} = {value!r}\n" for key, value in more.items())
    return f"[origins.{name}]\nurls = {urls!r}\n{lines}"


def say(text: str) -> Script:
    """A server that answers each request with this text."""
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text)

    def script(conn: Connection) -> None:
        while True:
            request = conn.read_request()
            conn.send(reply if request.method == "HEAD" else reply + text.encode())
    return script


def met(client_of, proxy, n: int, method: str = "GET", **more: object) -> list[str]:
    """The bodies of n answers, each to a client of its own."""
    bodies = []
    for _ in range(n):
        with client_of(proxy) as client:
            bodies.append(client.ask(method, "/x", host=HOST, **more).body.decode())
    return bodies


def count(*words: object) -> Counter[str]:
    return Counter(met(*words))
