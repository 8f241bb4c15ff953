"""Directories of measurements: the accounts of squid and Apache enter them."""

import tempfile
from collections.abc import Iterator

import pytest

from tests.support.folders import SHARED


@pytest.fixture(scope="session", autouse=True)
def directories_that_others_enter() -> Iterator[None]:
    """Where tempfile makes them without pytest, whose directories are its user's alone.
    The measurements remove what they make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", SHARED)
        patch.setenv("TMPDIR", SHARED)
        yield
