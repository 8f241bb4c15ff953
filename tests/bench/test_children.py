"""The end of child processes."""

import subprocess

import pytest

from bench.children import BenchError, end, spawn


def test_an_end_that_takes_long_hides_no_reason(monkeypatch) -> None:
    """subprocess.TimeoutExpired was raised over the reason why a child is ended."""
    child = spawn(["sleep", "60"])

    def wait(seconds: float | None = None) -> int:
        raise subprocess.TimeoutExpired("sleep", seconds or 0)

    with pytest.raises(BenchError, match="the reason"), monkeypatch.context() as patch:
        patch.setattr(child, "wait", wait)
        try:
            raise BenchError("the reason")
        finally:
            end(child)
    child.wait(20)
