"""Do imported recordings answer as the files say? `--replay N` of the import campaign.

    files ─> recordings import ─> a session ─> a proxy in replay <─ httpx
      └────────────────── read_recordings: the expected answers ───────┘

One request of each kind is sent, as it stands in the file: the first of its method, URL
and body. Status, fields and the octets of the body are compared with those of the file.
Where a secret was redacted at the import, the placeholder stands for it.
"""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx

from cutthrough.exchange.formats.imported import NotImported
from cutthrough.recording.formats.files import read_recordings
from cutthrough.recording.model.recording import Recording

PROXY = [sys.executable, "-m", "cutthrough"]
# Fields of the connection, of the proxy, and of the time of the answer
ITS_OWN = {"connection", "via", "date", "keep-alive", "transfer-encoding", "age",
           "content-length", "proxy-connection", "te", "trailer", "upgrade",
           "proxy-authenticate"}
POLICY = """
[[rules]]
action = "allow"
tls = "intercept"
recording = "replay"
"""
_PLACEHOLDER = re.compile(rb"\[redacted(?::[0-9a-f]{16})?\]")


def run(paths: list[Path], most: int) -> int:
    """Prints how many of `most` answers are as in their files. 1: less than all."""
    chosen, files = choose(paths, most)
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory),
                                                             files) as (proxy, ca):
        outcomes = Counter[str]()
        context = ssl.create_default_context(cafile=str(ca))
        # The transport, because a client follows redirections and keeps cookies
        with httpx.HTTPTransport(proxy=httpx.Proxy(proxy), verify=context) as client:
            for recording in chosen:
                reason = difference(client, recording)
                outcomes[reason or "equal"] += 1
                if reason not in ("", "a placeholder"):
                    request = recording.request
                    print(f"    {request.method} {request.url:.100}: {reason}")
    print(f"replayed: {len(chosen)} of {len(files)} files:",
          ", ".join(f"{n} {what}" for what, n in outcomes.most_common()))
    return int(outcomes["equal"] + outcomes["a placeholder"] < len(chosen))


def choose(paths: list[Path], most: int) -> tuple[list[Recording], list[Path]]:
    """The first recording of each request, and the files that have them."""
    seen: set[tuple[str, str, bytes]] = set()
    chosen: list[Recording] = []
    files: list[Path] = []
    for path in paths:
        with contextlib.suppress(NotImported, OSError):
            items = [recording for recording in read_recordings(path).items
                     if isinstance(recording, Recording)]
            if not items:
                continue
            files.append(path)
            for recording in items:
                request = recording.request
                key = (request.method, request.url, request.body)
                if key not in seen and is_plain(recording) and len(chosen) < most:
                    chosen.append(recording)
                seen.add(key)
        if len(chosen) == most:
            break
    return chosen, files


def is_plain(recording: Recording) -> bool:
    """Whether httpx can ask for it, and gets it without a condition."""
    status = recording.response.status
    return status >= 200 and status not in (206, 304) and (
        not recording.patterns and recording.request.authority != "")


@contextlib.contextmanager
def serving(directory: Path, files: list[Path]) -> Iterator[tuple[str, Path]]:
    sessions, ca = directory / "sessions", directory / "ca"
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("CUTTHROUGH_")}
    subprocess.run([*PROXY, "ca", "init", "--dir", str(ca)], check=True,
                   stdout=subprocess.DEVNULL, env=environment)
    subprocess.run([*PROXY, "recordings", "import", "--directory", str(sessions),
                    "default", *map(str, files)], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, env=environment, check=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (directory / "policy.toml").write_text(POLICY)
    (directory / "proxy.toml").write_text(
        f'listen = ["127.0.0.1:{port}"]\nworkers = 1\nuser = "u"\npassword = "p"\n'
        f'connect_ports = "any"\nintercept_ca = "{ca}"\n'
        f'policy = "{directory}/policy.toml"\nrecording_directory = "{sessions}"\n')
    process = subprocess.Popen(
        [*PROXY, "serve", "-c", str(directory / "proxy.toml")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.stderr is not None
        while b"listening on" not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit("the proxy has ended")
        yield f"http://u:p@127.0.0.1:{port}", ca / "ca.pem"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def difference(client: httpx.HTTPTransport, recording: Recording) -> str:
    """"": none."""
    request = recording.request
    fields = [(name, value) for name, value in request.fields
              if name.lower() not in ("content-length", "transfer-encoding")]
    try:
        response = client.handle_request(httpx.Request(
            request.method, request.url, content=request.body or None, headers=[
                (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
                for name, value in fields],
            extensions={"timeout": dict.fromkeys(
                ("connect", "read", "write", "pool"), 20)}))
        body = b"".join(response.stream)
        response.close()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:80]
    if response.status_code != recording.response.status:
        return f"status {response.status_code}, not {recording.response.status}"
    theirs = comparable(recording.response.fields)
    ours = comparable(response.headers.multi_items())
    whole = recording.response.body if request.method != "HEAD" else b""
    if body == whole and ours == theirs:
        return ""
    if like(body, whole) and all(any(
            name == key and like(value.encode(), whole_value.encode())
            for key, whole_value in theirs) for name, value in ours):
        return "a placeholder"
    return "another body" if body != whole else (
        f"other fields: {sorted(theirs ^ ours)}"[:150])


def comparable(fields: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(name.lower(), value.strip()) for name, value in fields
            if name.lower() not in ITS_OWN}


def like(ours: bytes, theirs: bytes) -> bool:
    """Whether the octets beside the placeholders are the file's."""
    parts = _PLACEHOLDER.split(ours)
    at = 0
    for part in parts:
        index = theirs.find(part, at)
        if index < 0:
            return False
        at = index + len(part)
    return True
