"""Compiles tests/doors, as setup.py compiles the tree.

`python -m tests.support.doors DIRECTORY` does it in the mode of CUTTHROUGH_BUILD.
"""

import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
SOURCES = sorted((TREE / "tests" / "doors").glob("*.pyx"))


def built_for(mode: str, **environ: str) -> Path:
    """The directory with the doors of this mode, compiled if one is older than what it
    is made of. Raises ImportError with what the compiler said."""
    # Line events change no layout, and would leave their C beside the sources
    mode = "native" if mode == "trace" else mode
    built = TREE / "build" / "doors" / mode
    if not are_stale(built):
        return built / "tests" / "doors"
    built.mkdir(parents=True, exist_ok=True)
    with open(built / "lock", "w") as lock:     # test runs that begin together
        fcntl.flock(lock, fcntl.LOCK_EX)
        if are_stale(built):
            compile_into(built, {**os.environ, "CUTTHROUGH_BUILD": mode, **environ})
    return built / "tests" / "doors"


def are_stale(built: Path) -> bool:
    made = modules(built)
    if not all(module.exists() for module in made):
        return True
    inputs = [TREE / "setup.py", *SOURCES, *(TREE / "cutthrough").rglob("*.pxd")]
    oldest = min(module.stat().st_mtime for module in made)
    return oldest < max(file.stat().st_mtime for file in inputs)


def modules(built: Path) -> list[Path]:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return [built / source.relative_to(TREE).with_suffix(suffix) for source in SOURCES]


def compile_into(built: Path, environment: dict[str, str]) -> None:
    environment.pop("LD_PRELOAD", None)         # the run-time of a sanitizer
    done = subprocess.run(
        [sys.executable, "-W", "ignore:Support for", "-m", __name__, built], cwd=TREE,
        env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ImportError(f"tests/doors: {done.stdout}{done.stderr}")
    for module in modules(built):               # an unchanged one was left alone
        os.utime(module)


def main(directory: str) -> None:
    from setuptools import Distribution, Extension

    from setup import MODE, NAME, Build

    # Without pyproject.toml: this is not the project's distribution
    distribution = Distribution({
        "cmdclass": {"build_ext": Build},
        "ext_modules": [
            Extension(
                f"tests.doors.{source.stem}",
                [str(source.relative_to(TREE))],
                extra_compile_args=MODE.compile,
                extra_link_args=MODE.link,
                define_macros=MODE.macros,
            )
            for source in SOURCES
        ],
    })
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = directory, f"build/{NAME}/doors"
    distribution.run_command("build_ext")


if __name__ == "__main__":
    main(sys.argv[1])
