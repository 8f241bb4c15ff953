"""Which file an error of reading or writing names."""

import subprocess
import sys

import pytest

from cutthrough.cli.main import main
from tests.support.proxy import ROOT, clean_environment


def run(redirected, *words):
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m",
         "cutthrough", *words], cwd=ROOT, timeout=60, text=True, capture_output=True,
        stdin=subprocess.DEVNULL, env=clean_environment())


@pytest.mark.parametrize("words", [
    "version", "--help", "ca show --dir {}", "ca export --dir {} --format bundle"])
def test_what_cannot_be_printed_names_no_other_file(tmp_path, words):
    """A directory of an authority was said to have no space."""
    assert main(["ca", "init", "--dir", str(tmp_path / "ca")]) == 0
    done = run(">/dev/full", *words.format(tmp_path / "ca").split())
    assert (done.returncode, done.stderr) == (
        1, "cutthrough: standard output: No space left on device\n")


@pytest.mark.parametrize("words", [
    "bundle verify --key AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= {}",
    "bundle build . --key {} --output b --revision 1", "ca issue a.example --like {}"])
def test_what_cannot_be_read_is_named(words):
    """The first page of a process cannot be read: EIO, which was blamed on others."""
    done = run("", *words.format("/proc/self/mem").split())
    assert (done.returncode, done.stderr) == (
        1, "cutthrough: /proc/self/mem: Input/output error\n")
