"""The plugin of pytest: WebSockets in cassettes, beside answers of the test."""

import json

import pytest

from tests.support.chats import KEY, chat
from tests.support.inner import Inner

TALK = """
    import socket
    from urllib.parse import urlsplit

    def talk(cutthrough, url):
        way = urlsplit(cutthrough.url)
        with socket.create_connection((way.hostname, way.port), 20) as sock:
            sock.sendall((f"GET {{url}} HTTP/1.1\\r\\nHost: {{urlsplit(url).netloc}}"
                "\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
                "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: {key}\\r\\n"
                f"{{authorization_of(way)}}\\r\\n").encode())
            file = sock.makefile("rb")
            assert b" 101 " in file.readline()
            while file.readline().strip():
                pass
            assert file.read(9) == b"\\x81\\x07welcome"
            for text in (b"one", b"two"):
                sock.sendall(b"\\x81\\x83\\0\\0\\0\\0" + text)
                first = file.read(2)
                if first == b"\\x89\\0":                # a ping
                    first = file.read(2)
                assert first + file.read(3) == b"\\x81\\x03" + text.upper()
            assert file.read(7) == b"\\x88\\x05\\x03\\xe8bye"
            sock.sendall(b"\\x88\\x82\\0\\0\\0\\0\\x03\\xe8")
            assert file.read() == b""

    def authorization_of(way):
        import base64
        pair = f"{{way.username}}:{{way.password}}".encode()
        return ("Proxy-Authorization: Basic " + base64.b64encode(pair).decode()
                + "\\r\\n") if way.username else ""

    @pytest.mark.cassette
    def test_chat(cutthrough):
        {before}
        talk(cutthrough, "{url}")
        assert get("http://api.example/mine") == "mine"
        {after}
"""


@pytest.fixture
def run(tmp_path):
    return Inner(tmp_path)


@pytest.mark.parametrize("is_before", [True, False])
def test_a_conversation_is_recorded_beside_answers_of_the_test(
        run, make_origin, is_before):
    origin = make_origin(chat)
    answer = 'cutthrough.respond("http://api.example/mine", text="mine")'
    text = TALK.format(url=origin.url("/chat"), key=KEY, after="",
                       before=answer)
    if not is_before:
        text = text.replace(f"        {answer}\n", "").replace(
            "        assert get(", f"        {answer}\n        assert get(")
    for _ in range(2):
        status, said = run(text)
        assert status == 0 and "not recorded" not in said, said
    assert len(origin.connections) == 1
    (name,) = run.cassette("test_inner.test_chat")
    folder = run.folder / "cassettes/test_inner.test_chat"
    held = json.loads((folder / name).read_text())
    assert len(held["response"]["messages"]) == 7
