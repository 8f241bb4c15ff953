"""When the page with the keys of session tickets gets a new one."""

import asyncio
import types

from cutthrough.net.tls import ticket_keys
from cutthrough.supervisor.tickets_page import PERIOD_S, TicketsPage


def test_a_clock_that_was_set_back_keeps_no_key(monkeypatch) -> None:
    """A key lived for as long as the clock had been ahead, and its period more."""
    now = [1e9]
    monkeypatch.setattr(
        ticket_keys, "time", types.SimpleNamespace(time=lambda: now[0]))

    def newest(page: TicketsPage) -> bytes:
        page.begin()
        assert page._keys is not None
        return page._keys.names[0]

    async def look() -> None:
        page = TicketsPage()
        page.open()
        first = newest(page)
        now[0] += PERIOD_S - 1
        assert newest(page) == first
        now[0] -= 30 * 86400
        second = newest(page)
        assert second != first
        now[0] += PERIOD_S - 1
        assert newest(page) == second
        now[0] += 1
        assert newest(page) != second
        page.close()

    asyncio.run(look())
