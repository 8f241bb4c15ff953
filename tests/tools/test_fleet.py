"""Admin listeners with TLS in front, as a verb of a fleet asks them."""

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator

import pytest

from cutthrough.tools.console import Unanswered
from cutthrough.tools.fleet import Remote, arm, change_mode, make_trust
from tests.support.certificates import Authority, authority, localhost

TOKEN = "a-token-of-the-tests"
ANSWERS = {"/mode": b'{"mode": "rules", "session": null}',
           "/breakpoints/armed": b'{"armed_s": "x"}'}


class Front(http.server.BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.tokens.append(self.headers["Authorization"])
        body = ANSWERS[self.path.partition("?")[0]]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *values: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Front)
        self.tokens: list[str | None] = []

    def handle_error(self, request: object, client_address: object) -> None:
        pass                                # a client that does not trust it


@pytest.fixture
def front() -> Iterator[Server]:
    server = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*localhost())
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with contextlib.closing(server.socket):
        yield server
        server.shutdown()
    thread.join()
    server.server_close()


def remote(server: Server, trusted: Authority, host: str = "localhost") -> Remote:
    trust = make_trust(str(trusted.own.certificate))
    return Remote(f"https://{host}:{server.server_port}", TOKEN, 30.0, trust)


def test_over_tls_a_change_takes_the_token_and_reading_does_not(front):
    listener = remote(front, authority())
    assert change_mode(listener, None, None, as_json=False) == [
        "mode rules, session as configured"]
    assert change_mode(listener, "replay", None, as_json=True)[0].startswith("{")
    assert front.tokens == [None, f"Bearer {TOKEN}"]


def test_a_certificate_of_others_gets_no_token(front):
    with pytest.raises(Unanswered, match="certificate"):
        change_mode(remote(front, Authority("another")), "off", None, as_json=False)
    assert front.tokens == []


def test_an_answer_of_another_shape_is_no_answer(front):
    with pytest.raises(Unanswered, match="answers without armed_s"):
        arm(remote(front, authority()), 5.0)


@pytest.mark.parametrize("url", ["ftp://a:1", "http://a", "a:1", "http://a:b", ""])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError):
        Remote(url, TOKEN, 1.0, make_trust(None))
