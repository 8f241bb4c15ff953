"""Modules that a process of this program need not load."""

import importlib
import sys


def import_msgspec() -> None:
    """Imports msgspec without typing_extensions, which takes 3 ms: msgspec prefers its
    get_type_hints, Required and NotRequired to the same of `typing`. Not in a process
    that is another program's, which may have loaded them already."""
    name = "typing_extensions"
    if name in sys.modules:
        return
    # Python's way to say that a module cannot be imported; its type has modules alone
    sys.modules[name] = None                 # type: ignore[assignment]
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules[name]
