"""requirements/*.txt: every installed package is pinned, by hash."""

import re
import subprocess
import tomllib

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.proxy import ROOT

LOCKS = {path.stem: path.read_text()
         for path in sorted((ROOT / "requirements").glob("*.txt"))}
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = TABLES["project"]["optional-dependencies"]
# All that `cutthrough serve` may need; `mcp` is a program of an operator's machine
SERVED = [one for name in sorted(EXTRAS.keys() - {"mcp", "test", "fuzz"})
          for one in EXTRAS[name]]
LISTS = {
    "run": TABLES["project"]["dependencies"],
    "build": TABLES["build-system"]["requires"],
    **TABLES["dependency-groups"],
    **{name: TABLES["project"]["dependencies"] + EXTRAS[name]
       for name in ("redis", "postgres")},
    "image": TABLES["project"]["dependencies"] + SERVED,
    "test": (TABLES["project"]["dependencies"] + TABLES["build-system"]["requires"]
             + SERVED + EXTRAS["test"]),
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def environment(python: str) -> dict[str, str]:
    return {
        "python_version": python, "python_full_version": f"{python}.9",
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython"}


def pins(name: str, python: str) -> dict[str, Version]:
    """The packages that pip would install of this lock for this Python."""
    found: dict[str, Version] = {}
    for line in re.findall(r"^[a-z].*?(?= \\$)", LOCKS[name], re.M):
        spec, _, marker = line.partition(" ; ")
        if not marker or Marker(marker).evaluate(environment(python)):
            package, version = spec.split("==")
            assert package not in found
            found[package] = Version(version)
    return found


def test_there_is_a_lock_for_every_list():
    assert LOCKS.keys() == LISTS.keys()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LISTS)
def test_a_lock_covers_its_list_of_pyproject(name, python):
    """Packages came as the day had them; no build could be repeated."""
    got = pins(name, python)
    for text in LISTS[name]:
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate(environment(python)):
            continue
        package = canonicalize_name(wanted.name)
        assert package in got, "`make lock`, and commit requirements/"
        assert got[package] in wanted.specifier, "`make lock`, and commit requirements/"


@pytest.mark.parametrize("name", LISTS)
def test_every_pin_has_hashes_and_no_place(name):
    text = LOCKS[name]
    for line in re.findall(r"^[a-z].*\n(?:    .*\n)*", text, re.M):
        assert re.search(r"==[0-9][^ ]*( ; [^\\]*)? \\\n    --hash=sha256:", line), line
    assert "://" not in text and "--index" not in text and "--find-links" not in text


@pytest.mark.parametrize("name", ["run", "build", "redis", "postgres", "image"])
@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_shipped_is_what_is_tested(name, python):
    assert pins(name, python).items() <= pins("test", python).items()


def test_whatever_installs_asks_for_hashes():
    """In the image and by `make`, which CI runs."""
    for path in ("deploy/Dockerfile", "scripts/bootstrap.sh", "scripts/sbom.py",
                 "scripts/packages.sh", "Makefile"):
        text = (ROOT / path).read_text().replace("\\\n", " ")
        for command in re.findall(
                r"pip[\w\", -]* install[^&\n]*|\"install\"[^)]*", text):
            assert "--require-hashes" in command or "--no-index" in command, (
                f"{path}: {command}")


def test_the_lock_names_how_it_is_made():
    verbs = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, timeout=30,
                           capture_output=True, text=True, check=True).stdout
    assert "make lock " in verbs and "make sbom " in verbs
    assert all("make lock" in text.partition("==")[0] for text in LOCKS.values())
