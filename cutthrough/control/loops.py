"""Which event loop a process runs, and what makes it."""

import asyncio
import importlib.util
from collections.abc import Callable

from cutthrough.config import ConfigError


def choose_loop(choice: str) -> str:
    """Returns which event loop is to be used: uvloop or asyncio.

    Raises ConfigError where uvloop is asked for and not installed.
    """
    if choice != "asyncio" and importlib.util.find_spec("uvloop") is not None:
        return "uvloop"
    if choice == "uvloop":
        raise ConfigError("", "loop", "uvloop is not installed")
    return "asyncio"


def make_loop(name: str) -> tuple[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Returns the loop's name with its version, and what makes it."""
    if name == "uvloop":
        import uvloop
        # its stubs leave the attribute out
        version: str = uvloop.__version__    # type: ignore[attr-defined]
        return f"uvloop {version}", uvloop.new_event_loop
    return "asyncio", asyncio.SelectorEventLoop
