"""`python -m cutthrough` is the `cutthrough` command."""

import sys

from cutthrough.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
