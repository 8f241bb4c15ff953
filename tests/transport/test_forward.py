"""Requests over records: the tests of tests/e2e/test_plain.py."""

from tests.e2e.test_plain import *  # noqa: F403
