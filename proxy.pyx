# cython: language_level=3
"""The entry point of `python -c "import proxy" [flags]`, which serves until stopped.

Only that command imports this module. All other code imports `cutthrough`, which has no
side effect. After a clean stop the import returns, so that the interpreter exits with 0.
"""

import sys

from cutthrough.cli.entry import demonstrate

cdef int status = demonstrate(sys.argv[1:])
if status:
    raise SystemExit(status)
