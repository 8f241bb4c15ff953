"""C that takes the place of functions of libc in a program: LD_PRELOAD."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def build_preload(directory: Path, source: str) -> dict[str, str]:
    """Returns the environment that loads `source` first; skips without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (directory / "first.c").write_text(source)
    library = directory / "first.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, directory / "first.c",
                    "-ldl"], check=True)  # fmt: skip
    # Behind the sanitizers' libraries, if there are any
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}
