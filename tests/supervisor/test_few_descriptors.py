"""A start with too few open files or too little memory says so, without a traceback."""

import re
import resource
import subprocess
import sys

import pytest

from cutthrough.cli import main as cli
from tests.support.proxy import ROOT, clean_environment


def start(limit: int, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cutthrough", "serve", "--listen", "127.0.0.1:0",
         "--user", "me", "--password", "secret", "--workers", "2", "--access-log",
         "off"], cwd=ROOT, env=clean_environment(**environ), capture_output=True,
        text=True, timeout=60, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (limit, limit)))


@pytest.mark.parametrize("limit", [32, 64])
def test_too_few_open_files_are_an_error_at_the_start(limit):
    """With 32 it listened, five tracebacks followed, and it served nothing."""
    done = start(limit)
    assert done.returncode == 2
    assert re.fullmatch(
        rf"cutthrough: this process may have {limit} open files, and needs at least "
        r"\d+: raise the limit \(ulimit -n, LimitNOFILE=\); a connection takes two\n",
        done.stderr)


@pytest.mark.parametrize("raised, shown", [
    ("OSError(12, 'Cannot allocate memory')", "Cannot allocate memory"),
    ("MemoryError", "no memory")])
def test_a_worker_without_memory_is_an_error_at_the_start(tmp_path, raised, shown):
    """With `ulimit -v 110000` the message was a traceback."""
    (tmp_path / "sitecustomize.py").write_text(f"""
import mmap, sys
if "cutthrough.worker.main" in sys.orig_argv:
    def fail(*_, **__):
        raise {raised}
    mmap.mmap = fail
""")
    done = start(1024, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert (f"ends, because a limit of this process is too low (ulimit -a): {shown}\n"
            in done.stderr)
    assert "exited before it was ready: status 1" in done.stderr


@pytest.mark.parametrize("text, shown", [
    ("x.so: failed to map segment from shared object", "not enough memory (ulimit -v"),
    ("libssl.so.3: cannot open shared object file: No such file", "libssl.so.3: cann")])
def test_a_library_that_cannot_be_loaded_is_one_line(monkeypatch, capsys, text, shown):
    """With `ulimit -v 30000` it was a traceback."""
    def fail(_):
        raise ImportError(text)
    monkeypatch.setattr(cli, "dispatch", fail)
    assert cli.main(["check"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cutthrough: a library cannot be loaded: ") and shown in line
