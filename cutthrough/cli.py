"""The command line: `cutthrough serve | check | config | version`.

Exit status: 0 after a clean stop, 2 for a configuration that cannot be used, 1 for
anything else. Errors are one line on standard error.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import cutthrough
from cutthrough.config import (
    Config,
    ConfigError,
    Settings,
    add_flags,
    build,
    gather,
    render,
)

# What `import proxy` forwards requests in origin form to, unless told otherwise: the
# web server of this machine, so that the usual benchmark command works as it stands.
DEMONSTRATION_ORIGIN = "http://127.0.0.1:80"

VERBS = {
    "serve": "run the proxy until it is told to stop",
    "check": "validate the configuration and exit: 0, or 2 with the reason",
    "config": "print the configuration in force as TOML, without secrets",
    "version": "print the version",
}
SOURCES = ("Every option is also a variable, CUTTHROUGH_HEAD_TIMEOUT, and a key of the "
           "file, head_timeout. A flag goes before the variable, that before the file.")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cutthrough", allow_abbrev=False, description="A forward proxy.")
    parser.add_argument("--version", action="version", version=version())
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, text in VERBS.items():
        # No abbreviations: a new option must not make an old command line ambiguous.
        verb = verbs.add_parser(name, help=text, description=text, epilog=SOURCES,
                                allow_abbrev=False)
        if name != "version":
            verb.add_argument("-c", "--config", metavar="FILE", dest="config_file",
                              help="read the options in this TOML file")
            add_flags(verb)
    return parser


def version() -> str:
    return f"cutthrough {cutthrough.__version__}"


def settings_of(given: argparse.Namespace) -> Settings:
    file = given.config_file or os.environ.get("CUTTHROUGH_CONFIG") or None
    return gather(vars(given), os.environ, file)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = make_parser()
    given = parser.parse_args(argv)
    if given.verb is None:
        parser.print_help(sys.stderr)
        return 2
    if given.verb == "version":
        print(version())
        return 0
    try:
        settings = settings_of(given)
        if given.verb == "config":
            print(render(settings), end="")
        elif given.verb == "check":
            build(settings)
            print("the configuration is valid")
        else:
            return run(build(settings))
    except ConfigError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 2
    return 0


def demonstrate(argv: Sequence[str]) -> int:
    """Serves for `python -c "import proxy"`; returns the exit status.

    As `cutthrough serve` with these flags, but for `origin`, which has a default here.
    """
    given = make_parser().parse_args(["serve", *argv])
    try:
        settings = settings_of(given)
        if settings["origin"].source == "default":
            settings["origin"] = settings["origin"]._replace(value=DEMONSTRATION_ORIGIN)
        return run(build(settings))
    except ConfigError as error:
        print(f"cutthrough: {error}", file=sys.stderr)
        return 2


def run(config: Config) -> int:
    # Here, so that the other verbs do without asyncio and the compiled modules.
    from cutthrough.control.supervisor import run as run_supervisor

    try:
        return run_supervisor(config)
    except OSError as error:
        print(f"cutthrough: {error.filename or 'cannot start'}: "
              f"{error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:                # before the supervisor caught signals
        pass
    return 1
