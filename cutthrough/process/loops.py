"""The event loop of a process: uvloop or asyncio's own."""

import asyncio
import importlib.util
from collections.abc import Callable

from cutthrough.config.config import ConfigError


def choose_loop(choice: str) -> str:
    """Returns the name of the event loop to use: uvloop or asyncio.

    Raises ConfigError if uvloop is configured and not installed.
    """
    if choice != "asyncio" and importlib.util.find_spec("uvloop") is not None:
        return "uvloop"
    if choice == "uvloop":
        raise ConfigError("", "loop", "uvloop is not installed")
    return "asyncio"


def make_loop(name: str) -> tuple[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Returns the loop's name with its version, and a function that makes one."""
    if name == "uvloop":
        import uvloop
        # uvloop sets __version__, but its stubs do not declare it
        version: str = uvloop.__version__    # type: ignore[attr-defined]
        return f"uvloop {version}", uvloop.new_event_loop
    return "asyncio", asyncio.SelectorEventLoop
