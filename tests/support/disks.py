"""Disks of tests: a small one that may be full, and a slow one."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.support.preload import build_preload

# In a namespace of its own, until its input ends
_MOUNT = ('mount -t tmpfs -o size="$2",mode=755 none "$1" && echo ready && exec cat')
# A program in the namespace of the process that is its first argument
_ENTER = """
import ctypes, os, runpy, sys
where = os.getcwd()
fd = os.open(f"/proc/{sys.argv.pop(1)}/ns/mnt", os.O_RDONLY)
if ctypes.CDLL(None, use_errno=True).setns(fd, 0x20000):
    raise OSError(ctypes.get_errno(), "setns")
os.close(fd)
os.chdir(where)
sys.argv[0] = "cutthrough"
runpy.run_module("cutthrough", run_name="__main__", alter_sys=True)
"""
_ROWS = """
import contextlib, glob, json, sqlite3, sys
found = []
for path in glob.glob(sys.argv[1]):
    with contextlib.suppress(sqlite3.Error), contextlib.closing(
            sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as base:
        found += [url for (url,) in base.execute(f"SELECT url FROM {sys.argv[2]}")]
print(json.dumps(found))
"""
_FILL = """
import contextlib, sys
with open(sys.argv[1], "wb", buffering=0) as file, contextlib.suppress(OSError):
    while file.write(bytes(4096)):
        pass
"""
# Each write and sync of a file of SQLite takes SLOW_US, if its path has SLOW_PART,
# while the file SLOW exists
_SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_for_disk(int fd) {
    char link[32], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || access(getenv("SLOW"), F_OK)) return;
    path[n] = 0;
    if (strstr(path, getenv("SLOW_PART"))) usleep(atoi(getenv("SLOW_US")));
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    wait_for_disk(fd);
    return real(fd, data, n, at);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk(fd);
    return real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    wait_for_disk(fd);
    return real(fd);
}
"""


def may_mount() -> bool:
    return not subprocess.run(["unshare", "-m", "true"], capture_output=True,
                              check=False).returncode


class SmallDisk:
    """A disk of `size`, as mount(8) has it, at `path`, until `close`."""

    def __init__(self, path: Path, size: str) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self._ballast = path / "ballast"
        self._holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _MOUNT, "sh", path, size],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    @property
    def command(self) -> tuple[str, ...]:
        """The command of a proxy that has this disk."""
        return "-c", _ENTER, str(self._holder.pid), "serve"

    def enter(self, *command: str | Path) -> list[str]:
        """This command, with this disk."""
        return ["nsenter", "-t", str(self._holder.pid), "-m", "--", *map(str, command)]

    def run(self, *command: str | Path) -> None:
        subprocess.run(self.enter(*command), check=True)

    def rows(self, pattern: str, table: str) -> Counter[str]:
        """Returns the URLs in files with these names, each with how often it is there.
        """
        done = subprocess.run(
            self.enter(sys.executable, "-c", _ROWS, self.path / pattern, table),
            check=True, capture_output=True, text=True)
        return Counter(json.loads(done.stdout))

    def fill(self) -> None:
        self.run(sys.executable, "-c", _FILL, self._ballast)

    def free(self) -> None:
        self.run("rm", self._ballast)

    def close(self) -> None:
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.stdout.close()
        self._holder.wait(20)


class SlowDisk:
    """The environment of a program for which files are slow, and whether they are."""

    def __init__(self, directory: Path, part: str, seconds: float) -> None:
        """`part`: of the paths of those files. Skips without a compiler."""
        self._file = directory / "slow"
        self.env = {**build_preload(directory, _SLOW), "SLOW": str(self._file),
                    "SLOW_PART": part, "SLOW_US": str(int(seconds * 1e6))}

    def begin(self) -> None:
        self._file.touch()

    def end(self) -> None:
        self._file.unlink(missing_ok=True)
