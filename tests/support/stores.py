"""A proxy with two stores under load: sent, stored and counted requests."""

import contextlib
import itertools
import mmap
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from cutthrough.tape.ring import RING_BYTES, Ring
from tests.support.admin import Operator
from tests.support.wait import wait_until

POLICY = """
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    paths = ["/plain"]
    [[rules]]
    action = "allow"
    addresses = ["127.0.0.0/8"]
    capture = "full"
    recording = "record"
    {keys}
"""
FLOWS = "SELECT url FROM cutthrough.flows"
RECORDED = "SELECT url FROM cutthrough_recordings.recordings"
# At the end: the exchanges of a killed writer are counted as unwritten
LOST = re.compile(r"(\d+) (?:captured exchanges|recordings|exchanges) are lost: "
                  "(?!they waited in the memory)")
# Of requests: in the longest outage come no more than may wait
PACE_S = 0.002


class Site:
    """A proxy, its two stores, and a client that sends requests until `end`."""

    def __init__(self, folder, captures="file", recordings="file", server=None, *,
                 disk=None, on_disk=""):
        """`captures`, `recordings`: file or postgres. `disk`: a SmallDisk, which has
        the file of one of them: `on_disk`."""
        self.folder, self.server, self.disk = folder, server, disk
        self.on_disk = on_disk
        places = {name: disk.path if on_disk == name else folder
                  for name in ("captures", "recordings")}
        self.database = places["captures"] / "flows.db"
        self.session = places["recordings"] / "default.session"
        self.captures = captures == "postgres" and server.make()
        self.recordings = recordings == "postgres" and server.make()
        self.name = f"captures {captures}, recordings {recordings}"
        self.config = self.configuration(self.captures, self.recordings)
        self.sent, self.over = Counter(), threading.Event()
        self.refused = 0

    def configuration(self, captures, recordings, database=None):
        """`captures`, `recordings`: URLs, or none."""
        config = [f'recording_directory = "{self.session.parent}"',
                  'admin = "127.0.0.1:0"', "capture_count = 0"]
        for name, url in (("capture", captures), ("recording", recordings)):
            if url:
                path = self.folder / f"{url.rpartition('/')[2]}-{name}.url"
                path.write_text(url + "\n")
                path.chmod(0o600)
                config.append(f'{name}_url_file = "{path}"')
        if not captures:
            config.append(f'capture_file = "{database or self.database}"')
        return "\n".join(config) + "\n"

    def serve(self, start_policy, keys="", **more):
        if self.disk is not None:
            more["command"] = self.disk.command
        self.proxy = start_policy(POLICY.format(keys=keys), self.config, **more)
        port = re.search(r"admin listener on [\d.]+:(\d+)", self.proxy.stderr())
        self.operator = Operator(int(port[1]))

    def reload(self, config):
        self.proxy.reload(f'policy = "{self.proxy.policy}"\n{config}')

    def load(self, origin, dial):
        self.origin, self.dial = origin, dial
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self):
        client = self.dial(self.proxy)
        for number in itertools.count():
            if self.over.wait(PACE_S):
                return
            status = client.get(self.origin.url(f"/{number}")).status
            if status == 200:
                self.sent[f"/{number}"] += 1
            else:
                self.refused += 1
                client = self.dial(self.proxy)

    def pass_by(self, count=40):
        """Until so many more have been answered."""
        wanted = self.sent.total() + count
        wait_until(lambda: self.sent.total() >= wanted, self.proxy.stderr)

    def end(self):
        self.over.set()
        self.thread.join()

    def writer(self):
        def find():
            return [process for process in self.proxy.workers()
                    if any(".writer" in word for word in process.cmdline())]
        return wait_until(lambda: (processes := find()) and processes[0], "a writer")

    def stop_writer(self, suits: Callable[[int], bool]) -> tuple[psutil.Process, int]:
        """The writer, which stands still from a moment on that suits; and how many
        exchanges are in its memory alone then, because a store is late: the argument
        of `suits`."""
        def try_once() -> tuple[psutil.Process, int] | None:
            writer = self.writer()
            writer.suspend()
            wait_until(lambda: writer.status() == psutil.STATUS_STOPPED, "its stop")
            if suits(count := self.pending()):
                return writer, count
            writer.resume()
            return None

        return wait_until(try_once, self.proxy.stderr, longest_pause=0.02)

    def pending(self) -> int:
        for link in Path(f"/proc/{self.proxy.process.pid}/fd").iterdir():
            if "memfd:cutthrough-rings" in str(link.readlink()):
                with open(link, "r+b") as rings:
                    return Ring(mmap.mmap(rings.fileno(), RING_BYTES)).pending
        raise AssertionError("the supervisor has no rings")

    def counted(self):
        text = self.operator.ask("GET", "/metrics")[1]
        return {name: int(float(n)) for name, n in re.findall(
            r'^cutthrough_capture_exchanges_total\{result="(\w+)"\} (\S+)$',
            text, re.M)}

    def said(self, text):
        wait_until(lambda: text in self.proxy.stderr(), self.proxy.stderr)

    # Stored requests: by path, how often.

    def captured(self):
        if self.captures:
            return self._asked(FLOWS, self.captures)
        return self._stored("captures", "*.db", "flows")

    def recorded(self):
        if self.recordings:
            return self._asked(RECORDED, self.recordings)
        return self._stored("recordings", "*.session", "recordings")

    def _stored(self, what, pattern, table):
        if self.on_disk == what:
            return paths((url,) for url in self.disk.rows(pattern, table).elements())
        return sum((self._rows(path, table)
                    for path in self.folder.glob(pattern)), Counter())

    def _rows(self, path, table):
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as base:
            try:
                return paths(base.execute(f"SELECT url FROM {table}"))
            except sqlite3.DatabaseError:    # being made, or no store
                return Counter()

    def _asked(self, statement, url):
        try:
            return paths(self.server.ask(statement, url))
        except Exception:
            return Counter()

    def check(self, event, *, most_lost=0):
        """After the end: nothing twice, nothing lost that is not counted."""
        self.end()
        # Another answer may have been lost on its way to the client
        wait_until(lambda: self.counted()["captured"] + self.counted()["dropped"]
                   >= self.sent.total(), lambda: str(self.counted()))
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.captured() == self.recorded() == self.sent,
                       "all", 10 if most_lost else 60)
        now = self.counted()
        lost = now["dropped"] + now["unwritten"] + now["failed"]
        said = len(self.proxy.stderr())
        self.proxy.stop()
        lost += sum(map(int, LOST.findall(self.proxy.stderr()[said:])))
        captured, recorded = self.captured(), self.recorded()
        missing = [(self.sent - stored).total() for stored in (captured, recorded)]
        twice = [(stored - self.sent).total() for stored in (captured, recorded)]
        print(f"{event} | {self.name} | sent {self.sent.total()} | captured "
              f"{captured.total()} | recorded {recorded.total()} | missing "
              f"{missing[0]}, {missing[1]} | counted as lost {lost} | twice "
              f"{sum(twice)}")
        assert twice == [0, 0]
        assert sum(missing) <= lost, f"{missing}: {now} {self.proxy.stderr()}"
        assert lost <= most_lost, f"{now} {self.proxy.stderr()}"


def paths(rows):
    return Counter("/" + url.rpartition("/")[2] for (url,) in rows)
