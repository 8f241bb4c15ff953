"""The plugin of pytest beside others (pytest-xdist, pytest-asyncio), and with clients
that are no code of the test: recorded, and replayed when the origins are gone."""

import json
import os
import threading
import time
from importlib.util import find_spec

import pytest

from tests.support import registries
from tests.support.inner import Inner
from tests.support.inside import okay, origins, over_tls
from tests.support.origin import Connection
from tests.support.programs import need
from tests.support.registries import COMMITTER

needs_xdist = pytest.mark.skipif(
    find_spec("xdist") is None, reason="pytest-xdist is not installed")
TWO = ("-p", "xdist", "-n", "2")


@pytest.fixture
def run(tmp_path):
    return Inner(tmp_path)


def echo_path(conn: Connection) -> None:
    """Answers with the path, and a number that differs each time."""
    while request := conn.read_request():
        body = f"{request.start[1]} {len(conn.origin.requests)}".encode()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
            len(body), body))


# --- processes side by side


@needs_xdist
def test_two_processes_record_and_replay_tests_of_one_directory(run, make_origin):
    origin = make_origin(echo_path)
    text = f"""
        @pytest.mark.parametrize("n", range(10))
        @pytest.mark.cassette
        def test_one(n):
            for _ in range(3):
                said = get(f"http://127.0.0.1:{origin.port}/{{n}}")
                print("found", n, said)
                assert said.startswith(f"/{{n}} ")
    """
    first = run.passes(text, *TWO)
    assert len(first) == len(origin.requests) == 30
    origin.close()
    assert run.passes(text, *TWO) == run.passes(text) == first


@needs_xdist
@pytest.mark.parametrize("mode", ["once", "new_episodes"])
def test_a_cassette_of_two_processes_at_once_is_recorded_by_one(
        run, make_origin, mode):
    """Each of the processes runs all tests; so each test has its cassette twice."""
    origin = make_origin(echo_path)
    text = f"""
        @pytest.mark.parametrize("n", range(8))
        @pytest.mark.cassette(mode="{mode}")
        def test_one(n):
            print("found", n, get(f"http://127.0.0.1:{origin.port}/{{n}}"))
    """
    first = run.passes(text, *TWO, "--dist=each")
    assert len(first) == 16 and first[::2] == first[1::2]
    assert len(origin.requests) == 8
    origin.close()
    assert run.passes(text, *TWO, "--dist=each") == first


@needs_xdist
def test_tests_that_share_a_cassette_find_what_the_others_have_recorded(
        run, make_origin):
    origin = make_origin(echo_path)
    text = f"""
        @pytest.mark.parametrize("n", range(6))
        @pytest.mark.cassette("shared", mode="new_episodes")
        def test_one(n):
            for path in ("all", n):
                print("found", path, get(f"http://127.0.0.1:{origin.port}/{{path}}"))
    """
    first = run.passes(text, *TWO)
    assert len(origin.requests) == len(run.cassette("shared")) == 7
    origin.close()
    assert run.passes(text, *TWO) == first
    assert run.passes(text.replace("new_episodes", "none"), *TWO) == first


@needs_xdist
def test_a_mode_of_the_command_line_goes_to_all_processes(run, make_origin):
    origin = make_origin(echo_path)
    text = f"""
        @pytest.mark.parametrize("n", range(4))
        @pytest.mark.cassette
        def test_one(n):
            get(f"http://127.0.0.1:{origin.port}/{{n}}")
    """
    status, said = run(text, *TWO, "--cassette-mode=none")
    assert status == 1 and said.count("no recording answers") >= 4
    assert not origin.requests
    for asked in (4, 8):
        run.passes(text, *TWO, "--cassette-mode=all")
        assert len(origin.requests) == asked


# --- asynchronous tests

