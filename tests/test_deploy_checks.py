"""The checks of deploy/: what they need, and which files they take."""

import subprocess
import sys

import pytest

from tests.support.proxy import ROOT

DEPLOY = ROOT / "deploy"


def test_the_image_check_copies_what_docker_takes() -> None:
    """It asked git, and an unpacked source archive has none."""
    sys.path.insert(0, str(DEPLOY))
    try:
        from check_image import context
    finally:
        sys.path.remove(str(DEPLOY))
    names = {str(name) for name in context()}
    assert {"setup.py", "proxy.pyx", "deploy/healthcheck.py", "docs/deploy.md",
            "cutthrough/wire/http1.pyx", "requirements/image.txt"} <= names
    assert not {name for name in names
                if name.endswith((".so", ".c", ".pyc")) or name.startswith("tests")}


@pytest.mark.parametrize("name", ["image", "unit", "wheel", "sdist", "packages"])
def test_a_check_says_what_it_needs(name: str) -> None:
    """It was a traceback of the first program that the host does not have."""
    words = ["root"] if name == "unit" else []
    done = subprocess.run(
        [sys.executable, DEPLOY / f"check_{name}.py", *words],
        text=True, capture_output=True, check=False, env={"PATH": "/nonexistent"})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "please install what Debian calls: " in done.stderr or (
        "needs root" in done.stderr)


def test_a_root_in_a_path_with_a_space_is_refused(tmp_path) -> None:
    """debootstrap ended after its downloads, in words about /bin/true."""
    sys.path.insert(0, str(DEPLOY))
    try:
        from check_image import bootstrap
    finally:
        sys.path.remove(str(DEPLOY))
    with pytest.raises(SystemExit, match="no path with a space"):
        bootstrap("stable", tmp_path / "a root")
