"""Compiled modules of tests, for code that only C can reach: in the package's mode."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOORS = sorted((ROOT / "tests" / "doors").glob("*.pyx"))
#: After the mode's own: no test measures a door, and -O3 takes twice the time.
LESS = ["-O1"]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def built_doors(mode: str, compiler: str = "") -> Path:
    """Returns the directory of tests/doors in this mode, compiled if any is stale."""
    directory = ROOT / "build" / f"tests-{mode}"
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)            # several runs at a time
        stale = stale_doors(directory)
        if stale:                                   # setup.py imports Cython: 0.3 s
            modules = [made_of(source, directory) for source in stale]
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                list(pool.map(build, stale, modules, repeat(rules_of(mode)),
                              repeat(compiler)))
    return directory


def stale_doors(directory: Path) -> list[Path]:
    """The sources without a module there that is as new as they and each .pxd."""
    package = ROOT / "cutthrough"
    declared = max(file.stat().st_mtime for file in package.rglob("*.pxd"))
    modules = {source: made_of(source, directory) for source in DOORS}
    return [source for source, made in modules.items()
            if not made.exists()
            or made.stat().st_mtime < max(declared, source.stat().st_mtime)]


def made_of(source: Path, directory: Path) -> Path:
    return directory / f"{source.stem}{SUFFIX}"


def build_module(base: Path, name: str, text: str) -> ModuleType:
    """Compiles `text` below `base` and imports it. Without a compiler: skips."""
    from cutthrough.doctor.built import mode

    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = base / f"{name}.pyx"
    source.write_text(text)
    build(source, made_of(source, base), rules_of(mode))
    return import_file(name, made_of(source, base))


def import_file(name: str, made: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def rules_of(mode: str) -> Any:
    """The Mode of setup.py."""
    return import_file("setup_of_tests", ROOT / "setup.py").MODES[mode]


def build(source: Path, made: Path, rules: Any, compiler: str = "") -> None:
    c_file = made.with_suffix(".c")
    directives = [f"-X{key}={value}" for key, value in rules.directives.items()]
    macros = [f"-D{key}={value}" for key, value in rules.macros]
    # Without the run-time of a sanitizer, which `make asan` has loaded first
    from cutthrough.doctor.built import libssl

    headers = [ROOT / "cutthrough/net/tls", f"{libssl}/include"][: 2 if libssl else 1]
    environment = {key: value for key, value in os.environ.items()
                   if key != "LD_PRELOAD"}
    cc = (compiler or os.environ.get("CC", "cc")).split()
    for command in (
        [sys.executable, "-m", "cython", "-3", *directives, "-I", str(ROOT),
         "-o", str(c_file), str(source)],
        [*cc, "-c", "-fPIC", "-w", *(rules.compile or ["-O2"]), *LESS, *macros,
         "-I", sysconfig.get_path("include"), *(f"-I{path}" for path in headers),
         "-o", str(made.with_suffix(".o")), str(c_file)],
        [*cc, "-shared", "-o", str(made), str(made.with_suffix(".o")), *rules.link],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{' '.join(command[:4])}: {done.stderr}"
