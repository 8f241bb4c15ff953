"""The page "Traffic" while requests are open."""

import pytest
from websockets.frames import Opcode

from tests.support.browser import needs_chromium
from tests.support.open_flows import upgrade_at, wait_open
from tests.support.traffic import messages
from tests.support.traffic import page as page
from tests.support.wait import wait_until
from tests.support.websockets import frame, parrot, talk

pytestmark = [
    pytest.mark.any_loop, pytest.mark.dials_out,
    needs_chromium]


@pytest.fixture
def talking(page, make_origin, dial):
    """A client with an open WebSocket; its row is in the list."""
    client = dial(page.proxy)
    upgrade_at(client, make_origin(parrot), "/a/chat")
    wait_open(page.operator)
    page.enter()
    page.wait_rows(1)
    return client


def test_an_open_websocket_has_a_row_that_stays_in_its_place(page, talking):
    (cells,) = page.rows()
    assert cells[2] == "101" and cells[7].endswith(" s") and cells[9] == "open"
    talking.close()
    wait_until(lambda: page.rows()[0][9] == "", lambda: str(page.rows()))
    (cells,) = page.rows()
    assert not cells[7].endswith(" s")


def test_its_messages_come_and_its_end_shows_the_flow(page, talking):
    name = page.open(0)
    assert page.text("#detail-url").endswith(" (open)")
    page.tab("messages")
    wait_until(lambda: "1 messages so far" in page.text("#panel"),
               lambda: page.text("#panel"))
    talk(talking, frame(Opcode.TEXT, b"zebra"))
    wait_until(lambda: "3 messages so far" in page.text("#panel"),
               lambda: page.text("#panel"))
    assert [cells[4] for cells in messages(page)] == ["welcome", "zebra", "zebra"]
    page.browser.click("#compare")
    assert "still open" in page.text("#note")
    talking.close()
    wait_until(lambda: page.text("#detail-url").startswith("#1 "),
               lambda: page.text("#detail-url"))
    assert name != "1" and "so far" not in page.text("#panel")


def test_a_filter_is_applied_to_open_ones_too(page, talking):
    page.apply("~m POST")
    page.wait_rows(0)
    page.apply("~u chat")
    page.wait_rows(1)
