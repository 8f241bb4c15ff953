"""Children of a process, without a look at all processes of the machine."""

import contextlib
from pathlib import Path

import psutil


def children_of(pid: int) -> list[psutil.Process]:
    """As psutil has them, zombies too, by number; none if the process has ended.

    psutil reads the parent of each process that there is, which was two fifths of the
    CPU of tests/e2e in its own process. The kernel's list is that of proc(5).
    """
    children = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children += map(int, (thread / "children").read_text().split())
    processes = []
    for child in sorted(children):
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(child))
    return processes
