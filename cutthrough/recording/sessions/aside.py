"""A worker's thread for files of one request: a disk may be slow, and another process
may have locked the file (R64).

Its work is done in order because it is a single thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREAD = ThreadPoolExecutor(1, "cutthrough-aside")


async def aside(work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work, *arguments)


def leave_aside(work: Callable[..., object], *arguments: object) -> None:
    """As `aside`, without waiting for it."""
    _THREAD.submit(work, *arguments)
