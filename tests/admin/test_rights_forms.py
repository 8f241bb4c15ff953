"""The right of a request, with any form of its target (R91)."""

import pytest

from cutthrough.admin.rights import right_for

TARGETS = ("", "*", "/", "//", "127.0.0.1:80", "?", "%", "/%2f", "\0", ".", "/.", "a")
METHODS = ("GET", "HEAD", "OPTIONS", "CONNECT", "POST", "DELETE", "TRACE", "FOO")


@pytest.mark.parametrize("target", TARGETS)
def test_every_form_of_a_target_has_a_right(target):
    for method in METHODS:
        right = right_for(method, target)
        assert right == ("" if method in ("GET", "HEAD") else "operate"), method
