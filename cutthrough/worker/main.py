"""The program of a worker process: `python -m cutthrough.worker.main FD`.

`cutthrough.worker.process` is the process; this module loads it, without Python's
collector: modules are no garbage.
"""

import gc
import sys

import cutthrough
from cutthrough.process.lean import import_msgspec
from cutthrough.process.leaving import leave_at_once


def main(fd: int) -> int:
    """Runs the worker with the channel at descriptor `fd`; returns its exit status."""
    gc.disable()                             # until everything is loaded
    import_msgspec()
    try:
        from cutthrough.worker.process import run
    except ModuleNotFoundError as error:
        if not cutthrough.why_unbuilt(error):
            raise
        return 1                             # the supervisor says so
    return run(fd)


if __name__ == "__main__":
    try:
        status = main(int(sys.argv[1]))
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    leave_at_once(status)
