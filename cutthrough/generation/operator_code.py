"""The operator's Python code: modules are run as they were read with the generation.

A program that embeds the proxy gives functions themselves; the configuration names
each by a text that is found only here.
"""

import importlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from cutthrough.contained import contain
from cutthrough.policy.source import Code, PolicyError

# Functions and objects of the embedding program, by their name in the configuration.
# Weak: each is kept alive by the proxy that was given it
_embedded: "WeakValueDictionary[str, Any]" = WeakValueDictionary()
_numbers = itertools.count(1)
# Options whose function may also be a plain one, which has to return at once
_PLAIN_TOO = ("dns_hook",)

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


def lend_function(option: str, function: Callable[..., Any]) -> str:
    """Returns a name by which `find_function` finds the function while it is alive.

    Any async callable will do: a closure, a method, an object. Raises PolicyError if it
    is not async, and the option needs that.
    """
    # B004 takes this for a test of callability. It fetches the method: an object counts
    # as an async function if its __call__ is one.
    called = getattr(function, "__call__", function)         # noqa: B004
    name = getattr(function, "__qualname__", type(function).__name__)
    if option not in _PLAIN_TOO and not (inspect.iscoroutinefunction(function)
                                         or inspect.iscoroutinefunction(called)):
        raise PolicyError("", option, f"{name} is not an async function")
    name = f"embedded-{next(_numbers)}:{name}"
    _embedded[name] = function
    return name


def lend_object(option: str, value: object) -> str:
    """Returns a name by which `make_object` finds the object while it is alive. Raises
    PolicyError if it is a class."""
    if isinstance(value, type):
        raise PolicyError("", option, f"{value.__qualname__} is a class: give an "
                          "object of it")
    name = f"embedded-{next(_numbers)}:{type(value).__qualname__}"
    _embedded[name] = value
    return name


def find_function(option: str, name: str, code: Code | None = None
                  ) -> Callable[..., Any]:
    """Imports `module:function` from `code`, read with the generation, or from the
    current file if `code` is None. Raises PolicyError."""
    embedded: Callable[..., Any] | None = _embedded.get(name)
    if embedded is not None:
        return embedded
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise PolicyError("", option, f"{name!r} is not module:function")
    try:
        function: Callable[..., Any] = getattr(import_code(module, code), attribute)
    except SystemExit as error:         # sys.exit, argparse: no Exception
        raise PolicyError("", option, f"{name}: the module exits when it is "
                          f"imported (status {error})") from error
    except ModuleNotFoundError as error:
        raise PolicyError("", option, f"{name}: {error}; modules are searched "
                          "for on PYTHONPATH") from error
    except BaseException as error:      # the operator's module may raise anything
        raise PolicyError("", option, f"{name}: {contain(error)}") from error
    if option in _PLAIN_TOO and not callable(function):
        raise PolicyError("", option, f"{name} is not a function")
    if option not in _PLAIN_TOO and not inspect.iscoroutinefunction(function):
        raise PolicyError("", option, f"{name} is not an async function")
    return function


def find_optional(option: str, name: str, known: Mapping[str, Code]
                  ) -> Callable[..., Any] | None:
    """`find_function` with the code read with the generation; None if no function is
    named."""
    if not name:
        return None
    return find_function(option, name, known.get(name.partition(":")[0]))


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
    embedded = _embedded.get(name)
    if embedded is not None:
        return embedded, ""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_code(module, known.get(module)), attribute)(), ""
    except SystemExit as error:         # sys.exit, argparse: no Exception
        return None, f"the module exits when it is imported (status {error})"
    except ModuleNotFoundError as error:
        return None, f"{error}; modules are searched for on PYTHONPATH"
    except BaseException as error:      # the operator's code may raise anything
        contained = contain(error)
        return None, f"{type(contained).__name__}: {contained}"
