"""The PostgreSQL of captured requests, and that of recorded sessions: whether it
answers, and has our tables.

It is asked only if `capture_url` or `recording_url` is set. Its absence is no failure,
because requests pass: records are dropped and counted when they do not fit into the
rings, and copies of sessions are replayed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

from cutthrough.doctor.finding import Case, Finding
from cutthrough.doctor.redis import is_near
from cutthrough.recording.sessions.places import open_sessions
from cutthrough.storage.store import NoStore, StoreAway, StoreError
from cutthrough.storage.stores import open_reader

# A batch of rows takes five answers, and gathers for 20 ms, or 50
SLOW_S = 0.02


def check_database(case: Case) -> Iterator[Finding]:
    config = case.config
    if url := config.capture_url:
        yield from check_url("capture_url", url, lambda: time_reader(url), "until then "
                             "captured requests beyond the rings (8 to 32 MiB a "
                             "worker) are dropped and counted")
    directory, shared = config.recording_directory, config.recording_url
    if directory and shared:
        yield from check_url(
            "recording_url", shared, lambda: time_sessions(directory, shared), "until "
            "then copies in recording_directory are replayed, and recordings beyond "
            "10 000 are lost and counted")


def time_reader(url: str) -> float:
    """The seconds of one answer. Raises StoreError."""
    with closing(open_reader(url)) as reader:
        began = time.monotonic()
        reader.newest()
        return time.monotonic() - began


def time_sessions(directory: str, url: str) -> float:
    """The seconds of one answer. Raises StoreError and OSError."""
    with closing(open_sessions(directory, url, may_make=False)) as sessions:
        for name in sessions.names()[:1]:
            sessions.open(name)
        began = time.monotonic()
        sessions.names()
        return time.monotonic() - began


def check_url(name: str, url: str, ask: Callable[[], float], meanwhile: str
              ) -> Iterator[Finding]:
    try:
        seconds = ask()
        slow, note = seconds > SLOW_S, f" in {seconds * 1000:.0f} ms"
    except NoStore:
        slow, note = False, "; the tables are made when a rule captures"
        if name == "recording_url":
            note = "; the tables are made when a rule records"
    except StoreAway as error:
        yield Finding(name, "warn", str(error), "an answer", f"{meanwhile}: check "
                      f"{name}, the firewall, and pg_hba.conf of the server")
        return
    except (StoreError, OSError) as error:
        yield Finding(name, "fail", str(error))
        return
    yield Finding(name, "note" if slow else "ok", f"PostgreSQL answers{note}",
                  f"{SLOW_S * 1000:g} ms", "use a nearer server: each batch of rows "
                  "waits for five answers" if slow else "")
    mode = parse_qs(urlsplit(url).query).get("sslmode", ["prefer"])[-1]
    if mode != "verify-full" and not is_local(url):
        yield Finding(f"{name} transport", "note", f"sslmode={mode}",
                      "sslmode=verify-full", "others on the network may read the "
                      "password and the requests, or answer in the server's place")


def is_local(url: str) -> bool:
    """Whether the URL's host is this host: a socket's directory is one, too."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    if not host or host.lower().startswith("%2f"):
        named = parse_qs(urlsplit(url).query).get("host", ["/"])[-1]
        return bool(host) or named.startswith("/")
    return is_near(url)
