"""The operator's Python code: modules are run as they were read with the generation."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from cutthrough.policy.source import Code

# The code of the modules that were run here, by name
_executed: dict[str, Code] = {}


def import_code(name: str, code: Code | None) -> ModuleType:
    """Returns the module, run again if its code has changed since the last time.

    A module that other code has imported is returned as it is. Any exception of the
    module is passed on, and the previous module then stays in place.
    """
    before = sys.modules.get(name)
    if code is None or (before is not None and _executed.get(name) in (None, code)):
        return importlib.import_module(name)
    package, _, leaf = name.rpartition(".")
    if package:
        importlib.import_module(package)
    spec = importlib.util.spec_from_file_location(name, code.path)
    assert spec is not None                 # its name ends in .py: see load_code
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the loader: it would read the file, which may have changed by now, or
        # its compiled form, which counts as fresh if mtime's second and length match
        exec(compile(code.text, code.path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    _executed[name] = code
    if package:
        setattr(sys.modules[package], leaf, module)
    return module


def code_in_force() -> dict[str, tuple[Code, ModuleType]]:
    """The modules that were run here, by name: for `restore_code`."""
    return {name: (code, sys.modules[name]) for name, code in _executed.items()
            if name in sys.modules}


def restore_code(before: dict[str, tuple[Code, ModuleType]]) -> None:
    """Puts the modules back that a refused generation has run again."""
    for name in _executed.keys() - before.keys():
        del _executed[name]
        sys.modules.pop(name, None)
    for name, (code, module) in before.items():
        _executed[name], sys.modules[name] = code, module
        package, _, leaf = name.rpartition(".")
        if package in sys.modules:
            setattr(sys.modules[package], leaf, module)


def make_object(name: str, known: Mapping[str, Code]) -> tuple[Any, str]:
    """The object of `module:Class`, from the code read with the generation; and the
    reason if that cannot be."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_code(module, known.get(module)), attribute)(), ""
    except SystemExit as error:         # sys.exit, argparse: no Exception
        return None, f"the module exits when it is imported (status {error})"
    except ModuleNotFoundError as error:
        return None, f"{error}; modules are searched for on PYTHONPATH"
    except Exception as error:          # the operator's code may raise anything
        return None, f"{type(error).__name__}: {error}"
