"""The manual pages and completions of scripts/manuals.py, and deploy/packages.

The packages themselves are tried by `make packages-check`.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutthrough.cli.verbs import VERBS
from cutthrough.config.config import OPTIONS, TABLES
from tests.support.proxy import ROOT, clean_environment

PACKAGES = ROOT / "deploy/packages"
# Command lines that end where Tab is pressed, and what a shell offers then
LINES = {
    "cutthrough exp": {"explain"},
    "cutthrough flows sl": {"slowest"},
    "cutthrough init --for k": {"kubernetes"},
    "cutthrough serve --keepalive": {"--keepalive-timeout"},
    "cutthrough serve --loop uv": {"uvloop"},
    "cutthrough ca export --format b": {"bundle"},
    "cutthrough check -c ./a_fi": {"./a_file.toml"},
}
PATIENCE_S = 60


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    subprocess.run([sys.executable, "scripts/manuals.py", folder], cwd=ROOT, check=True,
                   timeout=60, env=clean_environment())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a file to complete."""
    (tmp_path / "a_file.toml").touch()
    return tmp_path


def words_of(page: Path) -> set[str]:
    text = re.sub(r"\\f[BIR]", " ", page.read_text()).replace("\\-", "-")
    return set(re.findall(r"[\w-]+", text))


def test_the_pages_have_every_verb_and_every_option(share: Path) -> None:
    assert VERBS.keys() <= words_of(share / "man/man1/cutthrough.1")
    assert {*OPTIONS, *TABLES} <= words_of(share / "man/man5/cutthrough.toml.5")


@pytest.mark.parametrize("page", ["man1/cutthrough.1", "man5/cutthrough.toml.5"])
def test_mandoc_has_no_warning_about_a_page(share: Path, page: str) -> None:
    if not shutil.which("mandoc"):         # bootstrap.sh installs it; CI allows no skip
        pytest.skip("mandoc is not installed")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", share / "man" / page],
        capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("line", LINES)
def test_bash_completes(share: Path, folder: Path, line: str) -> None:
    file = share / "bash-completion/completions/cutthrough"
    script = ('. "$0"; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
              '_shtab_cutthrough 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, file, line], cwd=folder, timeout=30,
                          capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_fish_completes(share: Path, folder: Path, line: str) -> None:
    if not shutil.which("fish"):           # bootstrap.sh installs it; CI allows no skip
        pytest.skip("fish is not installed")
    file = share / "fish/vendor_completions.d/cutthrough.fish"
    done = subprocess.run(
        ["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", file,
         line], cwd=folder, timeout=30, capture_output=True, text=True, check=True,
        env={**os.environ, "HOME": str(folder)})
    offered = {text.partition("\t")[0] for text in done.stdout.splitlines()}
    assert offered == LINES[line], done.stderr


@pytest.fixture(scope="module")
def zsh(share: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The terminal of a zsh that has our completion."""
    if not shutil.which("zsh"):            # bootstrap.sh installs it; CI allows no skip
        pytest.skip("zsh is not installed")
    folder = tmp_path_factory.mktemp("zsh")
    (folder / "a_file.toml").touch()
    functions = share / "zsh/vendor-completions"
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "-f", "-i"], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "dumb", "PS1": "", "ZDOTDIR": str(folder)})
    os.close(theirs)
    os.write(terminal, f"fpath=({functions} $fpath); autoload -U compinit; "
             "compinit -u -D; bindkey -e; print 'ready''!'\n".encode())
    wait_for_text(terminal, "ready!")
    yield terminal
    os.close(terminal)                       # zsh ends at the end of its terminal
    process.wait(PATIENCE_S)


def wait_for_text(terminal: int, text: str) -> None:
    got, end = "", time.monotonic() + PATIENCE_S
    while text not in got:
        left = end - time.monotonic()
        assert left > 0 and select.select([terminal], [], [], left)[0], (text, got)
        got += os.read(terminal, 65536).decode(errors="replace")


@pytest.mark.parametrize("line", LINES)
def test_zsh_completes(zsh: int, line: str) -> None:
    """A single candidate is put into the line, and a space after it."""
    (offered,) = LINES[line]
    begun = line.rpartition(" ")[2]
    os.write(zsh, f"{line}\t".encode())
    wait_for_text(zsh, offered.removeprefix(begun) + " ")
    os.write(zsh, b"\x15")                   # ^U: an empty line


def test_the_packages_configuration_is_valid() -> None:
    file = PACKAGES / "cutthrough.toml"
    done = subprocess.run(
        [sys.executable, "-m", "cutthrough", "check", file], cwd=ROOT, timeout=30,
        capture_output=True, text=True, check=False,
        env=clean_environment() | {"CUTTHROUGH_PASSWORD": "of-the-test"})
    assert done.returncode == 0, done.stderr


def test_the_unit_runs_what_the_packages_have() -> None:
    """The paths in the unit are those of the package; its user has the unit's name."""
    unit = (ROOT / "deploy/systemd/cutthrough.service").read_text()
    script = (ROOT / "scripts/packages.sh").read_text()
    spec = (PACKAGES / "cutthrough.spec").read_text()
    assert "ExecStart=/opt/cutthrough/bin/cutthrough " in unit
    assert "inside=$root/opt/cutthrough\n" in script and "\n/opt/cutthrough\n" in spec
    for file in re.findall(r"/etc/cutthrough/[\w.]+", unit):
        assert file in (PACKAGES / "postinst").read_text() + spec
    assert "DynamicUser=yes" in unit and not re.search(r"^User=", unit, re.M)
    assert re.search(r"^u cutthrough ", (PACKAGES / "sysusers.conf").read_text(), re.M)
