#!/usr/bin/env python3
"""Writes dist/cutthrough-VERSION.cdx.json, the bill of materials of a release.

    scripts/sbom.py CYCLONEDX-PY

The packages of requirements/image.txt are installed into an environment of their own,
because the bill has their licences and dependencies; their hashes are those of the
lock. If `make wheel` has built a wheel, the bill lists the libraries in it, too.
"""

import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from urllib.parse import quote

TREE = Path(__file__).resolve().parent.parent
LOCK = TREE / "requirements/image.txt"
BUNDLED = TREE / "build/wheel/licences"
VERSION = re.compile(r'^__version__ = "(.+)"$', re.M)
LIBRARY = re.compile(r"(.+?)-(\d.*)")
LOCKED = re.compile(r"^([\w.-]+)==(\S+)[^\n]*\\\n((?:    --hash=.*\n)+)", re.M)


def hashes() -> dict[str, list[str]]:
    """SHA-256 of each file that may be installed, by name and version."""
    return {key(name, version): re.findall(r"sha256:([0-9a-f]{64})", lines)
            for name, version, lines in LOCKED.findall(LOCK.read_text())}


def key(name: str, version: str) -> str:
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"


def describe(tool: str) -> dict:
    """The bill as the tool makes it of an environment with the locked packages."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", "--require-hashes", "-r", LOCK], check=True)
        subprocess.run([*pip, "uninstall", "--yes", "setuptools", "pip"], check=True)
        listed = subprocess.run(
            [tool, "environment", python, "--pyproject", TREE / "pyproject.toml",
             "--output-reproducible", "--of", "JSON"], check=True, capture_output=True)
    bill: dict = json.loads(listed.stdout)
    return bill


def bundled() -> list[dict]:
    """The libraries in the wheel, by their sources, if it is here."""
    libraries = []
    for file in sorted(BUNDLED.glob("*.txt")):
        [(name, version)] = LIBRARY.findall(file.stem)
        purl = (f"pkg:github/aws/aws-lc@v{version}" if name == "aws-lc" else
                f"pkg:deb/debian/{name}@{quote(version)}?arch=source")
        libraries.append({"type": "library", "name": name, "version": version,
                          "purl": purl, "bom-ref": purl})
    return libraries


def main() -> int:
    (tool,) = sys.argv[1:]
    text = (TREE / "cutthrough/__init__.py").read_text()
    version = VERSION.findall(text)[0]
    bill, known = describe(tool), hashes()
    own = bill["metadata"]["component"]
    own["version"], own["purl"] = version, f"pkg:pypi/cutthrough@{version}"
    for component in bill["components"]:
        files = known.pop(key(component["name"], component["version"]))
        component.setdefault("properties", []).extend(
            {"name": "cutthrough:lock:sha256", "value": digest} for digest in files)
    bill["components"].extend(bundled())
    path = TREE / f"dist/cutthrough-{version}.cdx.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    print(f"{path.relative_to(TREE)}: {len(bill['components'])} packages; not on this "
          f"Python: {', '.join(known) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
