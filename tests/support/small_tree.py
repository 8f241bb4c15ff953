"""A small tree with this project's setup.py and pyproject.toml, and its builds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]

ROOM = '''\
cdef extern from *:
    """
    #ifdef CUTTHROUGH_DEBUG
    #define ASSERTIONS 1
    #else
    #define ASSERTIONS 0
    #endif
    #ifdef __OPTIMIZE__
    #define OPTIMISED 1
    #else
    #define OPTIMISED 0
    #endif
    """
    bint ASSERTIONS, OPTIMISED

from cutthrough.number cimport NUMBER

def mode() -> tuple:
    return ASSERTIONS, OPTIMISED, NUMBER
'''


def make_tree(tmp_path: Path) -> Path:
    """This project's build around two modules: `cutthrough.room` and `proxy`."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, tmp_path)
    (tmp_path / "scripts").mkdir()
    for name in ("groups.py", "progress.py", "translation.py"):
        shutil.copy(TREE / "scripts" / name, tmp_path / "scripts")
    package = tmp_path / "cutthrough"
    package.mkdir()
    shutil.copy(TREE / "cutthrough/__init__.py", package)
    (package / "py.typed").touch()
    (package / "room.pyx").write_text(ROOM)
    (package / "room.pyi").write_text("def mode() -> tuple[bool, bool, int]: ...\n")
    (package / "number.pxd").write_text("cdef enum:\n    NUMBER = 1\n")
    (tmp_path / "proxy.pyx").write_text("served = True\n")
    return tmp_path


def build(
    tree: Path, mode: str, *flags: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace", *flags],
        cwd=tree, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "CUTTHROUGH_BUILD": mode, **environ},
    )


def built(tree: Path, mode: str, *flags: str, **environ: str) -> str:
    done = build(tree, mode, *flags, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def mode_of(tree: Path) -> tuple[bool, bool, int]:
    """(assertions, optimised, NUMBER) as the module in place has them."""
    words = subprocess.run(
        [sys.executable, "-c", "from cutthrough.room import mode; print(*mode())"],
        cwd=tree, capture_output=True, text=True, timeout=30, check=True,
    ).stdout.split()
    return words[0] == "True", words[1] == "True", int(words[2])
