# cython: language_level=3
"""The front door: `python -c "import proxy" [flags]` serves until it is told to stop.

Only that command imports this module; everything else imports `cutthrough`, which does
nothing by itself. After a clean stop the import ends, so that the interpreter exits 0.
"""

import sys

from cutthrough.cli import demonstrate

cdef int status = demonstrate(sys.argv[1:])
if status:
    raise SystemExit(status)
