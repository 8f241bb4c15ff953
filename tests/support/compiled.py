"""A Cython module of a test's own, for what only C can reach."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

import cutthrough


def build_module(base: Path, name: str, text: str) -> ModuleType:
    """Compiles and imports it; skips the test if there is no compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = base / f"{name}.pyx"
    source.write_text(text)
    root = Path(cutthrough.__file__).parent.parent
    made = base / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    include = sysconfig.get_path("include")
    cython = [sys.executable, "-m", "cython", "-I", root, source]
    subprocess.run(cython, check=True, cwd=base)
    cc = ["cc", "-shared", "-fPIC", "-O0", "-w", f"-I{include}", "-o", made]
    subprocess.run([*cc, source.with_suffix(".c")], check=True)
    spec = importlib.util.spec_from_file_location(name, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
