"""Compiled modules of tests, for what only C can reach: built in the package's mode."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from cutthrough.doctor import built

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def load_compiled(name: str) -> ModuleType:
    """tests/support/NAME.pyx, which may cimport the package.

    It is built if it, or any .pxd of the package, is newer than what was built before.
    """
    full = f"tests.support.{name}"
    if full in sys.modules:
        return sys.modules[full]
    source = ROOT / "tests" / "support" / f"{name}.pyx"
    made = ROOT / "build" / f"tests-{built.mode}" / f"{name}{SUFFIX}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)            # several runs at a time
        inputs = [source, *(ROOT / "cutthrough").rglob("*.pxd")]
        if not made.exists() or made.stat().st_mtime < max(
            file.stat().st_mtime for file in inputs
        ):
            build(source, made)
    return import_file(full, made)


def build_module(base: Path, name: str, text: str) -> ModuleType:
    """Compiles `text` below `base` and imports it. Without a compiler: skips."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = base / f"{name}.pyx"
    source.write_text(text)
    build(source, base / f"{name}{SUFFIX}")
    return import_file(name, base / f"{name}{SUFFIX}")


def import_file(name: str, made: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(source: Path, made: Path) -> None:
    setup = importlib.util.spec_from_file_location("setup_of_tests", ROOT / "setup.py")
    assert setup is not None and setup.loader is not None
    rules = importlib.util.module_from_spec(setup)
    sys.modules["setup_of_tests"] = rules           # its dataclasses look themselves up
    setup.loader.exec_module(rules)
    mode = rules.MODES[built.mode]
    c_file = made.with_suffix(".c")
    directives = [f"-X{key}={value}" for key, value in mode.directives.items()]
    macros = [f"-D{key}={value}" for key, value in mode.macros]
    compiler = os.environ.get("CC", "cc").split()
    for command in (
        [sys.executable, "-m", "cython", "-3", *directives, "-I", str(ROOT),
         "-o", str(c_file), str(source)],
        [*compiler, "-shared", "-fPIC", "-w", *(mode.compile or ["-O2"]), *macros,
         "-I", sysconfig.get_path("include"), "-o", str(made), str(c_file), *mode.link],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command[:4])}: {done.stderr}"
