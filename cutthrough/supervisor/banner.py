"""The first line on standard error: addresses, workers, event loop."""

import contextlib
import os
import sys
from collections.abc import Iterable

import cutthrough
from cutthrough.config.config import Config
from cutthrough.config.settings import ANNOUNCED
from cutthrough.config.values import show_address, show_count
from cutthrough.log.stderr import announce, say
from cutthrough.net.tls.kernel_check import why_no_kernel_tls
from cutthrough.process.cpus import show_pinning


def why_no_own_records() -> str:
    """"", too, if no listener or way has TLS."""
    if "cutthrough.net.tls.context" not in sys.modules:
        return ""
    from cutthrough.net.tls import trial

    return trial.why_no_own_records()


def print_banner(bound: Iterable[tuple[str, int]], workers: int, loop: str,
                 config: Config) -> None:
    """Prints the line, with a warning if demonstration credentials are in force."""
    bound = list(bound)
    first = bound[0]
    addresses = " and ".join(map(show_address, bound))
    line = (f"cutthrough {cutthrough.__version__} listening on {addresses}, "
            f"{show_count(workers, 'worker')}, {loop}{show_pinning(config)}")
    if config.demonstration:
        line += ", demonstration credentials username:password"
    instead = ""
    if config.tls_records != "libssl" and (reason := why_no_own_records()):
        instead = f'tls_records = "{config.tls_records}" is as "libssl": {reason}'
    elif config.tls_records == "kernel" and (reason := why_no_kernel_tls()):
        instead = f'tls_records = "kernel" is as "own": {reason}'
    announce(line)
    if config.demonstration and os.isatty(2):
        announce(f"try: curl -x http://username:password@{show_address(first)} "
                 "http://example.com/   (cutthrough --help; Ctrl-C ends)")
    if instead:
        say(instead)


def announce_more() -> None:
    """Prints the text of the program that has started this one, once."""
    fd = os.environ.pop(ANNOUNCED, "")
    with contextlib.suppress(ValueError, OSError):
        with open(int(fd), errors="replace") as file:
            text = file.read()
        for line in text.splitlines():
            announce(line)
