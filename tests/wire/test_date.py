"""Dates as RFC 9110 writes them, against the standard library's."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.wire import date


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (784111777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (951782400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ],
)
def test_a_date_is_an_imf_fixdate(seconds, text):
    assert date(seconds) == text


@given(st.integers(0, 253402300799))
def test_every_date_is_the_standard_librarys(seconds):
    assert date(seconds) == formatdate(seconds, usegmt=True)
