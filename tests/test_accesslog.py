"""A disk that is full: half a line may be written, and none is mixed with another."""

import subprocess
import sys
from pathlib import Path

from tests.support.proxy import ROOT

# The limit of a file's size stands for a disk that is full. It is the process's, so the
# process is one of its own; SIGXFSZ is ignored by Python.
FILL = """
import resource, sys
from cutthrough.control.outlets import FileOutlet

path, line = sys.argv[1], b"0123456789abcdef" * 6 + b"abc\\n"
outlet = FileOutlet(path)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (450, hard))
batch = line * 10
taken = [outlet.offer(batch)]
taken.append(outlet.offer(batch[taken[0]:]))
print(taken, outlet.trouble)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
left = batch[sum(taken):]
while left:
    left = left[outlet.offer(left):]
print(outlet.trouble)
"""


def test_a_line_that_was_half_written_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", FILL, str(path)], cwd=ROOT,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[400, 0] File too large", "None"]
    line = "0123456789abcdef" * 6 + "abc"
    text = path.read_text()
    assert text.endswith("\n")
    whole, half = text.splitlines()[:4], text.splitlines()[4]
    assert whole == [line] * 4 and line.startswith(half) and len(half) == 50
    assert text.splitlines()[5:] == [line] * 6
