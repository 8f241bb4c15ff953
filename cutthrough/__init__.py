"""cutthrough: a forward proxy that decides in Python and moves the bytes in C.

Importing this package has no effect and loads nothing else. What it offers is loaded
when it is first named (PEP 562), so that `cutthrough.__version__` costs a millisecond
and does not need the compiled modules. Type checkers read __init__.pyi beside it.
"""

import importlib
import os

__all__ = ["Config", "ConfigError", "Decision", "Embedded", "Options", "Request",
           "__version__", "serve"]

# The one place of the version: pyproject.toml and the banner read it here. A manifest
# cannot: deploy/kubernetes/deployment.yaml names the image by it.
__version__ = "0.2.0.dev0"

_ROOM_OF = {
    "Config": "cutthrough.config.config",
    "ConfigError": "cutthrough.config.config",
    "Decision": "cutthrough.policy.decision_cache",
    "Embedded": "cutthrough.embed",
    "Options": "cutthrough.config.options",
    "Request": "cutthrough.generation.hook",
    "serve": "cutthrough.embed",
}


def __getattr__(name: str) -> object:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(room), name)
    except ModuleNotFoundError as error:
        unbuilt = why_unbuilt(error)
        if not unbuilt:
            raise
        raise ImportError(unbuilt, name=error.name) from None
    globals()[name] = value
    return value


def why_unbuilt(error: ModuleNotFoundError) -> str:
    """What to do if one of our compiled modules is missing; "" for any other module.

    Python looks into the working directory first, so that a source tree that is not
    built, or not for this Python, hides a package that is installed.
    """
    package, _, rest = (error.name or "").partition(".")
    tree = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    source = os.path.join(tree, package, *rest.split(".")) + ".pyx"
    if package != __name__ or not os.path.exists(source):
        return ""
    return (f"{tree} is a source tree that is not built for this Python, and hides a "
            "cutthrough that is installed: `make build` builds it; from another "
            "directory, or with `python -P`, the installed one runs")


def __dir__() -> list[str]:
    return sorted(__all__)
