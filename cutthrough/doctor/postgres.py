"""The PostgreSQL of captured requests: whether it answers, and has our tables.

It is checked only if `capture_url` is set. Its absence is no failure: requests pass,
and what does not fit into the rings is dropped and counted.
"""

import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from cutthrough.capture.store import NoStore, StoreAway, StoreError
from cutthrough.capture.stores import open_reader
from cutthrough.doctor.finding import Case, Finding
from cutthrough.doctor.redis import is_near

NAME = "capture_url"
# A batch of rows takes five answers, and gathers for 20 ms
SLOW_S = 0.02


def check_database(case: Case) -> Iterator[Finding]:
    url = case.config.capture_url
    if not url:
        return
    try:
        reader = open_reader(url)
        began = time.monotonic()
        reader.newest()
        seconds = time.monotonic() - began
        reader.close()
        slow, note = seconds > SLOW_S, f" in {seconds * 1000:.0f} ms"
    except NoStore:
        slow, note = False, "; the tables are made when a rule captures"
    except StoreAway as error:
        yield Finding(NAME, "warn", str(error), "an answer", "until then captured "
                      "requests beyond 8 MiB a worker are dropped and counted: check "
                      "capture_url, the firewall, and pg_hba.conf of the server")
        return
    except StoreError as error:
        yield Finding(NAME, "fail", str(error))
        return
    yield Finding(NAME, "note" if slow else "ok", f"PostgreSQL answers{note}",
                  f"{SLOW_S * 1000:g} ms", "use a nearer server: each batch of rows "
                  "waits for five answers" if slow else "")
    mode = parse_qs(urlsplit(url).query).get("sslmode", ["prefer"])[-1]
    if mode != "verify-full" and not is_local(url):
        yield Finding(f"{NAME} transport", "note", f"sslmode={mode}",
                      "sslmode=verify-full", "others on the network may read the "
                      "password and the requests, or answer in the server's place")


def is_local(url: str) -> bool:
    """Whether the URL's host is this host: a socket's directory is one, too."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    if not host or host.lower().startswith("%2f"):
        named = parse_qs(urlsplit(url).query).get("host", ["/"])[-1]
        return bool(host) or named.startswith("/")
    return is_near(url)
