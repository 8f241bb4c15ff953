"""`python -m cutthrough` is the `cutthrough` command."""

from cutthrough.cli.entry import main

if __name__ == "__main__":
    main()
