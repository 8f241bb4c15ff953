"""What the proxy makes of captured exchanges for the page: commands, differences, views.
"""

import pytest

from tests.e2e.test_admin_flows import database as database
from tests.e2e.test_admin_flows import filled as filled
from tests.e2e.test_admin_flows import get
from tests.e2e.test_admin_flows import start as start

pytestmark = pytest.mark.any_loop


def test_a_request_is_copied_and_two_are_compared(filled):
    _, operator = filled
    _, fields, text = get(operator, "/flows/4/as/curl")
    assert b"'http://h0.test/4'" in text and "Content-Security-Policy" in fields
    for path, found in (("as/wget", 404), ("as/json", 200), ("diff/5", 200),
                        ("diff/99", 404)):
        assert get(operator, f"/flows/4/{path}")[0] == found, path
