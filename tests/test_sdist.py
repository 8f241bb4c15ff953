"""The source archive: it holds what a build needs, and nothing that was built."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parent.parent
LEFT_OUT = (".git", ".venv", "build", "dist", "__pycache__", "*.so", "*.c", "results",
            "*.egg-info", ".*_cache", ".hypothesis")


@pytest.mark.slow
def test_a_source_archive_holds_what_a_build_reads(tmp_path: Path) -> None:
    """Every module, declaration, header and page of the package, what setup.py imports,
    and the locks. What is no Python file comes by MANIFEST.in alone."""
    tree = tmp_path / "tree"
    shutil.copytree(TREE, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", tmp_path],
                   cwd=tree, capture_output=True, timeout=120, check=True)
    [archive] = tmp_path.glob("cutthrough-*.tar.gz")
    with tarfile.open(archive) as members:
        held = {name.partition("/")[2] for name in members.getnames()}
    needed = [path for room in ("cutthrough", "scripts", "requirements")
              for path in (TREE / room).rglob("*")
              if path.is_file() and path.suffix not in (".so", ".c", ".pyc")]
    missing = {str(path.relative_to(TREE)) for path in needed} - held
    assert not missing
    assert {"setup.py", "pyproject.toml", "proxy.pyx", "LICENSE", "README.md"} <= held
    assert not [name for name in held if name.endswith((".so", ".pyc", ".o"))]
