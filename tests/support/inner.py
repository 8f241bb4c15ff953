"""Runs of pytest with the plugin, as users have them: a process, a file of tests."""

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.inside import origins
from tests.support.proxy import ROOT, clean_environment

GET = """
    import os, subprocess, sys, urllib.request
    import pytest

    def get(url):
        return urllib.request.urlopen(url, timeout=20).read().decode()
"""


class Inner:
    """Called with a file's text: the status, and the output of pytest."""

    def __init__(self, folder: Path, *names: str) -> None:
        """`names`: of hosts that are 127.0.0.1."""
        self.folder = folder
        self._names = ",".join(f"{name}=127.0.0.1" for name in names or ("a.example",))

    def __call__(self, text: str, *flags: str, name: str = "test_inner.py",
                 **env: str) -> tuple[int, str]:
        (self.folder / name).write_text(textwrap.dedent(GET) + textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider",
             "-p", "cutthrough.pytest_plugin", "-o", "asyncio_mode=auto",
             f"--basetemp={self.folder / 'base'}", *flags, name], cwd=self.folder,
            text=True, capture_output=True, timeout=120, check=False,
            env=clean_environment(
                PYTHONPATH=str(ROOT), CUTTHROUGH_DNS_OVERRIDES=self._names,
                CUTTHROUGH_ORIGIN_CA=str(origins().own.certificate), **env))
        return done.returncode, done.stdout + done.stderr

    def passes(self, text: str, *flags: str, **env: str) -> list[str]:
        """Runs it; returns the lines `found …` that the tests have printed, sorted."""
        status, said = self(text, *flags, **env)
        assert status == 0, said
        return sorted(line for line in said.splitlines() if line.startswith("found "))

    def cassette(self, name: str) -> list[str]:
        """The files of a cassette, but for the manifest."""
        return sorted(file.name for file in (self.folder / "cassettes" / name).iterdir()
                      if file.name != "manifest.json")
