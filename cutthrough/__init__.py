"""cutthrough: a forward proxy that decides in Python and moves the bytes in C.

Importing this package has no effect and loads nothing else. Each public name is loaded
at its first use (PEP 562), so that `cutthrough.__version__` costs a millisecond and
does not need the compiled modules. Type checkers read __init__.pyi.
"""

import importlib
import importlib.machinery
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Config", "ConfigError", "Connection", "Decision", "Embedded", "Exchange",
           "Flow", "Headers", "Options", "Request", "WebSocketMessage", "__version__",
           "serve"]

# The version is defined here: pyproject.toml and the banner read it. A manifest cannot:
# deploy/kubernetes/deployment.yaml repeats it in the image's name.
__version__ = "0.2.0"

_ROOM_OF = {
    "Config": "cutthrough.config.config",
    "ConfigError": "cutthrough.config.config",
    "Connection": "cutthrough.activity.events",
    "Decision": "cutthrough.policy.decision_cache",
    "Embedded": "cutthrough.embed",
    "Exchange": "cutthrough.activity.events",
    "Flow": "cutthrough.filters.flow",
    "Headers": "cutthrough.filters.flow",
    "Options": "cutthrough.config.options",
    "Request": "cutthrough.generation.hook",
    "WebSocketMessage": "cutthrough.filters.flow",
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


class Compiled:
    """Finds and loads compiled modules, which are in few shared objects, `_modules` and
    others: setup.py says why. It is asked after Python's own finders."""

    groups: dict[str, str] = {}              # of each module

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(f"{__name__}.") or "._modules" in name:
            return None
        if not cls.groups:
            try:
                cls.groups = importlib.import_module(f"{__name__}._modules").list()
            except ModuleNotFoundError:      # not built: the caller names its module
                return None
        group = cls.groups.get(name)
        if group is None:
            return None
        first = sys.modules[f"{__name__}._modules"].__file__
        assert first is not None
        folder, file = os.path.split(first)
        _, dot, suffix = file.partition(".")
        origin = os.path.join(folder, group.rpartition(".")[2] + dot + suffix)
        # Typed as an instance; a class with these functions is a loader as well
        spec = importlib.machinery.ModuleSpec(
            name, cls, origin=origin, loader_state=group)   # type: ignore[arg-type]
        spec.has_location = True
        return spec

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> "ModuleType":
        module: ModuleType = importlib.import_module(spec.loader_state).create(spec)
        return module

    @staticmethod
    def exec_module(module: "ModuleType") -> None:
        sys.modules[f"{__name__}._modules"].execute(module)


sys.meta_path.append(Compiled)


def why_unbuilt(error: ModuleNotFoundError) -> str:
    """The remedy if a compiled module of this package is missing; "" for any other.

    Python searches the working directory first, so a source tree that is not built, or
    built for another Python, hides an installed package.
    """
    package, _, rest = (error.name or "").partition(".")
    tree = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    source = os.path.join(tree, package, *rest.split(".")) + ".pyx"
    if package != __name__ or not os.path.exists(source):
        return ""
    return (f"{tree} is a source tree that is not built for this Python, and it hides "
            "the installed cutthrough: build it with `make build`, or run the "
            "installed one from another directory or with `python -P`")


def __dir__() -> list[str]:
    return sorted(__all__)
