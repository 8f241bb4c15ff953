"""cutthrough: a forward proxy that decides in Python and moves the bytes in C.

Importing this package has no effect and loads nothing else. What it offers is loaded
when it is first named (PEP 562), so that `cutthrough.__version__` costs a millisecond
and does not need the compiled modules.
"""

import importlib

__all__ = ["Config", "ConfigError", "Decision", "Request", "__version__", "serve"]

# The one place of the version: pyproject.toml and the banner read it here. A manifest
# cannot: deploy/kubernetes/deployment.yaml names the image by it.
__version__ = "0.2.0.dev0"

_ROOM_OF = {
    "Config": "cutthrough.config",
    "ConfigError": "cutthrough.config",
    "Decision": "cutthrough.policy.verdicts",
    "Request": "cutthrough.control.hook",
    "serve": "cutthrough.control.embed",
}


def __getattr__(name: str) -> object:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