ASYNC = """
    import asyncio, ssl
    import {library}

    {client}

    @pytest.mark.cassette
    async def test_both():
        found = await asyncio.gather(*[ask(url + str(n)) for n in range(10) for url in (
            "http://127.0.0.1:{plain}/", "https://a.example:{tls}/")])
        for one in found:
            print("found", one)

    async def test_answers(cutthrough):
        cutthrough.respond("https://a.example/v1", text="made")
        assert await ask("https://a.example/v1") == "made"
        assert [one.verdict for one in cutthrough.requests] == ["replayed"]
"""
HTTPX = """
    async def ask(url):
        async with httpx.AsyncClient() as client:
            return (await client.get(url)).text
"""
AIOHTTP = """
    async def ask(url):
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
        async with aiohttp.ClientSession(trust_env=True, connector=connector) as client:
            async with client.get(url) as answer:
                return await answer.text()
"""
AIOHTTP_BY_HAND = """
    @pytest.fixture(autouse=True)
    def by_hand(cutthrough):
        global ask
        trust = ssl.create_default_context(cafile=cutthrough.bundle)

        async def ask(url):
            async with aiohttp.ClientSession() as client:
                async with client.get(url, proxy=cutthrough.url, ssl=trust) as answer:
                    return await answer.text()
"""


@pytest.mark.parametrize(("library", "client"), [
    ("httpx", HTTPX), ("aiohttp", AIOHTTP), ("aiohttp", AIOHTTP_BY_HAND)])
def test_asynchronous_tests_are_recorded_and_replayed(
        run, make_origin, library, client):
    plain = make_origin(echo_path)
    tls = make_origin(over_tls(echo_path, origins().sign("DNS:a.example")))
    text = ASYNC.format(library=library, client=client.strip(), plain=plain.port,
                        tls=tls.port)
    first = run.passes(text)
    assert len(first) == 20
    plain.close()
    tls.close()
    assert run.passes(text) == first


# --- programs


def test_programs_are_recorded_and_replayed(run, make_origin, tmp_path):
    need("curl", "git")
    root = tmp_path / "served"
    root.mkdir()
    registries.make_repository(root)
    plain = make_origin(okay)
    tls = make_origin(over_tls(registries.git_server(root),
                               origins().sign("DNS:a.example")))
    text = f"""
        @pytest.mark.cassette
        def test_programs(tmp_path):
            def ask(*words):
                return subprocess.run(words, check=True, capture_output=True).stdout

            assert ask("curl", "-sf", "http://127.0.0.1:{plain.port}/") == b"ok"
            url = "https://a.example:{tls.port}/repo.git"
            one, two = tmp_path / "one", tmp_path / "two"
            ask("git", "clone", "-q", url, one)
            (one / "file").write_text("x" * 10_000)
            ask("git", "-C", one, "add", "file")
            ask("git", "-C", one, "commit", "-q", "-m", "one")
            ask("git", "-C", one, "push", "-q", "origin", "HEAD:main")
            ask("git", "clone", "-q", url, two)
            assert (two / "file").read_text() == "x" * 10_000
            print("found", ask("git", "-C", two, "rev-parse", "HEAD").decode())
    """
    first = run.passes(text, **COMMITTER)
    assert len(first) == 1
    plain.close()
    tls.close()
    assert run.passes(text, **COMMITTER) == first


# --- requests between the tests


def test_requests_that_outlive_their_test_are_not_of_the_next_one(run, make_origin):
    """The origin answers the first request only when it has the second one."""
    def script(conn: Connection) -> None:
        while request := conn.read_request():
            if request.start[1] == "/late":
                late.append(conn)
                (run.folder / "asked").touch()
                while len(late) < 2:
                    if not conn.fill():
                        return
                continue
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            for one in late:
                one.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

    late: list[Connection] = []
    origin = make_origin(script)
    base = f"http://127.0.0.1:{origin.port}"
    text = f"""
        import pathlib, threading, time

        threads = []

        @pytest.mark.cassette
        def test_first():
            threads.append(threading.Thread(target=get, args=["{base}/late"]))
            threads[0].start()
            while not pathlib.Path("{run.folder}/asked").exists():
                time.sleep(0.01)

        @pytest.mark.cassette
        def test_second(cutthrough):
            if threads[0].is_alive():
                assert get("{base}/second") == "ok"
            threads[0].join()
            print("found", *[one.url for one in cutthrough.requests])
    """
    assert run.passes(text) == [f"found {base}/second"]
    (name,) = run.cassette("test_inner.test_second")
    folder = run.folder / "cassettes/test_inner.test_second"
    held = json.loads((folder / name).read_text())
    assert held["request"]["path"] == "/second"


