"""`python -m cutthrough` is the `cutthrough` command."""

import sys

from cutthrough.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
