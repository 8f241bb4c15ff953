"""A page of shared memory that outlives its workers, and its program in an upgrade."""

import contextlib
import mmap
import os
from collections.abc import Callable
from typing import TypeVar

from cutthrough.log.stderr import say

View = TypeVar("View")


def open_page(variable: str, name: str, view: Callable[[mmap.mmap], View],
              create: Callable[[int], mmap.mmap], loss: str) -> tuple[int, View]:
    """Takes the previous program's page, or makes one; returns its descriptor and view.

    `variable`: of the environment; it has the descriptor's number, and is removed.
    `name`: of a new page. `loss`: reported if the page has another layout, because the
    previous program is of another version. Raises OSError.
    """
    text = os.environ.pop(variable, "")
    if text.isdigit():
        fd = int(text)
        try:
            os.set_inheritable(fd, False)
            return fd, view(mmap.mmap(fd, 0))
        except (OSError, ValueError):
            say(loss)
            with contextlib.suppress(OSError):      # the number may be of no descriptor
                os.close(fd)
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    return fd, view(create(fd))
