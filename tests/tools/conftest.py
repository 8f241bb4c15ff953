"""explain with the policy of a test's module, POLICY, and logs for it."""

import json

import pytest

from cutthrough.cli.main import main


@pytest.fixture
def policy(request, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(request.module.POLICY)
    return path


@pytest.fixture
def ask(capsys):
    """The status and the output."""
    def run(*argv):
        status = main(argv)
        done = capsys.readouterr()
        return status, done.out, done.err
    return run


@pytest.fixture
def explain(ask, policy):
    """The status, the lines as {word: text}, and all that was printed."""
    def run(*argv):
        status, out, err = ask("explain", "--policy", str(policy), "--user", "alice",
                               *argv)
        words = {line[:9].strip(): line[9:] for line in out.splitlines()}
        return status, words, out + err
    return run


@pytest.fixture
def log(tmp_path):
    def write(*entries):
        path = tmp_path / "access.json"
        lines = [one if isinstance(one, str) else json.dumps(one) for one in entries]
        path.write_text("\n".join((*lines, "")))
        return str(path)
    return write
