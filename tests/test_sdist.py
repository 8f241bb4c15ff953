"""The source archive has every file that a build reads, and no file that it writes."""

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
    """Modules, declarations, headers and pages of the package, the scripts of setup.py,
    and the locks. MANIFEST.in lists all files but Python's."""
    tree = tmp_path / "tree"
    shutil.copytree(TREE, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", tmp_path],
                   cwd=tree, capture_output=True, timeout=120, check=True)
    [archive] = tmp_path.glob("cutthrough-*.tar.gz")
    with tarfile.open(archive) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
    needed = [path for room in ("cutthrough", "scripts", "requirements")
              for path in (TREE / room).rglob("*")
              if path.is_file() and path.suffix not in (".so", ".c", ".pyc")]
    missing = {str(path.relative_to(TREE)) for path in needed} - names
    assert not missing
    assert {"setup.py", "pyproject.toml", "proxy.pyx", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o"))]