def test_what_is_not_recorded_is_a_warning_and_takes_no_time(run, make_origin):
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n"
                  b"Content-Range: bytes 0-0/2\r\n\r\no")

    origin = make_origin(script)
    status, said = run(f"""
        @pytest.mark.cassette
        def test_part():
            assert get("http://127.0.0.1:{origin.port}/") == "o"
    """)
    assert status == 0, said
    assert "test_inner.test_part: 1 of 1 answers are not recorded" in said
    assert "206 answers a client that has a part of it" in said
    assert not (run.folder / "cassettes/test_inner.test_part").exists()


def test_a_stream_that_was_not_read_to_its_end_is_in_its_cassette(run, make_origin):
    """It was not recorded, with a warning."""
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1")
        for _ in range(400):                 # until the proxy closes
            time.sleep(0.05)
            conn.send(b"\n\ndata: 2")

    origin = make_origin(script)
    text = f"""
        import time

        @pytest.mark.cassette
        def test_part(cutthrough):
            with urllib.request.urlopen("http://127.0.0.1:{origin.port}/") as answer:
                assert answer.read(7) == b"data: 1"
            end = time.monotonic() + 30
            while not cutthrough.requests:
                assert time.monotonic() < end
    """
    for _ in range(2):
        status, said = run(text)
        assert status == 0 and "not recorded" not in said, said
    assert len(origin.connections) == 1
    (name,) = run.cassette("test_inner.test_part")
    folder = run.folder / "cassettes/test_inner.test_part"
    held = json.loads((folder / name).read_text())
    assert held["response"]["is_cut"]


@pytest.mark.parametrize(("pause_s", "why"), [
    (0.05, ""), (60, "1 requests have not ended: their answers are not recorded")])
def test_a_stream_that_is_left_is_recorded_if_its_origin_sends_more(
        run, make_origin, pause_s, why):
    """The test ended before the proxy knew that the client had left."""
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(400):            # until the proxy closes
            conn.send(b"data: %d\n\n" % number)
            if gone.wait(pause_s):
                return

    gone = threading.Event()
    origin = make_origin(script)
    status, said = run(f"""
        import httpx

        @pytest.mark.cassette
        def test_part():
            with httpx.stream("GET", "http://127.0.0.1:{origin.port}/") as answer:
                for line in answer.iter_lines():
                    break
    """)
    gone.set()
    assert status == 0, said
    assert ("are not recorded" in said) == bool(why) and why in said, said
    assert (run.folder / "cassettes/test_inner.test_part").exists() == (not why)


def test_redaction_is_that_of_the_configuration_in_each_mode(run, make_origin):
    secret = os.urandom(12).hex()
    origin = make_origin(okay)
    (run.folder / "proxy.toml").write_text('recording_redact_fields = ["x-mine"]\n')
    for mode in ("once", "new_episodes", "all"):
        run.passes(f"""
            @pytest.mark.cassette("{mode}", mode="{mode}")
            def test_one():
                request = urllib.request.Request(
                    "http://127.0.0.1:{origin.port}/", headers={{"X-Mine": "{secret}"}})
                urllib.request.urlopen(request).read()
        """, "-o", "cutthrough_config=proxy.toml")
        assert len(run.cassette(mode)) == 1
        for path in (run.folder / "cassettes").rglob("*.json"):
            assert secret not in path.read_text(), path


def test_a_cassette_that_cannot_be_read_fails_its_test_and_no_other(run, make_origin):
    origin = make_origin(okay)
    text = f"""
        @pytest.mark.parametrize("n", range(3))
        @pytest.mark.cassette
        def test_one(n):
            get("http://127.0.0.1:{origin.port}/")
    """
    run.passes(text)
    (run.folder / "cassettes/test_inner.test_one-1/manifest.json").write_text("{")
    status, said = run(text)
    assert status == 1 and "2 passed, 1 error" in said, said
    assert "manifest.json" in said
