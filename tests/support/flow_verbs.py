"""The verb flows, for a listener or a database, also while flows come in."""

import contextlib
import subprocess
import sys
import threading

import pytest

from cutthrough.cli import main as cli
from tests.support.admin import TOKEN
from tests.support.proxy import ROOT, clean_environment


@pytest.fixture
def flows(tmp_path, capfdbinary):
    """Runs an action; returns exit status, output and errors."""
    token = tmp_path / "token"
    token.write_text(TOKEN)

    def run(where, *words):
        status = cli.main(["flows", *words, *words_of(where, token)])
        out, errors = capfdbinary.readouterr()
        return status, out.decode("latin-1"), errors.decode()
    return run


def words_of(where, token):
    """`where`: an operator, or a database."""
    if hasattr(where, "where"):
        address = where.where if isinstance(where.where, str) else (
            f"127.0.0.1:{where.where}")
        return ["--admin", address, "--token-file", str(token)]
    return ["--file", str(where)]


@contextlib.contextmanager
def following(where, tmp_path, *words, action="follow"):
    """The lines of `follow`, a list that grows, and the process."""
    lines = []
    process = subprocess.Popen(
        [sys.executable, "-m", "cutthrough", "flows", action, *words,
         *words_of(where, tmp_path / "token")], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=clean_environment())

    def read():
        for line in process.stdout:
            lines.append(line.split())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines, process
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()
