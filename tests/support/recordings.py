"""A proxy that records and replays, its folder, and its recordings."""


import pytest

from cutthrough.recording.model.recording import Chunk, Recording, Request, Response
from cutthrough.recording.sessions.directory import Sessions
from tests.support.verbs import run_apart
from tests.support.wait import wait_until

RULE = """
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    recording = "{mode}"
    {keys}
"""


@pytest.fixture
def folder(directory):
    return directory("sessions")


@pytest.fixture
def start(start_policy, folder):
    def run(mode="replay", keys="", config="", **more):
        return start_policy(RULE.format(mode=mode, keys=keys),
                            f'recording_directory = "{folder}"\n{config}', **more)
    return run


def made(url_port, path="/a", body=b"hello", scheme="http", host="127.0.0.1",
         method="GET", sent=b"", query="", **more):
    more.setdefault("fields", (("Content-Type", "text/plain"),
                               ("Content-Length", str(len(body)))))
    return Recording(
        request=Request(method=method, scheme=scheme, host=host, port=url_port,
                        path=path, query=query, body=sent),
        response=Response(status=more.pop("status", 200), reason="Fine",
                          chunks=(Chunk(0, body),) if body else (), **more))


def run_verb(folder, *words):
    done = run_apart(*words, CUTTHROUGH_RECORDING_DIRECTORY=str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def fill(folder, *recordings, name="default"):
    session = Sessions(folder).create(name)
    session.add(recordings)
    session.close()


def recorded(folder, name="default"):
    """How many are in the session."""
    sessions = Sessions(folder)
    if name not in sessions.names():
        return 0
    session = sessions.open(name)
    try:
        return len(session)
    finally:
        session.close()


def without_secrets(head):
    """And without the date, which is the proxy's if the origin sends none, and a
    refusal's number."""
    return [b"Set-Cookie" if line.startswith(b"Set-Cookie") else line
            for line in head.split(b"\r\n\r\n")[0].split(b"\r\n")
            if not line.startswith((b"Date", b"X-Request-Id"))]


def writer(proxy):
    def find():
        return [process for process in proxy.workers()
                if "cutthrough.recording.record.writer" in process.cmdline()]
    return wait_until(lambda: (processes := find()) and processes[0], "a writer")


def tell_who(conn):
    """The answer has the request's field X-Session."""
    while True:
        body = (conn.read_request().get("X-Session") or "none").encode()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
                  % (len(body), body))
