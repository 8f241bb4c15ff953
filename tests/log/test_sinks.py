"""A disk that is full: half a line may be written, and none is mixed with another."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutthrough.log.sinks import FileSink
from tests.doors.log import offer
from tests.support.preload import build_preload
from tests.support.proxy import ROOT

# The limit of a file's size stands for a disk that is full. It is the process's, so the
# process is one of its own; SIGXFSZ is ignored by Python.
FILL = """
import os, resource, sys
from cutthrough.log.sinks import FileSink
from tests.doors.log import offer

path, line = sys.argv[1], b"0123456789abcdef" * 6 + b"abc\\n"
if sys.argv[2] == "shared":
    path = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
sink = FileSink(path)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (450, hard))
batch = line * 10
taken = [offer(sink, batch)]
taken.append(offer(sink, batch[taken[0]:]))
print(taken, sink.error_text)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
left = batch[sum(taken):]
while left:
    left = left[offer(sink, left):]
print(sink.error_text)
"""



# Another worker writes, before the writer of the half finds room
TWO = """
import resource, sys
from cutthrough.log.sinks import FileSink
from tests.doors.log import offer

path, line = sys.argv[1], b"0123456789abcdef" * 6 + b"abc\\n"
one, other = FileSink(path), FileSink(path)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (150, hard))
print(offer(one, line * 2))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(offer(other, line), offer(one, line))
"""

LINE = "0123456789abcdef" * 6 + "abc"


def run(script: str, *args: str, **more: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script, *args], cwd=ROOT,
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("kind", "left"), [("own", 49), ("shared", 50)])
def test_a_line_that_was_half_written_is_written_again(
        tmp_path: Path, kind: str, left: int) -> None:
    path = tmp_path / "log"
    assert run(FILL, str(path), kind) == [
        "[400, 0] File too large (ulimit -f: 450 bytes)", "None"]
    text = path.read_text()
    assert text.endswith("\n")
    whole, half = text.splitlines()[:4], text.splitlines()[4]
    assert whole == [LINE] * 4 and LINE.startswith(half) and len(half) == left
    assert text.splitlines()[5:] == [LINE] * 6


def test_a_half_line_is_not_the_begin_of_another_worker_s(tmp_path: Path) -> None:
    """Only the writer of the half knew of it: with two workers on one file the next
    line of the other worker went on at the end of the half."""
    path = tmp_path / "log"
    assert run(TWO, str(path)) == ["100", "100 100"]
    assert path.read_text().splitlines() == [LINE, LINE[:49], LINE, LINE]


HEADED = """
import resource, sys
from cutthrough.log.sinks import FileSink
from tests.doors.log import offer

path, most = sys.argv[1], int(sys.argv[2])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
sink = FileSink(path, heading=b"time,client\\n")
assert offer(sink, b"1,a\\n") == 0
assert sink.error_text == f"File too large (ulimit -f: {most} bytes)"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert offer(sink, b"1,a\\n") == 4 and sink.error_text is None
"""


@pytest.mark.parametrize("most", [0, 5])
def test_a_file_that_is_made_on_a_full_disk_has_its_heading_later(
        tmp_path: Path, most: int) -> None:
    """It never had one, or half of it in front of the first line."""
    path = tmp_path / "access.csv"
    subprocess.run([sys.executable, "-c", HEADED, path, str(most)], check=True,
                   cwd=ROOT)
    *half, heading, line = path.read_text().splitlines()
    assert (heading, line) == ("time,client", "1,a")
    assert len(half) == (most > 0)


def test_an_emptied_file_has_its_heading_again(tmp_path: Path) -> None:
    """logrotate's `copytruncate` left a file without one."""
    path = tmp_path / "access.csv"
    sinks = [FileSink(str(path), heading=b"time,client\n") for _ in range(2)]
    for _ in range(2):
        for sink in sinks:
            assert offer(sink, b"1,a\n") == 4
        assert path.read_text() == "time,client\n1,a\n1,a\n"
        os.truncate(path, 0)
    for sink in sinks:
        sink.close()


def test_a_line_waits_for_the_heading_that_another_worker_writes(tmp_path: Path
                                                                 ) -> None:
    """It came before the heading, or in its place."""
    path = tmp_path / "access.csv"
    with path.open("ab", buffering=0) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        sink = FileSink(str(path), heading=b"time,client\n")
        assert offer(sink, b"1,a\n") == 0
        other.write(b"time,client\n")
        assert offer(sink, b"1,a\n") == 4
    sink.close()
    assert path.read_text() == "time,client\n1,a\n"


def test_a_lock_of_anybody_else_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "access.csv"
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        sink = FileSink(str(path), heading=b"time,client\n")
        assert [offer(sink, b"1,a\n") for _ in range(3)][-1] == 4
    sink.close()


# ESTALE of NFS: another host has removed the file, or the server has lost it
STALE = """
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static int calls;
ssize_t writev(int fd, const struct iovec *pieces, int n) {
    if (!calls++) { errno = ESTALE; return -1; }
    return syscall(SYS_writev, fd, pieces, n);
}
"""

LOST = """
import os, sys
from cutthrough.log.sinks import FileSink
from tests.doors.log import offer

path = sys.argv[1]
sink = FileSink(path)
print(offer(sink, b"a line\\n"), sink.error_text)
os.rename(path, f"{path}.lost")
print(offer(sink, b"a line\\n"), sink.error_text)
"""


def test_a_file_that_its_server_has_lost_is_opened_again(tmp_path: Path) -> None:
    """No line was written until the log was reopened by hand."""
    path = tmp_path / "log"
    assert run(LOST, str(path), **build_preload(tmp_path, STALE)) == [
        "0 Stale file handle", "7 None"]
    assert path.read_text() == "a line\n"
