"""A web site for browsers: pages, the files that they load, and a WebSocket echo."""

import http
import ssl
import threading

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from tests.support.certificates import Made
from tests.support.wait import PATIENCE

# A page loads a script of another host too. Without an icon, browsers request one.
PAGE = """<!doctype html><title>site</title><link rel=icon href=data:,>
<link rel=stylesheet href=style.css><p id=text>text</p><img src=image.svg>
<script src=script.js></script><script src=//other.test:{port}/other.js></script>
"""
FILES = {
    "/style.css": ("text/css", "#text { color: rgb(1, 2, 3) }"),
    "/image.svg": ("image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg" '
                   'width="7" height="7"/>'),
    "/script.js": ("text/javascript", "window.script = 1"),
    "/other.js": ("text/javascript", "window.other = 2"),
    "/data": ("application/octet-stream", "x" * 300_000),
}
LOADED = ("[script, other, document.images[0].naturalWidth, getComputedStyle("
          "document.querySelector('#text')).color]")
#: What LOADED is in a page that has all of it
WHOLE = [1, 2, 7, "rgb(1, 2, 3)"]
FETCH = "fetch('/data').then(it => it.arrayBuffer()).then(it => it.byteLength)"
ECHO = """new Promise(done => {
    const socket = new WebSocket(URL);
    socket.onopen = () => socket.send('x'.repeat(70000));
    let length = 0;
    socket.onmessage = it => { length = it.data.length; socket.close(); };
    socket.onclose = () => done(length);
    socket.onerror = () => done('error');
})"""


class Site:
    """Serves HTTP and HTTPS from construction until `close`."""

    def __init__(self, made: Made) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*made)
        #: scheme, Host without its port, and path of each request
        self.requests: list[tuple[str, str, str]] = []
        self._servers = {"http": self._serve("http", None),
                         "https": self._serve("https", context)}
        self.ports = {scheme: server.socket.getsockname()[1]
                      for scheme, server in self._servers.items()}
        self._threads = [threading.Thread(target=server.serve_forever)
                         for server in self._servers.values()]
        for thread in self._threads:
            thread.start()

    def _serve(self, scheme: str, context: ssl.SSLContext | None) -> Server:
        def answer(connection: ServerConnection, request: Request) -> Response | None:
            host = request.headers["Host"].partition(":")[0]
            self.requests.append((scheme, host, request.path))
            if "Upgrade" in request.headers:
                return None
            kind, text = FILES.get(
                request.path, ("text/html", PAGE.format(port=self.ports[scheme])))
            return Response(http.HTTPStatus.OK, "OK", Headers({
                "Content-Type": kind, "Content-Length": str(len(text)),
                "Cache-Control": "no-store", "Connection": "close"}), text.encode())

        # A browser may hold a connection open that it does not use
        return serve(echo, "127.0.0.1", 0, ssl=context, process_request=answer,
                     open_timeout=PATIENCE)

    def url(self, scheme: str, host: str, path: str = "/") -> str:
        """`scheme`: http, https, ws or wss."""
        port = self.ports["https" if scheme in ("https", "wss") else "http"]
        return f"{scheme}://{host}:{port}{path}"

    def hosts(self) -> set[str]:
        return {host for _, host, _ in self.requests}

    def close(self) -> None:
        """The browser has ended before, and with it all connections."""
        for server in self._servers.values():
            server.shutdown()
        for thread in self._threads:
            thread.join()


def echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)
